"""Montgomery form (Montgomery 1985): the constants of a modulus that the kernels take, as limbs."""

from __future__ import annotations

from dataclasses import dataclass

from gmpy2 import mpz

from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular.inverses import modular_inverse

__all__ = ["MontgomeryForm", "montgomery_form"]


@dataclass(frozen=True, repr=False)
class MontgomeryForm:
    """The constants of numbers modulo m in L limbs of b bits, R = 2^(bL). Its repr shows none: m may be secret.

    Attributes:
        limbs: L.
        modulus: the words that kernels take for the modulus.
        inverse: −1/m modulo 2^b.
        complement: R − m, or R − n for pairs; kernel `leave` takes it.
        enter: the constants of kernel `enter`, L or 2L limbs.
        one: the limbs of the number 1.
    """

    limbs: int
    modulus: tuple[int, ...]
    inverse: int
    complement: tuple[int, ...]
    enter: tuple[int, ...]
    one: tuple[int, ...]


def montgomery_form(m: mpz, limbs: Limbs, root: mpz | None) -> MontgomeryForm:
    """The constants of modulus m: for pairs (`engine.pairs`) if its root n is given, else for `engine.montgomery`.

    Raises:
        MalformedError: m, or its root, is too long for these limbs.
    """
    base, spare = (m, 2) if root is None else (root, 4)  # R ≥ 4m, or 16n
    length = -(-(base.bit_length() + spare) // limbs.bits // limbs.tile) * limbs.tile
    if root is not None:
        length = max(length, 2 * limbs.tile)
    if length > limbs.most:
        most = limbs.bits * limbs.most - spare
        raise MalformedError(f"a modulus or root of {base.bit_length()} bits; {most} are possible")
    radix = mpz(1) << (limbs.bits * length)
    negative = limbs.constant_word(int(-modular_inverse(base, mpz(1) << limbs.bits) % (1 << limbs.bits)))

    def words(number: mpz) -> tuple[int, ...]:
        return tuple(int(number >> (limbs.bits * k)) & limbs.top for k in range(length))

    modulus, complement = tuple(limbs.constant_word(word) for word in words(base)), words(radix - base)
    if root is None:
        return MontgomeryForm(length, modulus, negative, complement, words(radix * radix % m), words(radix % m))

    def pair(number: mpz) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return words(number % m % base), words(number % m // base)

    square, cube = pair(radix**2), pair(radix**3)
    enter = (*cube[0], *square[0], *cube[1], *square[1])
    # C: R − 1, whose limbs are all ones, and limb by limb what it lacks of a multiple of n.
    multiple = tuple(limbs.top + word for word in words((1 - radix) % base))
    return MontgomeryForm(2 * length, (*modulus, *multiple), negative, complement, enter, sum(pair(radix), ()))

"""What the shared tests of homomorphic schemes run on: a list of cases, and a cut in miniature."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from securevfl_crypto.block import Block
from securevfl_crypto.masks import PairwiseMasks, ZeroShares
from securevfl_crypto.paillier import Paillier, PaillierPrivateKey, generate_keypair
from securevfl_crypto.rlwe import BFV, CKKS
from securevfl_crypto.scheme import Scheme, SecretKey

from tests.crypto.lattice import product_view

__all__ = ["SCHEMES", "Case", "Cut", "close", "zero_shares"]


@cache
def _key(scheme: Scheme, which: int) -> SecretKey:
    return scheme.generate_key()


@dataclass(frozen=True)
class Case:
    """A scheme under test; it has to be hashable.

    Attributes:
        scheme: with its parameters.
        weaker: the same scheme with weaker parameters and a key of them, None if it offers no choice.
        view: all that the owner decrypts from one message about x, each number scaled to [0, 1) by its modulus.
    """

    scheme: Scheme
    weaker: Callable[[], SecretKey] | None
    view: Callable[[SecretKey, np.ndarray], list[float]]

    def __str__(self) -> str:
        return self.scheme.name

    def key(self, which: int = 0) -> SecretKey:
        """A key pair, the same for all tests."""
        return _key(self.scheme, which)


def close(found: np.ndarray, exact: np.ndarray, error: int) -> bool:
    """Whether each entry is within `error` of the exact one."""
    assert found.shape == exact.shape
    return bool((np.abs(found.astype(object) - exact) <= error).all())


def zero_shares(parties: int, seed: int = 0) -> list[ZeroShares]:
    """Shares of zero among so many holders."""
    pairs: dict[int, list[PairwiseMasks]] = {i: [] for i in range(parties)}
    for i, j in itertools.combinations(range(parties), 2):
        for who, positive in ((i, True), (j, False)):
            pairs[who].append(PairwiseMasks(bytes([i + 1, j + 1, seed, 0] * 8), positive=positive))
    return [ZeroShares(pairs[i]) for i in range(parties)]


class Cut:
    """An owner and some holders of blocks of different widths, with the weights that nobody would hold."""

    def __init__(
        self, case: Case, widths: Sequence[int], h: int, batch: int, *, seed: int = 0, extreme: bool = False
    ) -> None:
        self.case, self.rng, self.extreme = case, np.random.default_rng(seed), extreme
        key, scheme, parties = case.key(), case.scheme, len(widths)
        self.block = Block(
            batch=batch,
            width_in=widths[0],
            width_out=h,
            x_bits=15,
            s_bits=21,
            w_bits=34,
            # the largest product of all, doubled twice: z may reach a quarter
            z_bits=15 + 34 + sum(widths).bit_length() + 2,
            widest=max(widths),
        )
        self.blocks = [replace(self.block, width_in=d) for d in widths]
        self.owners = [scheme.create_owner(key, block) for block in self.blocks]
        zeros = zero_shares(parties, seed)
        self.holders = [
            scheme.create_holder(key.public, block, zero) for block, zero in zip(self.blocks, zeros, strict=True)
        ]
        self.w = [self._integers((d, h), self.block.w_bits).astype(object) for d in widths]
        self.u = [holder.fresh_share() for holder in self.holders]
        ring = self.owners[0].ring
        self.v = [ring.reduce(w - u) for w, u in zip(self.w, self.u, strict=True)]

    def _integers(self, shape: tuple[int, int], bits: int) -> np.ndarray:
        largest = 2**bits - 1
        if self.extreme:
            return self.rng.choice(np.array([-largest, largest]), size=shape)
        return self.rng.integers(-largest, largest + 1, size=shape)

    def x(self, rows: int, i: int = 0) -> np.ndarray:
        """Rows of holder i."""
        return self._integers((rows, self.blocks[i].width_in), self.block.x_bits)

    def s(self, rows: int) -> np.ndarray:
        """Steps."""
        return self._integers((rows, self.block.width_out), self.block.s_bits)

    def products(self, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What the holders answer."""
        parts = zip(self.owners, self.holders, self.v, self.u, xs, strict=True)
        return [holder.answer_product(owner.seal_weights(v), x, u) for owner, holder, v, u, x in parts]

    def exact(self, xs: Sequence[np.ndarray]) -> np.ndarray:
        """``Σ x W``."""
        return np.asarray(sum(x.astype(object) @ w for x, w in zip(xs, self.w, strict=True)), dtype=object)


def _paillier_view(key: SecretKey, message: np.ndarray) -> list[float]:
    assert isinstance(key, PaillierPrivateKey)
    n = key.public.n
    return [float((m % n) / n) for m in key.decrypt_batch(key.public.load_ciphertexts(message, len(message)))]


def _small_paillier() -> SecretKey:
    return generate_keypair(1024, unsafe_small_key=True)


SCHEMES = [
    Case(Paillier(2048), _small_paillier, _paillier_view),
    Case(BFV(), None, product_view),
    Case(CKKS(), None, product_view),
]

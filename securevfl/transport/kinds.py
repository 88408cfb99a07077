"""The closed list of message kinds, and how a message's content is protected. Plain data: what a job may send is
declared from it before anything computes.

The kind of a message determines what its receiver can learn from it; the guard describes how its content is protected.
Both are written to the sender's and the receiver's ledger, and a party's policy decides by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = ["NO_GUARD", "Guard", "Kind", "Scalar"]

Scalar = str | int | float | bool
"""A setting in a message."""


class Kind(StrEnum):
    """The closed list of message kinds. A new kind is a new way to leak: it needs a line in the threat model."""

    CONTROL = "control"
    PUBLIC_KEY = "public key"
    BLINDED_SET = "blinded set"
    ENCODED_SET = "encoded set"
    INTERSECTION = "intersection"
    CIPHERTEXT = "ciphertext"
    MASKED_SHARE = "masked share"
    SHARE = "secret share"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    REPRESENTATION = "representation"
    STATISTIC = "statistic"
    METRIC = "metric"

    @property
    def disclosure(self) -> str:
        """What the receiver of an unguarded message of this kind learns."""
        return _REVEALS[self]


_REVEALS: Mapping[Kind, str] = {
    Kind.CONTROL: "settings of the run, widths, when to stop",
    Kind.PUBLIC_KEY: "a public key",
    Kind.BLINDED_SET: "the number of rows; identities only as points blinded by a secret scalar",
    Kind.ENCODED_SET: "identities, hashed or encoded: whoever has the salt or the key can test guesses",
    Kind.INTERSECTION: "which of its own rows all parties hold",
    Kind.CIPHERTEXT: "sizes and timing; the content only with the secret key",
    Kind.MASKED_SHARE: "nothing but sizes: a random-looking share",
    Kind.SHARE: "nothing but sizes, unless two of those who compute or deal combine what they have",
    Kind.ACTIVATION: "the sender's activations, from which its features can be estimated",
    Kind.GRADIENT: "the gradient at the cut, from which labels can be estimated",
    Kind.REPRESENTATION: "the sender's learned representations of its rows",
    Kind.STATISTIC: "an aggregate over the sender's rows",
    Kind.METRIC: "a score of the model",
}


_TITLES = {"paillier": "Paillier", "bfv": "BFV", "ckks": "CKKS"}
_STRENGTHS = {1024: 80, 2048: 112, 3072: 128, 7680: 192, 15360: 256}
_MOST_PAILLIER = 16384
"""A modulus of n that no scheme of this toolkit has; its strength is not known."""
_DEGREE = 8192
"""N of every BFV and CKKS key of this toolkit; keys of another degree are refused where they are read."""
_WIDEST_MODULI: Mapping[int, int] = MappingProxyType({1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881})
"""N → most bits of q at 128 bits of security against classical attacks, for ternary secrets: Homomorphic Encryption
Standard (Albrecht et al. 2018), table 1."""


@dataclass(frozen=True, slots=True)
class Guard:
    """How the content of one message is protected.

    Attributes:
        cipher: ``"none"``, ``"paillier"``, ``"bfv"``, ``"ckks"``, ``"masked"`` or ``"blinded"``.
        bits: size of the modulus (n for Paillier, q for BFV and CKKS), statistical security of a mask, or security of a
            blinding, in bits; 0 for none.
        key: fingerprint of the key; empty without one.
        noise: noise multiplier of the differentially private release (σ over the sensitivity); 0 for none.
    """

    cipher: str = "none"
    bits: int = 0
    key: str = ""
    noise: float = 0.0

    @property
    def description(self) -> str:
        """Describe the protection for receipts and readers of ledgers."""
        match self.cipher:
            case "none":
                text = "in the clear"
            case "masked":
                text = f"masked, hidden to 2^-{self.bits}"
            case "blinded":
                text = f"blinded on {self.key}"
            case cipher:
                text = f"{_TITLES.get(cipher, cipher)} {self.bits} bits, key {self.key[:8]}"
        return f"{text}, Gaussian noise σ/Δ = {self.noise:.3g}" if self.noise else text

    @property
    def security_bits(self) -> int:
        """Bits of security: of the cipher, or statistical ones of a mask; 0 if there is none or it is unknown.

        For ciphers it is derived from the size of the modulus, never taken from a peer; for masks and blindings it is
        the sender's `bits`, which no receiver can check. Paillier: comparable strengths of NIST SP 800-57 part 1 rev.
        5, table 2. BFV and CKKS: 128, the level at which both are set up, for moduli that the homomorphic encryption
        standard (Albrecht et al. 2018, table 1) rates at that level for N = 8192, the only degree here: up to 218 bits.
        Longer ones have no known strength.
        """
        match self.cipher:
            case "paillier":
                known = self.bits <= _MOST_PAILLIER
                return max(
                    (strength for size, strength in _STRENGTHS.items() if known and self.bits >= size), default=0
                )
            case "bfv" | "ckks":
                return 128 if 0 < self.bits <= _WIDEST_MODULI[_DEGREE] else 0
            case "masked" | "blinded":
                return max(self.bits, 0)
            case _:
                return 0

    @property
    def is_readable(self) -> bool:
        """Whether the receiver can read the exact content."""
        return self.cipher == "none" and self.noise == 0.0


NO_GUARD = Guard()

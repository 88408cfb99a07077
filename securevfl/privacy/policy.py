"""A party's policy: its own floor. What it forbids is an error before a byte is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from securevfl.errors import InputError, PolicyError
from securevfl.transport import Kind, Message

__all__ = ["READABLE_KINDS", "Policy"]

READABLE_KINDS = frozenset({Kind.ACTIVATION, Kind.GRADIENT, Kind.REPRESENTATION})
"""Kinds whose unguarded content tells about single rows."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a party lets out, checked on every message that it sends.

    Attributes:
        sealed: row-level content (activations, gradients, representations) may leave only encrypted or masked.
        noised: kinds of which every message must carry differentially private noise.
        forbidden: kinds that may not leave at all.
        min_key_bits: smallest Paillier key under which this party encrypts or is encrypted for.
        min_intersection: fewest common rows with which it goes on: smaller intersections single people out.
        max_epsilon: largest ε that its releases may add up to, or None for no bound.
        pairwise_intersections: whether, among more than two parties, the active party may learn which rows it shares
            with this one; algorithms with a label book need it, no other does.
        max_set_size: most rows that a peer may announce for alignment.
    """

    sealed: bool = False
    noised: frozenset[Kind] = frozenset()
    forbidden: frozenset[Kind] = frozenset()
    min_key_bits: int = 2048
    min_intersection: int = 10
    max_epsilon: float | None = None
    pairwise_intersections: bool = True
    max_set_size: int = 1 << 24

    def __post_init__(self) -> None:
        if self.min_intersection < 1:
            raise InputError(f"min_intersection is {self.min_intersection}; at least 1 row is needed to go on")
        if self.max_set_size < 1:
            raise InputError(f"max_set_size is {self.max_set_size}; at least 1 row has to be allowed")
        if self.max_epsilon is not None and not self.max_epsilon > 0:
            raise InputError(f"max_epsilon is {self.max_epsilon}; give a positive number, or None for no bound")

    def check(self, message: Message, peer: str) -> None:
        """Refuse a message that this policy forbids.

        Raises:
            PolicyError: which rule the message breaks, and the cure.
        """
        kind, guard = message.kind, message.guard
        if kind in self.forbidden:
            raise PolicyError(
                f"{message.what!r} to {peer!r} is a message of kind {kind.value!r}, which the policy forbids"
            )
        if self.sealed and kind in READABLE_KINDS and guard.cipher == "none":
            raise PolicyError(
                f"{message.what!r} to {peer!r} would send {kind.value}s in the clear and the policy demands "
                "them sealed; "
                "use protection 'paillier', or another policy"
            )
        if kind in self.noised and not guard.noise > 0:
            raise PolicyError(
                f"{message.what!r} to {peer!r} would send {kind.value}s without noise and the policy demands "
                "differential privacy; add dp=… to the protection"
            )
        if guard.cipher == "paillier" and guard.bits < self.min_key_bits:
            raise PolicyError(
                f"{message.what!r} to {peer!r} is under a Paillier key of {guard.bits} bits; "
                f"the policy demands at least {self.min_key_bits}"
            )

    def check_epsilon(self, epsilon: float, what: str) -> None:
        """Refuse a plan of releases that would add up to more than `max_epsilon`.

        Raises:
            PolicyError: the planned ε and the bound.
        """
        if self.max_epsilon is not None and epsilon > self.max_epsilon * (1 + 1e-6):
            raise PolicyError(
                f"releasing {what} as planned spends ε = {epsilon:.3g}; the policy allows {self.max_epsilon:.3g}: "
                "more noise, or fewer epochs"
            )

    def check_intersection(self, count: int) -> None:
        """Refuse to go on with fewer common rows than `min_intersection`.

        Raises:
            PolicyError: the count and the bound.
        """
        if count < self.min_intersection:
            raise PolicyError(
                f"the parties have {count} common rows; the policy goes on with at least {self.min_intersection}"
            )

    def stricter(self, other: Policy) -> Policy:
        """Both policies at once: on each point the stricter of the two."""
        bounds = [bound for bound in (self.max_epsilon, other.max_epsilon) if bound is not None]
        return replace(
            self,
            sealed=self.sealed or other.sealed,
            noised=self.noised | other.noised,
            forbidden=self.forbidden | other.forbidden,
            min_key_bits=max(self.min_key_bits, other.min_key_bits),
            min_intersection=max(self.min_intersection, other.min_intersection),
            max_epsilon=min(bounds) if bounds else None,
            pairwise_intersections=self.pairwise_intersections and other.pairwise_intersections,
            max_set_size=min(self.max_set_size, other.max_set_size),
        )

    def describe(self) -> str:
        """One line for ledgers and reports."""
        parts = [f"keys >= {self.min_key_bits} bits", f"intersection >= {self.min_intersection}"]
        if self.max_set_size != Policy.max_set_size:
            parts.append(f"sets <= {self.max_set_size} rows")
        if not self.pairwise_intersections:
            parts.append("no pairwise intersection")
        if self.sealed:
            parts.append("row-level content sealed")
        if self.noised:
            parts.append("noise on " + ", ".join(sorted(kind.value for kind in self.noised)))
        if self.forbidden:
            parts.append("never " + ", ".join(sorted(kind.value for kind in self.forbidden)))
        if self.max_epsilon is not None:
            parts.append(f"ε <= {self.max_epsilon:g}")
        return "; ".join(parts)

"""A scheme whose messages are ring elements; subclasses add the encoding."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.pools import Pool
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.holder import RlweHolder
from securevfl_crypto.rlwe.keys import RlwePublicKey, RlweSecretKey, generate_keys, read_public
from securevfl_crypto.rlwe.owner import RlweOwner
from securevfl_crypto.rlwe.parameters import MOST_HOLDERS, Chain
from securevfl_crypto.rlwe.plan import Demand, Plan
from securevfl_crypto.rlwe.pooled import PooledHolder, PooledOwner
from securevfl_crypto.scheme import PublicKey, Scheme, SecretKey

__all__ = ["RlweScheme"]


@dataclass(frozen=True)
class RlweScheme(Scheme):
    """A scheme whose messages are ring elements.

    Attributes:
        number: identifies the scheme in keys and messages.
        chains: the moduli, shortest first; a key has a pair for each.
        pool: the party's worker processes for the long work of both halves; None for this process.
    """

    most_holders: ClassVar[int | None] = MOST_HOLDERS
    number: ClassVar[int]
    chains: ClassVar[tuple[Chain, ...]]
    pool: Pool | None = None

    def with_pool(self, pool: Pool | None) -> Self:
        """See `Scheme.with_pool`; a pool of one worker is not used."""
        return self if pool is None or pool.workers < 2 else replace(self, pool=pool)

    @abstractmethod
    def choose_encodings(self, block: Block, product: Demand, gradient: Demand) -> tuple[Encoding, Encoding]:
        """The encodings of products and of gradients; they have one modulus unless shares are integers.

        Args:
            block: the sizes of the integers.
            product: sizes the noise of products.
            gradient: sizes the noise of gradients.

        Raises:
            OverflowRefused: no chain has room for the values of the block and their noise.
        """

    def generate_key(self) -> RlweSecretKey:
        """Generate a fresh key pair for each chain."""
        return generate_keys(self.number, self.chains)

    def read_public(self, data: bytes) -> RlwePublicKey:
        """See `Scheme.read_public`; no weaker parameters exist."""
        return read_public(data, self.number, self.chains)

    def create_owner(self, key: SecretKey, block: Block) -> RlweOwner:
        """See `Scheme.create_owner`.

        Raises:
            MalformedError: the key belongs to another scheme.
            OverflowRefused: the values of the block and their noise do not fit.
        """
        if not isinstance(key, RlweSecretKey) or key.public.scheme != self.number:
            raise MalformedError(f"a key of type {type(key).__name__}; expected a key that {self.name} generated")
        plan = Plan(self.choose_encodings, key.public, block)
        return RlweOwner(key, plan) if self.pool is None else PooledOwner(key, plan, self.pool, self.name)

    def create_holder(self, key: PublicKey, block: Block, zero: ZeroShares) -> RlweHolder:
        """See `Scheme.create_holder`.

        Raises:
            MalformedError: the key belongs to another scheme.
            OverflowRefused: the values of the block and their noise do not fit, or more than `MOST_HOLDERS` holders
                share zero.
        """
        if not isinstance(key, RlwePublicKey) or key.scheme != self.number:
            raise MalformedError(f"a key of type {type(key).__name__}; expected a key that {self.name} read")
        holders = len(zero) + 1
        if holders > MOST_HOLDERS:
            raise OverflowRefused(
                f"the products of {holders} holders add up; the noise of at most {MOST_HOLDERS} fits: use Paillier, or "
                "fewer parties"
            )
        plan = Plan(self.choose_encodings, key, block)
        return RlweHolder(key, plan, zero) if self.pool is None else PooledHolder(key, plan, zero, self.pool, self.name)

"""A label owner's side of the aggregation in Multi-VFL.

- `MaskedAveraging`: sends changes to the coordinator under pairwise masks that cancel. The coordinator learns their
  sum, steps the server optimiser and sends back the weights.
- `BlindAveraging`: sends changes encrypted, with the same masks inside. The coordinator adds ciphertexts and learns
  nothing. The chief (the first label owner) has the key, opens the sum and sends the mean directly to the others. Each
  label owner steps its copy of the server optimiser, and all copies compute the same weights.

Changes are integers with 40 fractional bits, and their sum is exact, so both ways give the same weights, bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import gmpy2
import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.aggregation import Addends, Aggregation, Aggregator

from securevfl.algorithms.multivfl.servers import ServerOptimiser
from securevfl.cut import agree_masks
from securevfl.cut.handshake import read_key
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Clock, Link, fan_out
from securevfl.training.state import State, as_dict
from securevfl.transport import NO_GUARD, Array, Guard, Kind, Scalar

__all__ = [
    "CHANGE_BITS",
    "Averaging",
    "BlindAveraging",
    "MaskedAveraging",
    "count_as_encryption",
    "mask_values",
    "unmasked_mean",
]

_MODULUS = gmpy2.mpz(1) << 128
_FRACTION = 40
_MASK = Guard("masked", 128)
_SIGMA = Guard("masked", 40)
_WHOLE = 16
_NOTHING: Mapping[str, Scalar] = {}
CHANGE_BITS = _FRACTION + _WHOLE
"""A change of a weight stays below 2^16, with 40 fractional bits: sums over up to 128 parties fill 64 bits."""


@contextmanager
def count_as_encryption(clock: Clock) -> Iterator[None]:
    """Count as homomorphic encryption, and turn the cryptography's errors into the toolkit's."""
    with clock.time_encryption():
        try:
            yield
        except crypto.CryptoError as error:
            raise ProtocolError(str(error)) from error


def encode_changes(values: np.ndarray, bits: int) -> list[int]:
    """Numbers below 2^bits as integers with 40 fractional bits.

    Raises:
        ProtocolError: a number that is not finite, or reaches 2^bits.
    """
    if not np.isfinite(values).all() or (len(values) and np.abs(values).max() >= 1 << bits):
        raise ProtocolError(f"a change of weights is not finite or reaches 2^{bits}; did training diverge? Lower lr")
    return [round(value * (1 << _FRACTION)) for value in values.tolist()]


def mask_values(values: np.ndarray, shares: crypto.ZeroShares) -> np.ndarray:
    """Fixed-point numbers plus this party's shares of zero, modulo 2^128, (16 n,) bytes.

    Raises:
        ProtocolError: a number that is not finite, or reaches 2^40.
    """
    whole = encode_changes(values, 40)
    zero = shares.draw_shares(len(whole), _MODULUS)
    parts = b"".join(int((a + b) % _MODULUS).to_bytes(16, "little") for a, b in zip(whole, zero, strict=True))
    return np.frombuffer(parts, dtype=np.uint8)


def unmasked_mean(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The mean of the parties' numbers from the outputs of `mask_values`, (count,) float64.

    Raises:
        ProtocolError: a part of another size.
    """
    total = [gmpy2.mpz(0)] * count
    for part in parts:
        if part.dtype != np.uint8 or part.shape != (16 * count,):
            raise ProtocolError(f"a masked change of {part.size} bytes; {16 * count} were expected")
        content = part.tobytes()
        total = [t + int.from_bytes(content[16 * i : 16 * i + 16], "little") for i, t in enumerate(total)]
    half = _MODULUS // 2
    return _divide_sums([int((t + half) % _MODULUS - half) for t in total], len(parts))


def _divide_sums(sums: Sequence[int], parties: int) -> np.ndarray:
    return np.array([value / (1 << _FRACTION) for value in sums]) / parties


def _check_finite(array: object, count: int, peer: str, what: str) -> np.ndarray:
    found = np.asarray(array)
    if found.dtype != np.float64 or found.shape != (count,) or not np.isfinite(found).all():
        raise ProtocolError(
            f"{peer!r} sent {what} of shape {found.shape} or with values that are not finite; {count} were expected"
        )
    return found


class Averaging(ABC):
    """One label owner's side.

    Args:
        site: the label owner's, linked with the others and the coordinator; the first label owner is the chief.
    """

    def __init__(self, site: PartyContext) -> None:
        self.site = site
        self.server = site.links[site.coordinator]
        self.owners = site.label_owners
        self.chief = site.name == self.owners[0]

    async def agree_weights(self, weights: np.ndarray, shares: Addends | None) -> np.ndarray:
        """Agree on secrets, and return the initial weights (d,) of all label owners: the chief's.

        Args:
            weights: this label owner's, float64.
            shares: sizes of the shares of the cut's weights that are averaged too; None for none.
        """
        masks = await agree_masks(self.site, self.owners, "securevfl aggregation v1", step="multi/seed")
        self.zero = crypto.ZeroShares(masks)
        return await self._first_weights(weights, shares)

    @abstractmethod
    async def _first_weights(self, weights: np.ndarray, shares: Addends | None) -> np.ndarray:
        """See `agree_weights`; the secrets are there."""

    @abstractmethod
    async def average_change(self, change: np.ndarray) -> np.ndarray:
        """The next round's weights from this label owner's change of them, (d,) float64."""

    async def mean_shares(self, shares: np.ndarray) -> np.ndarray:
        """The mean over label owners of integers, rounded, (n,) object array.

        Raises:
            ProtocolError: an aggregation that adds no shares up.
        """
        raise ProtocolError(
            "shares of the cut are averaged under encryption only: use aggregation 'paillier' or 'ckks'"
        )

    def get_state(self) -> State:
        """The state to resume from."""
        return {}

    def load_state(self, state: State) -> None:
        """Go on from a `state`, after `agree_weights`."""
        if state:
            raise TypeError(f"a state with {sorted(state)} does not fit this aggregation")


class MaskedAveraging(Averaging):
    """Aggregation by a coordinator that adds masked changes and steps the server optimiser."""

    async def _first_weights(self, weights: np.ndarray, shares: Addends | None) -> np.ndarray:
        if self.chief:
            await self.server.send(Kind.STATISTIC, "multi/weights", weights=weights)
        self.count = len(weights)
        return await self._receive_weights()

    async def average_change(self, change: np.ndarray) -> np.ndarray:
        await self.server.send(Kind.MASKED_SHARE, "multi/change", guard=_MASK, change=mask_values(change, self.zero))
        return await self._receive_weights()

    async def _receive_weights(self) -> np.ndarray:
        message = await self.server.receive(Kind.STATISTIC, "multi/weights", "weights")
        return _check_finite(message.arrays["weights"], self.count, self.server.peer, "weights")


class BlindAveraging(Averaging):
    """The coordinator adds ciphertexts up and learns nothing; the chief opens the sum.

    Args:
        site: see `Averaging`.
        scheme: that adds up.
        optimiser: this label owner's copy of the server optimiser.
    """

    def __init__(self, site: PartyContext, scheme: Aggregation, optimiser: ServerOptimiser) -> None:
        super().__init__(site)
        self.scheme = scheme
        self.optimiser = optimiser
        self.secret: crypto.SecretKey | None = None
        self.shares: Aggregator | None = None

    async def _send_numbers(
        self,
        kind: Kind,
        what: str,
        *more: Link,
        meta: Mapping[str, Scalar] = _NOTHING,
        guard: Guard = NO_GUARD,
        **arrays: Array,
    ) -> None:
        """One message of the chief's, to the other label owners and to `more`."""
        links = [*(self.site.links[name] for name in self.owners[1:]), *more]
        await fan_out(links, lambda link: link.send(kind, what, meta=meta, guard=guard, **arrays))

    async def _first_weights(self, weights: np.ndarray, shares: Addends | None) -> np.ndarray:
        public = await self._agree_key(weights, shares)
        with count_as_encryption(self.site.clock):
            parties = len(self.owners)
            changes = Addends(count=len(weights), bits=CHANGE_BITS, parties=parties)
            self.changes = self.scheme.create_aggregator(public, changes)
            self.shares = None if shares is None else self.scheme.create_aggregator(public, shares)
        self.guard = Guard(self.scheme.name, public.bits, public.fingerprint)
        self.weights = await self._receive_numbers("multi/weights", weights)
        return self.weights

    async def _agree_key(self, weights: np.ndarray, shares: Addends | None) -> crypto.PublicKey:
        """The chief makes the key and tells the others directly, and the coordinator, too."""
        if self.chief:
            with count_as_encryption(self.site.clock):
                self.secret = self.scheme.generate_key()
            public = self.secret.public
            count, bits = (0, 0) if shares is None else (shares.count, shares.bits)
            meta: dict[str, Scalar] = {"weights": len(weights), "shares": count, "share bits": bits}
            key = np.frombuffer(public.to_bytes(), dtype=np.uint8)
            await self._send_numbers(Kind.PUBLIC_KEY, "multi/key", self.server, meta=meta, key=key)
            return public
        message = await self.site.links[self.owners[0]].receive(Kind.PUBLIC_KEY, "multi/key", "key")
        with count_as_encryption(self.site.clock):
            return self.scheme.read_public(read_key(self.owners[0], message.arrays["key"]))

    async def _receive_numbers(self, what: str, mine: np.ndarray) -> np.ndarray:
        """The chief's numbers (d,), at all label owners."""
        if self.chief:
            await self._send_numbers(Kind.STATISTIC, what, values=mine)
            return mine
        message = await self.site.links[self.owners[0]].receive(Kind.STATISTIC, what, "values")
        return _check_finite(message.arrays["values"], self.changes.addends.count, self.owners[0], what)

    async def _sum_owners(self, aggregator: Aggregator, values: np.ndarray, what: str) -> np.ndarray | None:
        """The sum of all label owners' integers, at the chief."""
        with count_as_encryption(self.site.clock):
            sealed = aggregator.seal(values, self.zero)
        await self.server.send(Kind.CIPHERTEXT, what, guard=self.guard, c=sealed)
        if self.secret is None:
            return None
        message = await self.server.receive(Kind.CIPHERTEXT, f"{what} sum", "c")
        with count_as_encryption(self.site.clock):
            return aggregator.open(np.asarray(message.arrays["c"]), self.secret)

    async def average_change(self, change: np.ndarray) -> np.ndarray:
        values = np.array(encode_changes(change, _WHOLE), dtype=np.int64)
        total = await self._sum_owners(self.changes, values, "multi/change")
        mean = change if total is None else _divide_sums(total.tolist(), len(self.owners))
        self.weights = self.optimiser.step_weights(self.weights, await self._receive_numbers("multi/mean", mean))
        return self.weights

    async def mean_shares(self, shares: np.ndarray) -> np.ndarray:
        aggregator, parties = self.shares, len(self.owners)
        if aggregator is None:
            raise ProtocolError("no shares of the cut were agreed on in setup")
        total = await self._sum_owners(aggregator, shares, "multi/shares")
        width = (aggregator.addends.bits + 8) // 8
        if total is not None:
            mean = np.asarray((total.astype(object) + parties // 2) // parties, dtype=object)
            packed = crypto.bigints_to_bytes(mean, width)
            await self._send_numbers(Kind.MASKED_SHARE, "multi/shares mean", guard=_SIGMA, values=packed)
            return mean
        message = await self.site.links[self.owners[0]].receive(Kind.MASKED_SHARE, "multi/shares mean", "values")
        with count_as_encryption(self.site.clock):
            return crypto.bigints_from_bytes(np.asarray(message.arrays["values"]), shares.shape, width)

    def get_state(self) -> State:
        return {"weights": self.weights, "optimiser": self.optimiser.get_state()}

    def load_state(self, state: State) -> None:
        self.weights = np.asarray(state["weights"])
        self.optimiser.load_state(as_dict(state["optimiser"]))

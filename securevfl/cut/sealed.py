"""The sealed cut: ``z = Σ_p a_p W_p`` with weights that nobody holds, following BlindFL (Fu et al., SIGMOD 2022, arXiv
2206.07975) with secret shares ``W_p = U_p + V_p``: the active party holds V_p, passive party p holds U_p.

Forward: A sends ``[[V_p]]``; p returns ``[[a_p (V_p + U_p) + Z_p]]``, re-randomised, with masks Z_p that are uniform
over the plaintexts and cancel in the sum; A adds the parties' ciphertexts and decrypts z, once.
Backward: A sends ``[[S]]`` with ``S = η ∂L/∂z``; p returns ``[[a_pᵀS − Φ_p]]``; both step on their share with their
share of the gradient, Φ_p and ``a_pᵀS − Φ_p``. Where shares are integers (Paillier; momentum or weight decay), p then
draws a fresh U_p and sends the difference, so that shares stay small; elsewhere they are uniform modulo the modulus of
the plaintexts, and always are.
A bottom with parameters needs ``S W_pᵀ``: the forward product with the roles exchanged. Here p owns a key, sends
``[[U_p]]``, and A returns ``[[S (U_p + V_p)ᵀ]]``: one message each way, and A sees nothing of it.

The algebra is the scheme's (`securevfl_crypto.Scheme`), without input or output; this file moves it over links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import securevfl_crypto as crypto
import torch
from securevfl_crypto.pools import kept_pool

from securevfl.cut.base import initial_weights
from securevfl.cut.blocks import SIGMA, block_sizes, check_errors, with_integer_shares
from securevfl.cut.handshake import announce_width, read_key, read_snapshot, receive_widths, require_fed
from securevfl.cut.hiding_count import HidingCount
from securevfl.cut.integers import (
    fixed_activations,
    fixed_noise,
    fixed_weights,
    input_gradient,
    scaled_gradient,
    to_float,
)
from securevfl.cut.masking import agree_masks
from securevfl.cut.plain import split_by_party
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.cut.spec import CutSpec
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Noised, NoiseShare, fan_out, map_noised, strip_noise_mark
from securevfl.transport import NO_GUARD, Array, Guard, Kind

__all__ = ["SealedActive", "SealedPassive"]

_MASKED = Guard("masked", SIGMA)


def _as_numpy(array: Array) -> np.ndarray:
    """A received array as numpy, whatever it came as."""
    return np.asarray(array)


def _key_array(key: crypto.PublicKey) -> np.ndarray:
    return np.frombuffer(key.to_bytes(), dtype=np.uint8)


def _key_guard(scheme: crypto.Scheme, key: crypto.PublicKey) -> Guard:
    return Guard(scheme.name, key.bits, key.fingerprint)


@dataclass
class _Peer:
    """What the active party keeps of one passive party; `back` and `guard` where its bottom has parameters."""

    owner: crypto.Owner
    share: crypto.WeightShare = field(repr=False)
    back: crypto.Holder | None = None
    guard: Guard = NO_GUARD
    theirs: np.ndarray | None = field(default=None, repr=False)


class SealedActive:
    """The active party's side: it owns the key and a share V_p of each passive party's weights."""

    def __init__(self, site: PartyContext, spec: CutSpec, scheme: crypto.Scheme) -> None:
        self.protection = scheme.name
        self._site = site
        self._spec = spec
        self._scheme = scheme.with_pool(kept_pool(site.pool))
        self._peers: dict[str, _Peer] = {}
        self._changed = True
        self._guard = Guard()
        self._hidden = HidingCount(site.notes, site.name, scheme.name, SIGMA)
        self.widths: dict[str, int] = {}

    async def setup(self) -> None:
        """See `ActiveCut.setup`."""
        site, spec, scheme = self._site, self._spec, self._scheme
        widths = await receive_widths(site, spec, self.protection)
        self.widths = {name: width for name, (width, _) in widths.items()}
        widest = max([spec.widest, *self.widths.values()])
        with count_as_encryption(site.clock):
            key = scheme.generate_key()
        self._guard = _key_guard(scheme, key.public)
        packed = _key_array(key.public)

        async def send_setup(link: Link) -> None:
            await link.send(Kind.PUBLIC_KEY, "cut/public key", meta={"widest": widest}, key=packed)

        await fan_out(self._site.passive_links, send_setup)
        for name, (width, trainable) in widths.items():
            forward, back = block_sizes(spec, width, widest)
            with count_as_encryption(site.clock):
                if trainable and scheme.create_owner(key, forward).ring != scheme.create_owner(key, back).ring:
                    forward, back = with_integer_shares(forward, back)
                owner = scheme.create_owner(key, forward)
                check_errors(owner, spec, len(widths) if spec.reduce == "sum" else 1)
            zero = np.full((width, spec.width), 0, dtype=object)
            peer = _Peer(owner, crypto.WeightShare(owner.ring, zero, spec.optimiser_rule))
            if trainable:
                message = await site.links[name].receive(Kind.PUBLIC_KEY, "cut/passive key", "key")
                with count_as_encryption(site.clock):
                    theirs = scheme.read_public(read_key(name, message.arrays["key"]))
                    peer.back = scheme.create_holder(theirs, back, crypto.ZeroShares([]))
                peer.guard = _key_guard(scheme, theirs)
            self._peers[name] = peer

    @property
    def step_error(self) -> float:
        """See `ActiveCut.step_error`."""
        return (
            max((p.owner.gradient_error for p in self._peers.values()), default=0)
            * 2.0**-self._spec.fixed_point.weight_fraction_bits
        )

    async def _send_weights(self, link: Link) -> None:
        peer = self._peers[link.peer]
        with count_as_encryption(self._site.clock):
            sealed = peer.owner.seal_weights(peer.share.values)
        await link.send(Kind.CIPHERTEXT, "cut/weights", guard=self._guard, c=sealed)

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        if self._changed:
            await fan_out(self._site.passive_links, self._send_weights)
            self._changed = False
        arrays = []
        for name, peer in self._peers.items():
            link = self._site.links[name]
            message = await link.receive(Kind.CIPHERTEXT, "cut/forward", "c")
            arrays.append(_as_numpy(message.arrays["c"]))
            if train and peer.back is not None:
                message = await link.receive(Kind.CIPHERTEXT, "cut/passive share", "c")
                peer.theirs = _as_numpy(message.arrays["c"])
        point, device = self._spec.fixed_point, self._spec.device
        owners = [peer.owner for peer in self._peers.values()]
        if self._spec.reduce == "none":
            with count_as_encryption(self._site.clock):
                parts = [owner.open_product([c], rows) for owner, c in zip(owners, arrays, strict=True)]
            return torch.stack([to_float(part, point.z_fraction_bits, device) for part in parts])
        with count_as_encryption(self._site.clock):
            z = owners[0].open_product(arrays, rows)
        return to_float(z, point.z_fraction_bits, device)

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        steps = self._integer_steps(gradient)
        sealed: dict[str, np.ndarray | Noised[np.ndarray]] = {}

        async def send_gradient(link: Link) -> None:
            shared = "" if self._spec.reduce == "sum" else link.peer  # one ciphertext for all where z is their sum
            if shared not in sealed:
                with count_as_encryption(self._site.clock):
                    sealed[shared] = map_noised(steps[link.peer], self._peers[link.peer].owner.seal_steps)
            await link.send(Kind.CIPHERTEXT, "cut/backward", guard=self._guard, c=sealed[shared])

        async def send_back(link: Link) -> None:
            await self._send_back(link, self._peers[link.peer], steps[link.peer])

        await fan_out(self._site.passive_links, send_gradient)
        await fan_out([link for link in self._site.passive_links if self._peers[link.peer].back is not None], send_back)
        for name, peer in self._peers.items():
            link = self._site.links[name]
            message = await link.receive(Kind.CIPHERTEXT, "cut/weight gradient", "c")
            with count_as_encryption(self._site.clock):
                peer.share.step(peer.owner.open_gradient(_as_numpy(message.arrays["c"])))
            if peer.share.ring.modulus is None:
                change = await link.receive(Kind.MASKED_SHARE, "cut/reshare", "delta")
                width, values = peer.owner.block.share_bytes, peer.share.values
                with count_as_encryption(self._site.clock):
                    peer.share.add(crypto.bigints_from_bytes(_as_numpy(change.arrays["delta"]), values.shape, width))
        self._changed = True

    async def _send_back(self, link: Link, peer: _Peer, steps: np.ndarray | Noised[np.ndarray]) -> None:
        """``[[S W_pᵀ]]`` under p's key, before any share changes."""
        theirs, peer.theirs, back = require_fed(peer.theirs), None, peer.back
        if back is None:
            raise ProtocolError(f"{link.peer!r} has no key to send a gradient under")
        with count_as_encryption(self._site.clock):
            sealed = map_noised(steps, lambda s: back.answer_product(theirs, s, peer.share.values.T))
        self._hidden.add(back.statistical_masks(len(strip_noise_mark(steps)))[0])
        await link.send(Kind.CIPHERTEXT, "cut/input gradient", guard=peer.guard, c=sealed)

    def _integer_steps(
        self, gradient: torch.Tensor | Noised[torch.Tensor]
    ) -> Mapping[str, np.ndarray | Noised[np.ndarray]]:
        """S for each passive party: the same for all where z is their sum."""
        point = self._spec.fixed_point
        if self._spec.reduce == "none":
            parts = split_by_party(gradient, self._site.passive)
            return {name: map_noised(part, lambda g: scaled_gradient(g, point)) for name, part in parts.items()}
        return dict.fromkeys(self._peers, map_noised(gradient, lambda g: scaled_gradient(g, point)))

    def weight_shares(self) -> Mapping[str, np.ndarray]:
        """See `HasShares.weight_shares`."""
        return {name: peer.share.values for name, peer in self._peers.items()}

    def snapshot(self) -> object:
        """See `ActiveCut.snapshot`."""
        return {name: peer.share.state() for name, peer in self._peers.items()}

    def restore(self, state: object) -> None:
        """See `ActiveCut.restore`."""
        if not isinstance(state, dict):
            raise TypeError("not a snapshot of this cut")
        with count_as_encryption(self._site.clock):
            for name, peer in self._peers.items():  # of a party that is not there, the share stays unused
                peer.share.load(*read_snapshot(state[name]))
        self._changed = True


@dataclass
class _Mine:
    """What a passive party keeps once it is set up; `own` where its bottom has parameters."""

    holder: crypto.Holder
    share: crypto.WeightShare = field(repr=False)
    guard: Guard
    own: crypto.Owner | None
    own_guard: Guard


class SealedPassive:
    """A passive party's side: it holds a share U_p of its weights and never sees a gradient in the clear."""

    def __init__(self, site: PartyContext, spec: CutSpec, scheme: crypto.Scheme) -> None:
        self.protection = scheme.name
        self._site = site
        self._link = site.links[site.active]
        self._spec = spec
        self._scheme = scheme.with_pool(kept_pool(site.pool))
        self._mine: _Mine | None = None
        self._sealed = np.empty(0, dtype=np.uint8)
        self._stale = True
        self._fed: np.ndarray | None = None
        self._hidden = HidingCount(site.notes, site.name, scheme.name, SIGMA)

    async def setup(self, width: int, *, trainable: bool) -> None:
        """See `PassiveCut.setup`."""
        site, spec, scheme = self._site, self._spec, self._scheme
        await announce_width(site, spec, self.protection, width, trainable)
        pairs = await agree_masks(site, site.passive, "securevfl cut masks v1") if spec.reduce == "sum" else []
        message = await self._link.receive(Kind.PUBLIC_KEY, "cut/public key", "key")
        widest = message.meta.get("widest")
        if not isinstance(widest, int) or isinstance(widest, bool) or not width <= widest <= 1 << 20:
            raise ProtocolError(
                f"{site.active!r} says that the widest party feeds {widest!r} columns; {width} are here"
            )
        with count_as_encryption(site.clock):
            key = scheme.read_public(read_key(site.active, message.arrays["key"]))
            mine = scheme.generate_key() if trainable else None
            forward, back = block_sizes(spec, width, widest)
            holder = scheme.create_holder(key, forward, crypto.ZeroShares(pairs))
            own = None if mine is None else scheme.create_owner(mine, back)
            if mine is not None and own is not None and own.ring != holder.ring:
                forward, back = with_integer_shares(forward, back)
                holder = scheme.create_holder(key, forward, crypto.ZeroShares(pairs))
                own = scheme.create_owner(mine, back)
        first = fixed_weights(initial_weights(site, width, spec.width, spec.weight_bound), spec.fixed_point)
        share = crypto.WeightShare(holder.ring, first, spec.optimiser_rule)
        guard = _key_guard(scheme, key)
        own_guard = Guard() if mine is None else _key_guard(scheme, mine.public)
        if mine is not None:
            await self._link.send(Kind.PUBLIC_KEY, "cut/passive key", key=_key_array(mine.public))
        self._mine = _Mine(holder, share, guard, own, own_guard)

    @property
    def _after_setup(self) -> _Mine:
        if self._mine is None:
            raise ProtocolError("the cut was used before its setup")
        return self._mine

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """See `PassiveCut.forward`."""
        mine, point = self._after_setup, self._spec.fixed_point
        x = map_noised(activations, lambda a: fixed_activations(a, point))
        extra = None if noise is None else noise.add_to(lambda drawn: fixed_noise(drawn, point))
        if self._stale:
            message = await self._link.receive(Kind.CIPHERTEXT, "cut/weights", "c")
            self._sealed = _as_numpy(message.arrays["c"])
            self._stale = False

        def add_product(x: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
            return mine.holder.answer_product(self._sealed, x, mine.share.values, extra=extra)

        with count_as_encryption(self._site.clock):
            sealed = (
                map_noised(x, add_product)
                if extra is None
                else extra.map(lambda drawn: add_product(strip_noise_mark(x), drawn))
            )
        self._fed = strip_noise_mark(x) if train else None
        self._hidden.add(mine.holder.statistical_masks(len(strip_noise_mark(x)))[0])
        await self._link.send(Kind.CIPHERTEXT, "cut/forward", guard=mine.guard, c=sealed)
        if train and mine.own is not None:
            with count_as_encryption(self._site.clock):
                sealed = mine.own.seal_weights(mine.share.values.T)
            await self._link.send(Kind.CIPHERTEXT, "cut/passive share", guard=mine.own_guard, c=sealed)

    async def backward(self) -> torch.Tensor | None:
        """See `PassiveCut.backward`."""
        mine, link, clock = self._after_setup, self._link, self._site.clock
        message = await link.receive(Kind.CIPHERTEXT, "cut/backward", "c")
        x, self._fed = require_fed(self._fed), None
        back: torch.Tensor | None = None
        if mine.own is not None:
            answer = await link.receive(Kind.CIPHERTEXT, "cut/input gradient", "c")
            with count_as_encryption(clock):
                product = mine.own.open_product([_as_numpy(answer.arrays["c"])], len(x))
            back = input_gradient(product, self._spec.fixed_point).to(self._spec.device)
        with count_as_encryption(clock):
            sealed, phi = mine.holder.answer_gradient(_as_numpy(message.arrays["c"]), x)
            mine.share.step(phi)
        self._hidden.add(mine.holder.statistical_masks(len(x))[1])
        await link.send(Kind.CIPHERTEXT, "cut/weight gradient", guard=mine.guard, c=sealed)
        if mine.share.ring.modulus is None:
            with count_as_encryption(clock):
                change = mine.share.replace(mine.holder.fresh_share())
                delta = crypto.bigints_to_bytes(change, mine.holder.block.share_bytes)
            await link.send(Kind.MASKED_SHARE, "cut/reshare", guard=_MASKED, delta=delta)
        self._stale = True
        return back

    def opened_weights(self, other: np.ndarray | None) -> np.ndarray:
        """See `OpensWeights.opened_weights`."""
        share = self._after_setup.share
        if other is None:
            raise ProtocolError("a sealed cut's weights are shares, and the active party's share is missing")
        whole = share.ring.to_signed(share.ring.reduce(share.values + other))
        return np.asarray(whole.astype(np.float64) * 2.0**-self._spec.fixed_point.weight_fraction_bits)

    def snapshot(self) -> object:
        """See `PassiveCut.snapshot`."""
        return self._after_setup.share.state()

    def restore(self, state: object) -> None:
        """See `PassiveCut.restore`."""
        with count_as_encryption(self._site.clock):
            self._after_setup.share.load(*read_snapshot(state))
        self._stale = True

"""The sealed cut: ``z = Σ_p a_p W_p`` with weights that nobody holds, following BlindFL (Fu et al., SIGMOD 2022, arXiv
2206.07975) with secret shares ``W_p = U_p + V_p``: the active party holds V_p, passive party p holds U_p.

Forward: A sends ``[[V_p]]``; p returns ``[[a_p (V_p + U_p) + Z_p]]``, re-randomised, with masks Z_p that are uniform
modulo the Paillier modulus and cancel in the sum; A adds the parties' ciphertexts and decrypts z, once.
Backward: A sends ``[[S]]`` with ``S = η ∂L/∂z``; p returns ``[[a_pᵀS − Φ_p]]``; both step on their share,
``U_p ← U_p − Φ_p`` and ``V_p ← V_p − (a_pᵀS − Φ_p)``, exactly, in integers. Then p draws a fresh U_p and sends the
difference, so that shares stay small. A bottom with parameters gets ``S (U_p + V_p)ᵀ`` back through one more masked
round trip.

The algebra is `securevfl_crypto`'s, without input or output; this file moves it over links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import securevfl_crypto as crypto
import torch

from securevfl.cut.base import CutSpec, initial_share
from securevfl.cut.handshake import announce, once, receive_widths
from securevfl.cut.integers import fixed_activations, fixed_weights, input_gradient, scaled_gradient, to_float
from securevfl.cut.masking import agree_masks
from securevfl.errors import PolicyError, ProtocolError, RangeError
from securevfl.party import Site
from securevfl.privacy import Clock
from securevfl.transport import Array, Guard, Kind

__all__ = ["SealedActive", "SealedPassive"]

_SIGMA = 40
_MASKED = Guard("masked", _SIGMA)


@contextmanager
def _working(clock: Clock) -> Iterator[None]:
    """Count as homomorphic encryption, and turn the cryptography's errors into the toolkit's."""
    with clock.he():
        try:
            yield
        except crypto.OverflowRefused as error:
            raise RangeError(str(error)) from error
        except crypto.CryptoError as error:
            raise ProtocolError(str(error)) from error


def _ranges(spec: CutSpec, width: int) -> crypto.SealedRange:
    point = spec.fixed_point
    return crypto.SealedRange(
        batch=spec.batch_size,
        width_in=width,
        width_out=spec.width,
        fx=point.fx,
        fs=point.fs,
        x_int_bits=point.x_int_bits,
        s_bits=point.s_bits,
        sigma=_SIGMA,
    )


def _bytes(array: Array) -> np.ndarray:
    """A received array as numpy, whatever it came as."""
    return np.asarray(array)


@dataclass
class _Peer:
    """What the active party keeps of one passive party."""

    owner: crypto.SealedOwner
    share: np.ndarray
    trainable: bool


class SealedActive:
    """The active party's side: it owns the key and a share V_p of each passive party's weights."""

    protection = "paillier"

    def __init__(self, site: Site, spec: CutSpec, *, bits: int, noise: float = 0.0) -> None:
        self._site = site
        self._spec = spec
        self._bits = bits
        self._noise = noise
        self._peers: dict[str, _Peer] = {}
        self._changed = True
        self._guard = Guard()
        self.widths: dict[str, int] = {}

    async def setup(self) -> None:
        site, spec = self._site, self._spec
        widths = await receive_widths(site, spec, self.protection)
        self.widths = {name: width for name, (width, _) in widths.items()}
        with _working(site.clock):
            key = crypto.generate_keypair(self._bits)
        public = np.frombuffer(key.public.to_bytes(), dtype=np.uint8)
        self._guard = Guard("paillier", key.public.bits, key.public.fingerprint, self._noise)
        for name, (width, trainable) in widths.items():
            site.links[name].send(Kind.PUBLIC_KEY, "cut/public key", key=public)
            share = fixed_weights(initial_share(site.private_seed, name, width, spec.width), spec.fixed_point)
            with _working(site.clock):
                owner = crypto.SealedOwner(key, _ranges(spec, width))
            self._peers[name] = _Peer(owner, share, trainable)

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        if self._changed:
            for name, peer in self._peers.items():
                with _working(self._site.clock):
                    sealed = peer.owner.seal_weights(peer.share)
                self._site.links[name].send(Kind.CIPHERTEXT, "cut/weights", guard=self._key_guard, c=sealed)
            self._changed = False
        arrays = []
        for name in self._peers:
            message = await self._site.links[name].receive(Kind.CIPHERTEXT, "cut/forward", "c")
            arrays.append(_bytes(message.arrays["c"]))
        point, device = self._spec.fixed_point, self._spec.device
        owners = [peer.owner for peer in self._peers.values()]
        if self._spec.reduce == "none":
            with _working(self._site.clock):
                parts = [owner.open_forward([c], rows) for owner, c in zip(owners, arrays, strict=True)]
            return torch.stack([to_float(part, point.fz, device) for part in parts])
        with _working(self._site.clock):
            z = owners[0].open_forward(arrays, rows)
        return to_float(z, point.fz, device)

    @property
    def _key_guard(self) -> Guard:
        return Guard(self._guard.cipher, self._guard.bits, self._guard.key)

    async def backward(self, gradient: torch.Tensor) -> None:
        steps = self._steps(gradient)
        sealed: np.ndarray | None = None
        for name, peer in self._peers.items():
            if sealed is None or self._spec.reduce == "none":
                with _working(self._site.clock):
                    sealed = peer.owner.seal_gradient(steps[name])
            self._site.links[name].send(Kind.CIPHERTEXT, "cut/backward", guard=self._guard, c=sealed)
        if any(peer.trainable for peer in self._peers.values()):
            await self._input_gradients(steps)
        for name, peer in self._peers.items():
            link = self._site.links[name]
            message = await link.receive(Kind.CIPHERTEXT, "cut/weight gradient", "c")
            change = await link.receive(Kind.MASKED_SHARE, "cut/reshare", "delta")
            with _working(self._site.clock):
                mine = peer.owner.open_weight_gradient(_bytes(message.arrays["c"]))
                width = peer.owner.ranges.share_bytes
                delta = crypto.bigints_from_bytes(_bytes(change.arrays["delta"]), peer.share.shape, width)
                peer.share = peer.share - mine + delta
        self._changed = True

    def _steps(self, gradient: torch.Tensor) -> dict[str, np.ndarray]:
        """S for each passive party: the same for all where z is their sum."""
        point = self._spec.fixed_point
        if self._spec.reduce == "none":
            return {name: scaled_gradient(gradient[i], point) for i, name in enumerate(self._peers)}
        return dict.fromkeys(self._peers, scaled_gradient(gradient, point))

    async def _input_gradients(self, steps: Mapping[str, np.ndarray]) -> None:
        """Help the parties with trainable bottoms to their S Wᵀ; before any share changes."""
        waiting = {name: peer for name, peer in self._peers.items() if peer.trainable}
        sealed: np.ndarray | None = None
        for name, peer in waiting.items():
            if sealed is None or self._spec.reduce == "none":
                with _working(self._site.clock):
                    sealed = peer.owner.seal_gradient_by_sample(steps[name])
            self._site.links[name].send(Kind.CIPHERTEXT, "cut/gradient by sample", guard=self._guard, c=sealed)
        for name, peer in waiting.items():
            link = self._site.links[name]
            message = await link.receive(Kind.CIPHERTEXT, "cut/input gradient", "c")
            with _working(self._site.clock):
                masked = peer.owner.open_input_gradient(_bytes(message.arrays["c"]), steps[name], peer.share)
            link.send(Kind.MASKED_SHARE, "cut/input gradient share", guard=_MASKED, masked=masked)

    def snapshot(self) -> object:
        return {name: peer.share for name, peer in self._peers.items()}

    def restore(self, state: object) -> None:
        if not isinstance(state, dict):
            raise TypeError("not a snapshot of this cut")
        for name, share in state.items():
            self._peers[name].share = share
        self._changed = True


class SealedPassive:
    """A passive party's side: it holds a share U_p of its weights and never sees a gradient in the clear."""

    protection = "paillier"

    def __init__(self, site: Site, spec: CutSpec, *, bits: int, noise: float = 0.0) -> None:
        self._site = site
        self._link = site.links[site.active]
        self._spec = spec
        self._bits = bits
        self._noise = noise
        self._trainable = False
        self._guard = Guard()
        self._holder: crypto.SealedHolder | None = None
        self._share = np.empty((0, 0), dtype=object)
        self._sealed = np.empty((0, 0), dtype=np.uint8)
        self._stale = True
        self._fed: np.ndarray | None = None

    async def setup(self, width: int, *, trainable: bool) -> None:
        site, spec = self._site, self._spec
        self._trainable = trainable
        announce(site, spec, self.protection, width, trainable)
        pairs = await agree_masks(site, site.passive, "securevfl cut masks v1") if spec.reduce == "sum" else []
        message = await self._link.receive(Kind.PUBLIC_KEY, "cut/public key", "key")
        with _working(site.clock):
            key = crypto.PaillierPublicKey.from_bytes(_bytes(message.arrays["key"]).tobytes())
            self._holder = crypto.SealedHolder(key, _ranges(spec, width), crypto.ZeroShares(pairs))
        if key.bits < self._bits:
            raise PolicyError(
                f"{site.active!r} sent a Paillier key of {key.bits} bits; the job demands {self._bits}: nothing "
                "was encrypted"
            )
        self._guard = Guard("paillier", key.bits, key.fingerprint, self._noise)
        self._share = fixed_weights(initial_share(site.private_seed, site.name, width, spec.width), spec.fixed_point)

    @property
    def _ready(self) -> crypto.SealedHolder:
        if self._holder is None:
            raise ProtocolError("the cut was used before its setup")
        return self._holder

    async def forward(self, activations: torch.Tensor, *, train: bool) -> None:
        x = fixed_activations(activations, self._spec.fixed_point)
        if self._stale:
            message = await self._link.receive(Kind.CIPHERTEXT, "cut/weights", "c")
            self._sealed = _bytes(message.arrays["c"])
            self._stale = False
        with _working(self._site.clock):
            sealed = self._ready.forward(self._sealed, x, self._share)
        self._fed = x if train else None
        self._link.send(Kind.CIPHERTEXT, "cut/forward", guard=self._guard, c=sealed)

    async def backward(self) -> torch.Tensor | None:
        holder, link, clock = self._ready, self._link, self._site.clock
        message = await link.receive(Kind.CIPHERTEXT, "cut/backward", "c")
        x, self._fed = once(self._fed), None
        back = await self._input_gradient(holder, len(x)) if self._trainable else None
        with _working(clock):
            sealed, phi = holder.weight_gradient(_bytes(message.arrays["c"]), x)
            stepped = self._share - phi
            self._share = holder.fresh_share()
            delta = crypto.bigints_to_bytes(stepped - self._share, holder.ranges.share_bytes)
        key_guard = Guard(self._guard.cipher, self._guard.bits, self._guard.key)
        link.send(Kind.CIPHERTEXT, "cut/weight gradient", guard=key_guard, c=sealed)
        link.send(Kind.MASKED_SHARE, "cut/reshare", guard=_MASKED, delta=delta)
        self._stale = True
        return back

    async def _input_gradient(self, holder: crypto.SealedHolder, rows: int) -> torch.Tensor:
        """∂L/∂a from the masked round trip."""
        message = await self._link.receive(Kind.CIPHERTEXT, "cut/gradient by sample", "c")
        with _working(self._site.clock):
            sealed, masks = holder.input_gradient(_bytes(message.arrays["c"]), self._share, rows)
        guard = Guard(self._guard.cipher, self._guard.bits, self._guard.key)
        self._link.send(Kind.CIPHERTEXT, "cut/input gradient", guard=guard, c=sealed)
        answer = await self._link.receive(Kind.MASKED_SHARE, "cut/input gradient share", "masked")
        with _working(self._site.clock):
            product = holder.unmask_input_gradient(_bytes(answer.arrays["masked"]), masks, rows)
        return input_gradient(product, self._spec.fixed_point).to(self._spec.device)

    def snapshot(self) -> object:
        return self._share

    def restore(self, state: object) -> None:
        self._share = np.asarray(state, dtype=object)
        self._stale = True

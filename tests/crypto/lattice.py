"""What the tests of BFV and CKKS share: the owner's view of a message, and keys whose secrets are known."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from securevfl_crypto.block import Block
from securevfl_crypto.rlwe import BFV, CKKS, RlweSecretKey
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.envelopes import Content, Envelope
from securevfl_crypto.rlwe.owner import times_secret
from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.plan import Demand
from securevfl_crypto.rlwe.residues import Basis
from securevfl_crypto.rlwe.seal import SealContext, seal_context
from securevfl_crypto.rlwe.tiling import CHECKS, Tiling
from securevfl_crypto.scheme import SecretKey

__all__ = ["centred", "known_key", "phase", "product_view"]


def product_view(key: SecretKey, message: np.ndarray) -> list[float]:
    """What the owner decrypts of one product, each number scaled to [0, 1) by its modulus."""
    assert isinstance(key, RlweSecretKey)
    scheme = {s.number: s for s in (BFV(), CKKS())}[key.public.scheme]
    kind, chain = int(message[0, 6]), int(message[0, 7])
    *tile, rows, count = struct.unpack("<5I", message[0, 16:36].tobytes())
    assert kind == Content.PRODUCT
    tiling, own = Tiling(*tile), seal_context(key.public.chains[chain])
    width = sum(key.public.chains[chain].widths[:-1])
    outputs = ((message.size - 36) // width - count * (DEGREE + CHECKS)) // rows
    downs = [min(tiling.rows, rows - start) for start in range(0, rows, tiling.rows)]
    outs = [min(tiling.outputs, outputs - start) for start in range(0, outputs, tiling.outputs)]
    places = [tiling.product_places(down, out) for down in downs for out in outs]
    envelope = Envelope(Content.PRODUCT, scheme.number, chain, key.public.tag, tiling, rows, own)
    encoding = _encoding(scheme, chain)
    seen: list[float] = []
    for (first, second), place in zip(
        envelope.read_answers(message, [len(p.index) + CHECKS for p in places]), places, strict=True
    ):
        found = own.kept.add(first[:, :-CHECKS], times_secret(own, key.openers[chain], [second])[0][:, place.index])
        numbers = encoding.to_numbers(encoding.lower_phases(own.kept.negate(found, place.negative)))
        seen += [float(number) / encoding.modulus for number in numbers]
    return seen


def _encoding(scheme: RlweScheme, chain: int) -> Encoding:
    """The scheme's encoding of products on its first chain."""
    block = Block(batch=2, width_in=1, width_out=1, x_bits=15, s_bits=15, w_bits=30, z_bits=50)
    encoding = scheme.choose_encodings(block, Demand(15, 2, 40), Demand(15, 2, 40))[0]
    assert encoding.noise.chain == scheme.chains[chain]
    return encoding


def known_key(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> tuple[RlweSecretKey, list[np.ndarray]]:
    """A key pair, and for each chain the transformed residues of its secret modulo the data primes."""
    secrets: list[np.ndarray] = []
    read = SealContext.read_plaintext

    def spy(self: SealContext, thing: object, primes: int) -> np.ndarray:
        found = read(self, thing, primes)
        secrets.append(found[:-1])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SealContext, "read_plaintext", spy)
        return scheme.generate_key(), secrets


def phase(own: SealContext, secret: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """``c0 + c1 s`` of a ciphertext of any level, residues (primes, N)."""
    basis = Basis(own.data.primes[: halves.shape[1]])
    ciphertext = own.transform_ciphertext(own.make_ciphertext(np.stack([np.zeros_like(halves[1]), halves[1]])))
    product = own.sum_products([ciphertext], [own.transformed_plaintext(secret[: len(basis.primes)])])
    return basis.add(halves[0], own.read_ciphertext(product)[1])


def centred(basis: Basis, residues: np.ndarray) -> np.ndarray:
    """Integers around zero, an object array."""
    found = basis.to_integers(residues)
    return np.where(found > basis.modulus // 2, found - basis.modulus, found)

"""Small parties and jobs for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.data import Parties, PartyTable
from securevfl.jobs import Job
from securevfl.jobs.simulation import Aligned, align_parties

__all__ = ["aligned", "parties", "small_keys"]


def parties(passive: int = 2, rows: int = 120, seed: int = 0, classes: int = 2, width: int = 3) -> Parties:
    """An active party and some passive ones over mostly the same people; labels depend on all their columns."""
    rng = np.random.default_rng(seed)
    people = [f"p{i:04d}" for i in range(rows)]
    features = rng.normal(size=(passive + 1, rows, width))
    score = features.sum(axis=(0, 2)) + rng.normal(scale=0.3, size=rows)
    label = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)).astype(np.int64)
    tables = []
    for number in range(passive + 1):
        own = rng.permutation(rows)[: round(rows * 0.95)]
        active = number == 0
        tables.append(
            PartyTable(
                name="bank" if active else f"shop{number}",
                ids=[people[i] for i in own],
                columns={f"f{j}": features[number, own, j] for j in range(width)},
                label=label[own] if active else None,
                classes=tuple(range(classes)) if active else (),
            )
        )
    return Parties.of(*tables)


def aligned(people: Parties, job: Job) -> Aligned:
    """The parties' alignment by the real protocol."""
    return align_parties(people, job)


def small_keys(monkeypatch: Any, bits: int = 768) -> None:
    """Let the sealed cut use keys that are far too small, for speed. The protocol is the same; its strength is not."""
    import securevfl_crypto as crypto

    from securevfl.cut import sealed

    real_generate, real_from_bytes = crypto.generate_keypair, crypto.PaillierPublicKey.from_bytes

    def generate(_: int = 0) -> crypto.PaillierPrivateKey:
        return real_generate(bits, unsafe_small_key=True)

    load: Callable[[bytes], crypto.PaillierPublicKey] = lambda data: real_from_bytes(data, unsafe_small_key=True)  # noqa: E731
    monkeypatch.setattr(sealed.crypto, "generate_keypair", generate)
    monkeypatch.setattr(sealed.crypto.PaillierPublicKey, "from_bytes", staticmethod(load))

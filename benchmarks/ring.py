"""The ring of shares on one core: products modulo 2^64, residues, and the comparison's loops, all in one run.

    python -m benchmarks.ring [--quick]

Products beside numpy's ``@`` of uint64 and one float64 product of BLAS of the same shape, which is no exact one. The
comparison of 4,096 values (a hidden layer of 16 for 256 rows) for all three parties, randomness included, on every path
of this machine beside numpy. CPU time; paths take turns, and ratios are medians over pairs of the same turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from securevfl_crypto.engine import PATHS
from securevfl_crypto.engine.cpu import VECTOR_PATHS
from securevfl_crypto.errors import EngineError
from securevfl_crypto.ring import COLUMNS, MODULUS, Stream
from securevfl_crypto.ring.base import RingLoops
from securevfl_crypto.ring.limbs import limb_product
from securevfl_crypto.ring.paths import ring_loops

from benchmarks.common import write

SHAPES = {
    "256 x 32 x 16, a first layer of 256 rows": (256, 32, 16),
    "32 x 256 x 16, its gradient": (32, 256, 16),
    "256 x 16 x 16, a second layer": (256, 16, 16),
    "256 x 16 x 1, an output": (256, 16, 1),
    "128 x 392 x 128, a first layer on half an image": (128, 392, 128),
    "128 x 784 x 128": (128, 784, 128),
    "784 x 128 x 128": (784, 128, 128),
    "512 x 512 x 512": (512, 512, 512),
}
ROWS = 4096


def paths() -> dict[str, RingLoops]:
    """The loops of every compiled path of this machine, and numpy's."""
    found = {}
    for name in (*(path.name for path in VECTOR_PATHS), PATHS[-1]):
        try:
            each = ring_loops(name)
        except EngineError:
            continue
        found[each.name] = each
    return found


def in_turns(works: dict[str, Callable[[], object]], rounds: int, least: float) -> dict[str, list[float]]:
    """CPU seconds of each, round by round; each turn repeats its work for at least `least` seconds."""
    repeats = {}
    for name, work in works.items():
        work()
        start = time.process_time()
        work()
        repeats[name] = max(1, round(least / max(time.process_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                work()
            times[name].append((time.process_time() - start) / repeats[name])
    return times


def figures(times: dict[str, list[float]], against: dict[str, str]) -> dict[str, object]:
    """Milliseconds of each, and for each pair named the median over rounds of its quotient."""
    found: dict[str, object] = {
        "milliseconds": {name: round(1e3 * statistics.median(t), 4) for name, t in times.items()}
    }
    for label, pair in against.items():
        slow, fast = pair.split(" / ")
        found[label] = round(statistics.median(s / f for s, f in zip(times[slow], times[fast], strict=True)), 2)
    return found


def products(all_paths: dict[str, RingLoops], rounds: int, least: float) -> dict[str, object]:
    """Products of all shapes."""
    found: dict[str, object] = {}
    stream, use = Stream.with_fresh_key(), 0
    best = next(iter(all_paths))
    for label, (m, k, n) in SHAPES.items():
        a, b = stream.draw_words(use, (m, k)), stream.draw_words(use + 1, (k, n))
        use += 2
        reals = a.astype(np.float64), b.astype(np.float64)
        right = a @ b
        works: dict[str, Callable[[], object]] = {
            "numpy uint64 @": lambda a=a, b=b: a @ b,  # type: ignore[misc]
            "one dgemm": lambda x=reals: x[0] @ x[1],  # type: ignore[misc]
            "limbs": lambda a=a, b=b: limb_product(a, b),  # type: ignore[misc]
        }
        for name, path in all_paths.items():
            if (path.product(a, b) != right).any():
                raise ValueError(f"{name} computes {label} wrongly")
            if name != "numpy":
                works[name] = lambda a=a, b=b, path=path: path.product(a, b)  # type: ignore[misc]
        fast = best if best in works else "limbs"
        pairs = {
            "numpy uint64 @ / ours": f"numpy uint64 @ / {fast}",
            "limbs / ours": f"limbs / {fast}",
            "ours / one dgemm": f"{fast} / one dgemm",
        }
        found[label] = figures(in_turns(works, rounds, least), pairs)
    return found


class Layer:
    """What three parties compute for one comparison of `ROWS` values on one path."""

    def __init__(self, path: RingLoops) -> None:
        self.path, self.stream, self.use = path, Stream.with_fresh_key(), 0
        self.raw = Stream.with_fresh_key().draw_octets(0, ROWS * COLUMNS // 64 * 84 // 64 * 64)
        self.out = np.empty(len(self.raw), dtype=np.uint8)
        self.bits = self.residues(MODULUS)
        self.words = Stream.with_fresh_key().draw_words(0, ROWS)

    def residues(self, modulus: int) -> np.ndarray:
        """`ROWS` rows, exactly uniform; AES and the dropping of octets together."""
        out = np.empty(ROWS * COLUMNS + len(self.raw), dtype=np.uint8)
        found = 0
        while found < ROWS * COLUMNS:
            self.use += 1
            found += self.path.residues(self.stream.draw_octets(self.use, len(self.raw)), modulus, out[found:])
        return out[: ROWS * COLUMNS].reshape(ROWS, COLUMNS)

    def third(self) -> np.ndarray:
        """P2, ahead: its mask, the shares of its bits."""
        self.use += 1
        return self.path.deal_bits(self.stream.draw_words(self.use, ROWS), self.residues(MODULUS))

    def sender(self, *, first: bool) -> np.ndarray:
        """P0, which also draws its shares of the bits, or P1."""
        bits = self.residues(MODULUS) if first else self.bits
        factors, zeros = self.residues(MODULUS - 1), self.residues(MODULUS)
        self.use += 1
        turns = self.stream.draw_octets(self.use, ROWS)
        return self.path.mask_comparison(self.words, bits, factors, zeros, turns, first=first)

    def all_parties(self) -> np.ndarray:
        """The whole comparison but for the words that are sent."""
        self.third()
        return self.path.count_zeros(self.sender(first=True), self.sender(first=False))


def comparisons(all_paths: dict[str, RingLoops], rounds: int, least: float) -> dict[str, object]:
    """The parts and the whole, on every path."""
    layers = {name: Layer(path) for name, path in all_paths.items()}
    best = next(iter(all_paths))
    parts: dict[str, Callable[[Layer], object]] = {
        "all three parties, randomness included": Layer.all_parties,
        "residues modulo 67, AES-256-CTR included": lambda layer: layer.residues(MODULUS),
        "AES-256-CTR alone, as many octets": lambda layer: Stream.with_fresh_key().draw_octets(0, len(layer.raw)),
        "masked rows of P0": lambda layer: layer.path.mask_comparison(
            layer.words, layer.bits, layer.bits, layer.bits, layer.bits[:, 0].copy(), first=True
        ),
        "masked rows of P1": lambda layer: layer.path.mask_comparison(
            layer.words, layer.bits, layer.bits, layer.bits, layer.bits[:, 0].copy(), first=False
        ),
        "shares of bits": lambda layer: layer.path.deal_bits(layer.words, layer.bits),
        "zeros": lambda layer: layer.path.count_zeros(layer.bits, layer.bits),
    }
    found: dict[str, object] = {}
    for label, part in parts.items():
        works: dict[str, Callable[[], object]] = {
            name: lambda layer=layer, part=part: part(layer)  # type: ignore[misc]
            for name, layer in layers.items()
        }
        found[label] = figures(in_turns(works, rounds, least), {"numpy / ours": f"numpy / {best}"})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    quick = parser.parse_args().quick
    rounds, least = (3, 0.005) if quick else (15, 0.05)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    all_paths = paths()
    content = {
        "cores": 1,
        "paths": list(all_paths),
        "load at the start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "products modulo 2^64": products(all_paths, rounds, least),
        f"comparison of {ROWS} values": comparisons(all_paths, rounds, least),
    }
    write("ring-quick" if quick else "ring", content)


if __name__ == "__main__":
    main()

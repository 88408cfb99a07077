"""The oblivious key-value store: seconds by size, and its failures, counted and against the computed bound.

python -m benchmarks.okvs [--trials 20000]

Three experiments on failures. Singular systems: without dense bits they are frequent enough to be counted; the bound
says E(n) without and 2^-DENSE E(n) with dense columns. Cores: how often peeling gets stuck on more than a fifth of the
keys, at expansions close to the threshold; the probit of that rate is linear in √n (expansion − 1.222), whose slope is
one over the constant of the finite-size scaling, and gives the standard deviations of the margin at 1.3. Largest
cores: the largest that occurred at 1.3 n.
"""

from __future__ import annotations

import argparse
import secrets
import statistics

import numpy as np
from securevfl_crypto.bits import loops
from securevfl_psi import okvs

from benchmarks.common import seconds, write

THRESHOLD = 1.2218
"""Slots a key below which random hypergraphs of three slots have a 2-core: 1 / 0.8185."""


def _random(count: int, width: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(count * width), dtype=np.uint8).reshape(count, width)


def timing(count: int, width: int) -> dict[str, object]:
    keys, values = _random(count, okvs.KEY_BYTES), _random(count, width)
    table = okvs.encode(keys, values)
    if (okvs.decode(table, keys) != values).any():
        raise RuntimeError(f"{count} keys decode to other values than were stored")
    return {
        "keys": count,
        "value_bytes": width,
        "table_bytes_per_key": round(table.slots.size / count, 1),
        "encode_seconds": round(seconds(lambda: okvs.encode(keys, values)), 3),
        "decode_seconds": round(seconds(lambda: okvs.decode(table, keys)), 3),
    }


def singular(count: int, trials: int) -> dict[str, object]:
    """How often rows without dense bits are dependent, and the bound on that."""
    keys, values = _random(count, okvs.KEY_BYTES), _random(count, 8).view(np.uint64)
    rows = okvs._rows

    def sparse(*args: object) -> tuple[np.ndarray, np.ndarray]:
        places, bits = rows(*args)  # type: ignore[arg-type]
        return places, np.zeros_like(bits)

    okvs._rows = sparse  # type: ignore[assignment]
    failed = sum(okvs._solve(keys, values, secrets.token_bytes(okvs.SEED_BYTES)) is None for _ in range(trials))
    okvs._rows = rows
    return {
        "keys": count,
        "trials": trials,
        "rate_without_dense_columns": failed / trials,
        "bound_without_dense_columns": 2 ** (okvs.failure_exponent(count) + okvs.DENSE),
        "log2_bound": round(okvs.failure_exponent(count), 2),
    }


def cores(count: int, expansion: float, trials: int) -> dict[str, object]:
    """How often more than a fifth of the keys is left after peeling; and the largest core otherwise."""
    segment = round(expansion * count / 3)
    sizes = []
    for _ in range(trials):
        rows, _ = okvs._rows(_random(count, okvs.KEY_BYTES), secrets.token_bytes(okvs.SEED_BYTES), segment)
        sizes.append(len(loops().peel(rows, 3 * segment).core))
    stuck = sum(size > count / 5 for size in sizes)
    figures: dict[str, object] = {
        "keys": count,
        "expansion": expansion,
        "trials": trials,
        "stuck": stuck,
        "largest_other_core": max((size for size in sizes if size <= count / 5), default=0),
    }
    if 5 <= stuck <= trials - 5:
        deviations = -statistics.NormalDist().inv_cdf(stuck / trials)
        figures["standard_deviations"] = round(deviations, 2)
    return figures


def scaling(points: list[dict[str, object]]) -> dict[str, object]:
    """Probits against √n (expansion − threshold): slope and offset by least squares, and what they say for 1.3."""
    used = [p for p in points if "standard_deviations" in p]
    x = np.array([float(p["keys"]) ** 0.5 * (float(p["expansion"]) - THRESHOLD) for p in used])  # type: ignore[arg-type]
    y = np.array([p["standard_deviations"] for p in used], dtype=float)
    slope, offset = np.polyfit(x, y, 1)
    margin = (okvs.MAX_CORE**0.5) * (1.3 - THRESHOLD)
    return {
        "slope": round(float(slope), 3),
        "offset": round(float(offset), 3),
        "standard_deviations_at_max_core_keys": round(float(slope * margin + offset), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000, help="systems of the smallest size")
    trials = parser.parse_args().trials
    near = [
        cores(count, expansion, max(trials // 20, 200) * 2048 // count)
        for count in (2048, 8192)
        for expansion in (1.19, 1.20, 1.21, 1.215, 1.22, 1.23, 1.24)
    ]
    write(
        "okvs",
        {
            "seconds": [timing(1 << 16, 16), timing(1 << 20, 16), timing(1 << 20, 8)],
            "singular": [singular(count, trials) for count in (8, 53, 200)],
            "near_the_threshold": near,
            "finite_size_scaling": scaling(near),
            "at_1.3": [cores(count, 1.3, trials * 256 // count) for count in (4096, 16384)],
        },
    )


if __name__ == "__main__":
    main()

"""Products x R and xᵀ R' that stay shares between two parties: by SEAL, by transforms in numpy, by the kernels.

    python -m benchmarks.held [--quick]

One holder's product and gradient of a batch, with all that both parties compute: sealing, answering, opening. E columns
at once serve E epochs, so figures are divided by E. *SEAL* are the cut's halves of BFV with masks of words, as a pair
of parties would have used them: a flood hides statistically what masks over all of Z_q hide perfectly. CPU time of one
core; ways take turns, and of each figure the least counts, because other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from securevfl_crypto import BFV, Block, ZeroShares
from securevfl_crypto.inspection import inspect_engine
from securevfl_crypto.rlwe.held import HeldHolder, HeldOwner
from securevfl_crypto.rlwe.held_layout import BASIS, DEGREE
from securevfl_crypto.rlwe.tiling import CHECKS
from securevfl_crypto.transforms import TransformRing, transform_loops

from benchmarks.common import write

ROWS, COLUMNS = 256, 16
Step = Callable[[np.ndarray], int]


def _words(*shape: int) -> np.ndarray:
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)


def _check(found: np.ndarray, expected: np.ndarray) -> None:
    if np.abs((found - expected).view(np.int64)).max() > 1:
        raise ValueError("shares do not add up")


def by_seal(epochs: int) -> Step:
    """The cut's halves; a step returns the bytes sent."""
    block = Block(batch=ROWS, width_in=COLUMNS, width_out=epochs, x_bits=13, s_bits=30, w_bits=40, z_bits=60)
    scheme = BFV()
    key = scheme.generate_key()
    owner = scheme.create_owner(key, block)
    holder = scheme.create_holder(scheme.read_public(key.public.to_bytes()), block, ZeroShares([]))
    weights, steps = _words(COLUMNS, epochs), _words(ROWS, epochs)
    masks = _words(ROWS, epochs), _words(COLUMNS, epochs)
    checks = np.zeros((holder._answer_count(ROWS), CHECKS), dtype=np.uint64)

    def step(x: np.ndarray) -> int:
        sealed = owner.sealed_weights(weights)
        answer = holder.product_of(sealed, x, masks[0], checks)
        _check(owner.opened_product([answer], ROWS).view(np.uint64), x.view(np.uint64) @ weights + masks[0])
        sent = sealed.nbytes + answer.nbytes
        sealed = owner.sealed_steps(steps)
        answer = holder.gradient_of(sealed, x, masks[1])
        opened = np.array(owner.opened_gradient(answer, COLUMNS) % (1 << 64), dtype=np.uint64)
        _check(opened, np.ascontiguousarray(x.T).view(np.uint64) @ steps + masks[1])
        return int(sent + sealed.nbytes + answer.nbytes)

    return step


def by_transforms(epochs: int, path: str) -> Step:
    """The halves of `securevfl_crypto.rlwe.held`; a step returns the bytes sent."""
    session, ring = os.urandom(32), TransformRing(BASIS.primes, DEGREE, transform_loops(path))
    owner = HeldOwner(ROWS, COLUMNS, epochs, session=session, ring=ring)
    holder = HeldHolder(ROWS, COLUMNS, epochs, session=session, public_key=owner.public_key, ring=ring)
    weights, steps = _words(COLUMNS, epochs), _words(ROWS, epochs)

    def step(x: np.ndarray) -> int:
        sealed = owner.seal_weights(weights)
        answer, share = holder.answer_product(sealed, x)
        _check(owner.open_product(answer) + share, x.view(np.uint64) @ weights)
        sent = sealed.nbytes + answer.nbytes
        sealed = owner.seal_steps(steps)
        answer, share = holder.answer_gradient(sealed, x)
        _check(owner.open_gradient(answer) + share, np.ascontiguousarray(x.T).view(np.uint64) @ steps)
        return int(sent + sealed.nbytes + answer.nbytes)

    return step


def measure(epochs: int, turns: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds and bytes a step and holder, by the way."""
    fastest = transform_loops().name
    steps = {"SEAL": by_seal(epochs), "numpy": by_transforms(epochs, "cryptography")}
    if fastest != "numpy":
        steps[fastest] = by_transforms(epochs, fastest)
    least, sent = dict.fromkeys(steps, float("inf")), dict.fromkeys(steps, 0)
    for turn in range(turns):
        x = np.random.default_rng(turn).integers(-4096, 4097, (ROWS, COLUMNS))
        for name, step in steps.items():
            start = time.process_time()
            sent[name] = step(x)
            least[name] = min(least[name], time.process_time() - start)
    return {name: {"ms": round(least[name] * 1e3 / epochs, 2), "bytes": sent[name] // epochs} for name in steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns")
    quick = parser.parse_args().quick
    content = {
        "rows": ROWS,
        "columns": COLUMNS,
        "cpu class": dict(inspect_engine())["CPU class"],
        "load at the start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "a step and holder, by epochs at once": {
            str(epochs): measure(epochs, 3 if quick else 30) for epochs in ((8,) if quick else (1, 8, 32))
        },
    }
    write("held-quick" if quick else "held", content)


if __name__ == "__main__":
    main()

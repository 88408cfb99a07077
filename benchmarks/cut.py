"""One sealed step under each scheme, all parties on one core, against python-paillier value by value and TenSEAL's
row-packed ``matmul`` in the same run.

    python -m benchmarks.cut [--bits 2048] [--quick]

B = 256 rows, d = 32 columns, a cut of h = 16, forward and backward, identity bottom; then the same with other B, d, h,
two and four parties, momentum, and a trainable bottom. Times are CPU time. The peers are timed on slices and
extrapolated to the operations that the same step takes, which the result says: a whole step value by value takes
minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import securevfl_crypto as crypto

from benchmarks import skip
from benchmarks.common import cpu_seconds, write

phe = skip.needed("phe", "cut")

FX, FS = 12, 23


@dataclass(frozen=True)
class Shape:
    """Of a step: rows, columns of each party, width of the cut, and what the bottom and the optimiser are."""

    rows: int = 256
    columns: int = 32
    width: int = 16
    parties: int = 1
    momentum: bool = False
    trainable: bool = False

    @property
    def label(self) -> str:
        text = f"B={self.rows} d={self.columns} h={self.width} parties={self.parties}"
        return text + " momentum" * self.momentum + " trainable bottom" * self.trainable

    def block(self) -> crypto.Block:
        return crypto.Block(
            batch=self.rows,
            width_in=self.columns,
            width_out=self.width,
            x_bits=FX + 3,
            s_bits=19,
            w_bits=FX + FS + 4,
            z_bits=2 * FX + FS + 10,
            integer_shares=self.momentum,
            widest=self.columns,
        )

    def back(self) -> crypto.Block:
        return replace(
            self.block(), width_in=self.width, width_out=self.columns, x_bits=19, s_bits=1, z_bits=19 + 39, widest=0
        )


class Stopwatch:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.phases[phase] = self.phases.get(phase, 0.0) + time.process_time() - start


class Step:
    """All parties of one step, in one process."""

    def __init__(self, scheme: crypto.Scheme, shape: Shape) -> None:
        rng = np.random.default_rng(0)
        self.shape, block = shape, shape.block()
        key = scheme.generate_key()
        public = scheme.read_public(key.public.to_bytes())
        pairs = [[crypto.PairwiseMasks(bytes(32), positive=i < j) for j in range(shape.parties) if j != i]
                 for i in range(shape.parties)]  # fmt: skip
        self.owners = [scheme.create_owner(key, block) for _ in pairs]
        self.holders = [scheme.create_holder(public, block, crypto.ZeroShares(masks)) for masks in pairs]
        self.xs = [rng.integers(-(2**13), 2**13, size=(shape.rows, shape.columns)) for _ in pairs]
        self.steps = rng.integers(-(2**12), 2**12, size=(shape.rows, shape.width))
        self.weights = [rng.integers(-(2**34), 2**34, size=(shape.columns, shape.width)).astype(object) for _ in pairs]
        rule = crypto.OptimiserRule(momentum=0.9 if shape.momentum else 0.0)
        self.mine, self.theirs = [], []
        for holder, weights in zip(self.holders, self.weights, strict=True):
            share = holder.fresh_share()
            self.mine.append(crypto.WeightShare(holder.ring, share, rule))
            self.theirs.append(crypto.WeightShare(holder.ring, weights - share, rule))
        self.back: list[tuple[crypto.Owner, crypto.Holder]] = []
        for _ in pairs if shape.trainable else ():
            own = scheme.generate_key()
            read = scheme.read_public(own.public.to_bytes())
            self.back.append(
                (
                    scheme.create_owner(own, shape.back()),
                    scheme.create_holder(read, shape.back(), crypto.ZeroShares([])),
                )
            )

    def run(self) -> tuple[dict[str, float], int, int]:
        """Seconds by phase, and bytes from and to the active party."""
        watch, down, up = Stopwatch(), 0, 0
        with watch("active encrypts"):
            sealed = [owner.seal_weights(v.values) for owner, v in zip(self.owners, self.theirs, strict=True)]
        with watch("passive computes"):
            sent = [
                holder.answer_product(c, x, u.values)
                for holder, c, x, u in zip(self.holders, sealed, self.xs, self.mine, strict=True)
            ]
        with watch("active decrypts"):
            z = self.owners[0].open_product(sent, self.shape.rows)
        with watch("active encrypts"):
            steps = self.owners[0].seal_steps(self.steps)
        down += sum(c.nbytes for c in sealed) + steps.nbytes * self.shape.parties
        up += sum(c.nbytes for c in sent)
        for i, (owner, holder) in enumerate(self.back):
            with watch("trainable bottom"):
                c = owner.seal_weights(self.mine[i].values.T)
                answer = holder.answer_product(c, self.steps, self.theirs[i].values.T)
                owner.open_product([answer], self.shape.rows)
            up, down = up + c.nbytes, down + answer.nbytes
        for i, holder in enumerate(self.holders):
            with watch("passive computes"):
                masked, phi = holder.answer_gradient(steps, self.xs[i])
                self.mine[i].step(phi)
                change = self.mine[i].replace(holder.fresh_share()) if holder.ring.modulus is None else None
            with watch("active decrypts"):
                self.theirs[i].step(self.owners[i].open_gradient(masked))
                if change is not None:
                    self.theirs[i].add(change)
            up += masked.nbytes + (0 if change is None else change.size * holder.block.share_bytes)
        exact = sum(x.astype(object) @ w for x, w in zip(self.xs, self.weights, strict=True))
        error = max(abs(int(a) - int(b)) for a, b in zip(np.asarray(z).ravel(), exact.ravel(), strict=True))
        if error > self.owners[0].product_error * self.shape.parties:
            raise ValueError(f"z is wrong by {error}")
        self.weights = [
            np.asarray(u.ring.to_signed(u.ring.reduce(u.values + v.values)), dtype=object)
            for u, v in zip(self.mine, self.theirs, strict=True)
        ]
        return watch.phases, down, up


def measure(scheme: crypto.Scheme, shape: Shape, repeat: int = 5) -> dict[str, object]:
    """Medians over some steps after one that warms tables."""
    step = Step(scheme, shape)
    step.run()
    runs = [step.run() for _ in range(repeat)]
    phases = {name: statistics.median(run[0][name] for run in runs) for name in runs[0][0]}
    whole = statistics.median(sum(run[0].values()) for run in runs)
    return {
        "seconds": whole,
        "phases": phases,
        "MB from the active party": runs[0][1] / 1e6,
        "MB to the active party": runs[0][2] / 1e6,
    }


def value_by_value(bits: int, shape: Shape) -> dict[str, float]:
    """Seconds that python-paillier needs for the same step, one ciphertext a value, from timed slices."""
    public, secret = phe.generate_paillier_keypair(n_length=bits)
    rng = np.random.default_rng(0)
    some = [public.encrypt(float(v)) for v in rng.normal(size=16)]
    scalars = [float(v) for v in rng.normal(size=16)]

    def dot() -> object:
        total = some[0] * scalars[0]
        for c, x in zip(some[1:], scalars[1:], strict=True):
            total = total + c * x
        return total

    values, products = shape.columns * shape.width, shape.rows * shape.columns * shape.width
    results = (shape.rows + shape.columns) * shape.width
    encrypt, term = cpu_seconds(lambda: public.encrypt(1.5)), cpu_seconds(dot) / 16
    decrypt = cpu_seconds(lambda: secret.decrypt(some[3]))
    return {
        "active encrypts": encrypt * (values + shape.rows * shape.width),
        "passive computes": 2 * products * term + results * encrypt,  # results are masked with fresh encryptions
        "active decrypts": results * decrypt,
    }


def row_packed(shape: Shape) -> dict[str, float]:
    """Seconds of the same step with TenSEAL's CKKS vectors and ``matmul``, from timed slices; the cheaper of its two
    ways to multiply forward."""
    import tenseal

    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1)
    context.global_scale = 2**40
    context.generate_galois_keys()
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(shape.rows, shape.columns)), rng.normal(size=(shape.columns, shape.width))
    g = rng.normal(size=(shape.rows, shape.width))
    column = tenseal.ckks_vector(context, w[:, 0].tolist())
    steps = tenseal.ckks_vector(context, g[:, 0].tolist())
    row = tenseal.ckks_vector(context, x[0].tolist())
    by_column = shape.width * cpu_seconds(lambda: column.matmul(x.T.tolist()))
    by_row = shape.rows * cpu_seconds(lambda: row.matmul(w.tolist()))
    answer = steps.matmul(x.tolist())
    encrypt = cpu_seconds(lambda: tenseal.ckks_vector(context, g[:, 0].tolist()))
    return {
        "active encrypts": 2 * shape.width * encrypt,
        "passive computes": min(by_column, by_row) + shape.width * cpu_seconds(lambda: steps.matmul(x.tolist())),
        "active decrypts": 2 * shape.width * cpu_seconds(answer.decrypt),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=2048, help="size of the Paillier key")
    parser.add_argument("--quick", action="store_true", help="only the first shape")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["SECUREVFL_THREADS"] = "1"
    warnings.simplefilter("ignore")
    schemes = {
        f"Paillier {options.bits}": crypto.Paillier(bits=options.bits),
        "BFV": crypto.BFV(),
        "CKKS": crypto.CKKS(),
    }
    first = Shape()
    shapes = [
        first,
        *(replace(first, rows=n) for n in (64, 1024)),
        *(replace(first, columns=n) for n in (8, 128)),
        *(replace(first, width=n) for n in (4, 64)),
        *(replace(first, parties=n) for n in (2, 4)),
        replace(first, momentum=True),
        replace(first, trainable=True),
    ]
    ours = {
        shape.label: {name: measure(scheme, shape) for name, scheme in schemes.items()}
        for shape in (shapes[:1] if options.quick else shapes)
    }
    peers = {
        f"python-paillier {options.bits}, value by value (extrapolated)": value_by_value(options.bits, first),
        "TenSEAL, row-packed matmul (extrapolated)": row_packed(first),
    }
    write(
        f"cut-{options.bits}",
        {
            "cores": 1,
            "steps": ours,
            "peers, seconds": peers,
            "peers, seconds in all": {name: sum(phases.values()) for name, phases in peers.items()},
            "ratios": {
                name: {peer: sum(p.values()) / float(str(found["seconds"])) for peer, p in peers.items()}
                for name, found in ours[first.label].items()
            },
        },
    )


if __name__ == "__main__":
    main()

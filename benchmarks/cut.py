"""One sealed step, all parties on one core, against python-paillier value by value in the same run.

    python -m benchmarks.cut [--bits 2048]

B = 256 rows, h = 16, two passive parties with 6 and 12 columns (the credit table's), identity bottoms: forward and
backward. python-paillier is timed on a slice (encryptions, additions, products, decryptions) and extrapolated to
the number of operations that the same step needs when each value is a ciphertext of its own.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
import phe
import securevfl_crypto as crypto

from benchmarks.common import seconds, write

BATCH, HEIGHT, WIDTHS = 256, 16, (6, 12)


def sealed(bits: int) -> dict[str, float]:
    """Seconds by phase of one sealed step (tables warm)."""
    rng = np.random.default_rng(0)
    key = crypto.generate_keypair(bits)
    clock: dict[str, float] = {}

    owners, holders, shares_u, shares_v, xs = [], [], [], [], []
    seed = bytes(range(32))
    for i, width in enumerate(WIDTHS):
        ranges = crypto.SealedRange(
            batch=BATCH, width_in=width, width_out=HEIGHT, fx=12, fs=24, x_int_bits=3, s_bits=21
        )
        zero = crypto.ZeroShares([crypto.PairwiseMasks(seed, positive=i == 0)])
        owners.append(crypto.SealedOwner(key, ranges))
        holders.append(crypto.SealedHolder(key.public, ranges, zero))
        shares_u.append(holders[-1].fresh_share())
        shares_v.append(-shares_u[-1])
        xs.append(rng.integers(-(2**14), 2**14, size=(BATCH, width)))
    step = rng.integers(-(2**18), 2**18, size=(BATCH, HEIGHT))

    def phase(name: str, start: float) -> float:
        now = time.perf_counter()
        clock[name] = clock.get(name, 0.0) + now - start
        return now

    for _ in range(2):  # the first fills tables
        clock.clear()
        t = time.perf_counter()
        weights = [owner.seal_weights(v) for owner, v in zip(owners, shares_v, strict=True)]
        t = phase("active encrypts weights", t)
        sent = [h.forward(w, x, u) for h, w, x, u in zip(holders, weights, xs, shares_u, strict=True)]
        t = phase("passive parties compute forward", t)
        owners[0].open_forward(sent, BATCH)
        t = phase("active decrypts z", t)
        gradient = owners[0].seal_gradient(step)
        t = phase("active encrypts gradient", t)
        back = [h.weight_gradient(gradient, x)[0] for h, x in zip(holders, xs, strict=True)]
        t = phase("passive parties compute backward", t)
        for owner, array in zip(owners, back, strict=True):
            owner.open_weight_gradient(array)
        phase("active decrypts gradients", t)
    return dict(clock)


def value_by_value(bits: int) -> dict[str, float]:
    """Seconds that python-paillier needs for the same step, one ciphertext a value, from the price of each
    operation."""
    public, secret = phe.generate_paillier_keypair(n_length=bits)
    some = [public.encrypt(0.25 * i) for i in range(8)]
    price = {
        "encrypt": seconds(lambda: public.encrypt(1.5)),
        "add": seconds(lambda: [a + b for a, b in itertools.pairwise(some)]) / 7,
        "scale": seconds(lambda: [c * -0.7853 for c in some]) / 8,
        "decrypt": seconds(lambda: secret.decrypt(some[3])),
    }
    width = sum(WIDTHS)
    count = {
        "encrypt": width * HEIGHT + BATCH * HEIGHT + BATCH * HEIGHT * len(WIDTHS) + width * HEIGHT,
        "scale": 2 * BATCH * width * HEIGHT,
        "add": 2 * BATCH * width * HEIGHT,
        "decrypt": BATCH * HEIGHT + width * HEIGHT,
    }
    return {name: price[name] * count[name] for name in price}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=2048)
    bits = parser.parse_args().bits
    ours, theirs = sealed(bits), value_by_value(bits)
    write(
        f"cut-{bits}",
        {
            "step": {"rows": BATCH, "h": HEIGHT, "passive widths": WIDTHS, "key bits": bits},
            "sealed cut, seconds": ours,
            "sealed cut, seconds in all": sum(ours.values()),
            "python-paillier value by value, seconds (extrapolated)": theirs,
            "python-paillier value by value, seconds in all (extrapolated)": sum(theirs.values()),
            "ratio": sum(theirs.values()) / sum(ours.values()),
        },
    )


if __name__ == "__main__":
    main()

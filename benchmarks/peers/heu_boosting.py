"""SecretFlow's HEU: the sealed sums of one boosted tree, nodes shown. Prints a line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/heu_boosting.py WORK.npz [--schemes ZPaillier OU] [--bits 2048]

WORK.npz is what `benchmarks.sealed_boosting` writes: gradients int (rows, 2), nodes int (levels, rows) with −1 where a
row is not asked for, codes uint8 (rows, columns), and bins (columns,). The owner encrypts g and h of a row in one
number, g·2³² + h; `batch_feature_wise_bucket_sum`, which SecretFlow's boosting calls, adds up the bins of all nodes of
a level; the owner decrypts every sum. All sums are checked. CPU seconds of one process; answers are neither packed nor
blinded.

Schemes: ZPaillier is HEU's fastest Paillier. OU, Okamoto and Uchiyama's, is its fastest scheme; a
modulus p²q of 2048 bits has primes of 683 bits.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time

import numpy as np
from heu import numpy as hnp
from heu import phe

SHIFT = 32


def tree(scheme, bits, work):
    """CPU seconds of the parts of a tree, and whether all sums were right."""
    gradients, codes, bins = work["gradients"], work["codes"], work["bins"]
    kit = hnp.setup(getattr(phe.SchemaType, scheme), bits)
    encryptor, evaluator, decryptor = kit.encryptor(), kit.evaluator(), kit.decryptor()
    encoder = kit.bigint_encoder()
    packed = [[(int(g) << SHIFT) + int(h)] for g, h in gradients]
    order = np.ascontiguousarray(codes.astype(np.int8))
    most = int(bins.max())
    there = [column * most + b for column, count in enumerate(bins) for b in range(int(count))]
    seconds = {}

    def timed(name, call):
        start = time.process_time()
        result = call()
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - start
        return result

    sealed = timed("encrypt", lambda: encryptor.encrypt(hnp.array(packed, encoder)))
    right, opened = True, 0
    for level in work["nodes"]:
        masks = [np.ascontiguousarray((level == node).astype(np.int8)) for node in range(int(level.max()) + 1)]
        sums = timed("sum", lambda m=masks: evaluator.batch_feature_wise_bucket_sum(sealed, m, order, most, False))
        for node, one in enumerate(sums):
            plain = timed("open", lambda o=one: decryptor.decrypt(o[there, :]))
            found = [int(value) for value in np.asarray(plain.to_numpy(encoder)).reshape(-1)]
            opened += len(found)
            right = right and found == wanted(gradients[level == node], codes[level == node], bins)
    return {"CPU seconds": {**seconds, "tree": sum(seconds.values())}, "sums": opened, "right": right}


def wanted(gradients, codes, bins):
    """The sums of a node, packed, by column and bin."""
    found = []
    for column, count in zip(codes.T, bins, strict=True):
        sums = np.zeros((int(count), 2), np.int64)
        np.add.at(sums, column, gradients)
        found += [(int(g) << SHIFT) + int(h) for g, h in sums]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--schemes", nargs="+", default=["ZPaillier", "OU"])
    parser.add_argument("--bits", type=int, default=2048)
    given = parser.parse_args()
    with np.load(given.work, allow_pickle=False) as file:
        work = {name: file[name] for name in file.files}
    found = {scheme: tree(scheme, given.bits, work) for scheme in given.schemes}
    print(json.dumps({"version": importlib.metadata.version("sf_heu"), "seconds": 0.0, "schemes": found}))


if __name__ == "__main__":
    main()

"""The same job with and without encryption: what it costs, and that the model is the same.

python examples/with_and_without_encryption.py [--rows 1500] [--bits 2048]
"""

import argparse

import securevfl as sv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=1_500, help="clients of the credit table")
parser.add_argument("--bits", type=int, default=2048, help="size of the Paillier key")
parser.add_argument("--out", default="runs/with-and-without", help="where the report goes")
options = parser.parse_args()

# Three organisations hold different columns about mostly the same clients.
parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=options.rows)
print(parties)

# One job, three ways: floats, the sealed cut's integers without encryption, and sealed.
job = sv.Job(
    protection=sv.Plain(), algorithm=sv.SplitNN(hidden=16, lr=0.005, cut_lr=0.5), epochs=2, batch_size=128, seed=0
)
result = sv.compare(
    {
        "plain": job,
        "fixed": job.replace(protection=sv.Plain(fixed_point=True)),
        "paillier": job.replace(protection=sv.Paillier(bits=options.bits)),
    },
    parties,
    title="The same job with and without encryption",
)
print(result.table())
print(result.receipt("paillier"))

# Sealed training is not close to plain training, it is the same: bit by bit, in the same integers.
if not (result.scores["fixed"] == result.scores["paillier"]).all():
    raise SystemExit("sealed and plain training differ")
print("Sealed and plain scores are equal, bit by bit.")
print("Report:", result.report(options.out))

"""Boosted trees on secret shares and, with the same settings, in plain: how good they are, and what the bank reads.

python examples/boosting_on_shares.py [--rows 1500] [--trees 6]
"""

import argparse

import securevfl as sv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=1_500, help="clients of the credit table")
parser.add_argument("--trees", type=int, default=6, help="rounds of boosting, one tree each")
options = parser.parse_args()

parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=options.rows)
algorithm = sv.Boosting(depth=3, bins=16)

# On shares, few validation rows choose between rounds by chance: both jobs keep the last one.
plain = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=options.trees, keep="last", seed=0)
result = sv.compare(
    {"plain": plain, "shares": plain.replace(protection=sv.Shares())},
    parties,
    title="Boosted trees, in plain and on secret shares",
)
print(result.table())

# The active party of a plain job reads which side of each split a row is on. On shares it gets final predictions.
for key in ("plain", "shares"):
    print(key, "-", "bank reads of network:", result.cards[key].cell("bank", "network").says)

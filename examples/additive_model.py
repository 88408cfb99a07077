"""A model whose points every party can print: an additive model, in plain and on secret shares with a privacy budget.

python examples/additive_model.py [--rows 2000] [--epsilon 8]
"""

import argparse

import securevfl as sv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=2_000, help="clients of the credit table")
parser.add_argument("--epsilon", type=float, default=8.0, help="ε of a client, over all that training shows to anybody")
options = parser.parse_args()

parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=options.rows)

# What moves a shape is public or paid for: ranges and levels come from the meaning of a column, never from its rows.
ranges = {"bank.LIMIT_BAL": (0.0, 1e6), "bank.AGE": (18.0, 100.0)}
ranges |= {f"network.{column}": (-2.0, 9.0) for column in parties["network"].columns}
ranges |= {f"retailer.{column}": (-1e6, 1e6) for column in parties["retailer"].columns}
levels = {"bank.SEX": ("1", "2"), "bank.EDUCATION": ("1", "2", "3", "4"), "bank.MARRIAGE": ("1", "2", "3")}
algorithm = sv.Additive(ranges=ranges, levels=levels, rising=("network.PAY_0",))

plain = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=60, keep="last", seed=0)
noise = sv.DP(model=sv.Gaussian(epsilon=options.epsilon))
result = sv.compare(
    {"plain": plain, "dp": plain.replace(protection=sv.Shares(dp=noise, metrics="none"))},
    parties,
    title="An additive model without and with a privacy budget",
)
print(result.table())
print(*(note for note in result.record.runs[-1].notes if "ε" in note), sep="\n")

# Each party reads the shapes of its own columns, and nobody else's.
part = result.model("dp").part("network")
for shape in part.tree["shape tables"][:2]:
    print(shape["column"], "importance", shape["importance"], "noise alone", shape["noise"])
    for one in shape["bins"]:
        print("  ", one["bin"], one["points"], "points")
network = parties["network"]
for person, reasons in sv.own_reasons(part, network, network.ids[:1]).items():
    print(person, "is lowered by", [(one.column, one.value, round(one.term, 3)) for one in reasons])

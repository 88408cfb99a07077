"""Two tables without a common identifier: link their records by names, then train on what was linked.

python examples/link_records.py [--rows 1500]
"""

import argparse
import secrets

import numpy as np
from securevfl_psi import linkage

import securevfl as sv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=1_500, help="clients of the credit table")
options = parser.parse_args()

# The credit table's clients, with invented names, known to a bank and to a payment network; the network's have errors.
clients = sv.datasets.default_credit(overlap=0.85, seed=0, rows=options.rows)
draw = np.random.default_rng(0)
syllables = ["ma", "ri", "an", "jo", "el", "ka", "tho", "son", "ber", "li", "na", "ter", "vi", "ro", "sch", "mi"]
everyone = sorted({client for table in clients.values() for client in table.ids})
people = {
    client: {
        "first": "".join(draw.choice(syllables, 2)),
        "last": "".join(draw.choice(syllables, 3)),
        "born": f"{draw.integers(1940, 2005)}{draw.integers(1, 13):02d}{draw.integers(1, 29):02d}",
        "town": "".join(draw.choice(syllables, 2)),
    }
    for client in everyone
}


def typo(text: str) -> str:
    at = draw.integers(len(text))
    return text[:at] + str(draw.choice(list("0123456789" if text.isdigit() else "aeinorst"))) + text[at + 1 :]


def records(table: sv.PartyTable, errors: float) -> dict[str, list[str]]:
    spoilt = lambda text: typo(text) if draw.random() < errors else text  # noqa: E731
    return {name: [spoilt(people[client][name]) for client in table.ids] for name in ("first", "last", "born", "town")}


# Both data parties encode by one schema, with a key that the linker does not have.
bank, network = clients["bank"], clients["network"]
schema = linkage.Schema(
    fields=(
        linkage.Field(name="first", kind=linkage.Text()),
        linkage.Field(name="last", kind=linkage.Text()),
        linkage.Field(name="born", kind=linkage.Date()),
        linkage.Field(name="town", kind=linkage.Text()),
    )
)
key = secrets.token_bytes(32)
encoded = [
    linkage.encode_records(records(table, errors), schema, key) for table, errors in ((bank, 0.05), (network, 0.4))
]

# The linker sees encodings only, and answers with random identifiers.
linked = linkage.link_records(*encoded)
print(linked.describe())
pairs = zip(linked.rows_a.tolist(), linked.rows_b.tolist(), strict=True)
right = sum(bank.ids[a] == network.ids[b] for a, b in pairs)
common = len(set(bank.ids) & set(network.ids))
print(f"In truth: precision {right / len(linked):.4f}, recall {right / common:.4f}")


# From here on everything is as with a common identifier.
def take(table: sv.PartyTable, common_ids: linkage.CommonIds) -> sv.PartyTable:
    rows = common_ids.rows
    return sv.PartyTable(
        name=table.name,
        ids=common_ids.ids,
        columns={name: np.asarray(column)[rows] for name, column in table.columns.items()},
        categorical=table.categorical,
        label=None if table.label is None else table.label[rows],
        classes=table.classes,
        label_name=table.label_name,
    )


for_bank, for_network = linked.common_ids()
parties = sv.Parties.of(take(bank, for_bank), take(network, for_network))
result = sv.simulate(
    sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=16), epochs=3, batch_size=128),
    parties,
    baselines=["alone"],
)
print(result.table())

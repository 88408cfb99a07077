"""Seconds of an epoch of two parties on the credit table, between processes over lines of given length; and how near
their logistic regression comes to that of floats.

    python -m benchmarks.two_parties_links [--quick] [--only lines|quality] [--seeds 5]

*Lines*: guest and host, and a helper where there is one, are processes with gates and ledgers, over TLS through lines
that delay each byte and limit the rate each way (`benchmarks.shaping`): a local network (0.1 ms one way, 1 Gbit/s), and
far ones (20 ms one way, 1 Gbit/s and 100 Mbit/s). The first epoch makes the random numbers of the products of up to
eight epochs; those after it make only their waves, and the last one validates. Seconds include ledger and checkpoint.

*Quality*: of FATE's default_credit, 13 and 10 columns, 12,800 rows train eight epochs and 15,000 test. On shares, with
the numbers of a helper and in one process, beside the same steps in floats with the true sigmoid. Seeds choose the rows
and their order.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_crypto.two.correlations import LinearTask
from securevfl_crypto.two.curves import SIGMOID
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import StepRule, TwoLinear, encode_rows
from securevfl_crypto.two.wire import MemoryWires

import securevfl as sv
from benchmarks.common import before, data, write
from benchmarks.shares_latency import train_over_lines

LINES = {"local network": (0.2, 1000.0), "far": (40.0, 1000.0), "far and narrow": (40.0, 100.0)}
"""Round trip in milliseconds, and 10^6 bits a second each way."""
SOURCES = {"pair": sv.Shares(computing=2), "helper": sv.Shares(computing=2, helper="notary")}
BATCH, BATCHES, EPOCHS, RATE = 256, 50, 8, 2.0
TESTED = 15_000


def train_processes(folder: Path, source: str, line: str, epochs: int) -> dict[str, Any]:
    """Train over one line; what an epoch took and what crossed. The last epoch validates."""
    job = sv.Job(
        algorithm=sv.LogisticRegression(),
        protection=SOURCES[source],
        epochs=epochs,
        valid_every=epochs,
        patience=None,
        keep="last",
        batch_size=BATCH,
        seed=3,
    )
    load = os.getloadavg()[0]
    _, runs = train_over_lines(folder, load_credit(), job, *LINES[line])
    own = runs["guest"]
    first, *later, last = (epoch.seconds for epoch in own.epochs)
    return {
        "source": source,
        "line": line,
        "steps": -(-own.rows_trained // BATCH),
        "seconds of an epoch, the shortest": round(min(later), 2),
        "of the first, with products of all": round(first, 2),
        "of the last, with validation": round(last, 2),
        "bytes sent by a party in an epoch": {name: sum(run.epochs[1].bytes.values()) for name, run in runs.items()},
        "exchanges a step": [float(n) for note in own.notes for n in re.findall(r"([\d.]+) rounds a step", note)],
        "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "auc": round(own.test["auc"], 4),
    }


def rank_quality(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve."""
    order = np.empty(len(scores))
    order[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    positive = int(labels.sum())
    area = order[labels == 1].sum() - positive * (positive + 1) / 2
    return float(area / (positive * (len(labels) - positive)))


def load_credit() -> sv.Parties:
    """FATE's default_credit: 13 columns and the labels at the guest, 10 columns at the host."""
    return sv.datasets.fate(table="default_credit", valid=0.07, test=0.5, seed=0)


class Credit:
    """The columns of guest and host, split by one seed.

    Args:
        seed: of the split and of the order of rows.
    """

    def __init__(self, seed: int) -> None:
        guest, host = load_credit().values()
        common = np.random.default_rng(seed).permutation(np.intersect1d(guest.ids, host.ids))
        places = [{name: place for place, name in enumerate(one.ids)} for one in (guest, host)]
        order = [[found[name] for name in common] for found in places]
        self.labels = np.asarray(guest.label, float)[order[0]]
        columns = [
            np.stack([np.asarray(column, float) for column in one.columns.values()], axis=1)[rows]
            for one, rows in zip((guest, host), order, strict=True)
        ]
        self.trained = BATCH * BATCHES
        self.rows = [self._scale(part) for part in columns]
        self.rows[0] = np.concatenate([self.rows[0], np.ones((len(common), 1))], axis=1)

    def _scale(self, values: np.ndarray) -> np.ndarray:
        known = values[: self.trained]
        spread = known.std(axis=0)
        scaled = (values - known.mean(axis=0)) / np.where(spread > 0, spread, 1)
        return np.asarray(np.rint(np.clip(scaled, -4, 4) * 2**10) / 2**10)

    def test(self, weights: list[np.ndarray]) -> dict[str, float]:
        """AUC and log-loss of the rows that do not train."""
        part = slice(-TESTED, None)
        z = sum(one[part] @ w for one, w in zip(self.rows, weights, strict=True))[:, 0]
        y = self.labels[part]
        loss = float(np.mean(np.logaddexp(0, z) - y * z))
        return {"auc": rank_quality(z, y), "log-loss": loss, "largest logit": float(np.abs(z).max())}

    def train_floats(self) -> list[np.ndarray]:
        """Weights by floats and the true sigmoid."""
        weights = [np.zeros((part.shape[1], 1)) for part in self.rows]
        for number in [*range(BATCHES)] * EPOCHS:
            part = slice(number * BATCH, (number + 1) * BATCH)
            z = sum(one[part] @ w for one, w in zip(self.rows, weights, strict=True))
            error = 1 / (1 + np.exp(-z)) - self.labels[part, None]
            weights = [w - RATE / BATCH * one[part].T @ error for one, w in zip(self.rows, weights, strict=True)]
        return weights

    def train_shares(self) -> list[np.ndarray]:
        """Weights by two parties and a helper, opened here."""
        wires, helper = MemoryWires(), MemoryHelper()
        words, rule = [encode_rows(part) for part in self.rows], StepRule(SIGMOID, RATE / BATCH)
        widths = (words[0].shape[1], words[1].shape[1])

        async def train(end: Any) -> TwoLinear:
            me = end.me
            model = TwoLinear(end, DealtCorrelations(end, helper.dealer.seeds[me], helper.ask_as(me)), widths, 1)
            parts = [words[me][k * BATCH : (k + 1) * BATCH] for k in range(BATCHES)]
            tasks = [LinearTask(k, part, widths[1 - me], 1, backward=True) for k, part in enumerate(parts)]
            uses = await model.prepare(tasks, EPOCHS)
            for _ in range(EPOCHS):
                await model.begin_epoch([use.popleft() for use in uses])
                for k, part in enumerate(parts):
                    labels = self.labels[k * BATCH : (k + 1) * BATCH, None] if me == 0 else None
                    await model.train_batch(part, labels, rule)
            return model

        models = wires.run(*(train(end) for end in wires.pair()))
        return [(models[me].own + models[1 - me].other).view(np.int64) / 2.0**45 for me in (0, 1)]


def measure_quality(seeds: int) -> dict[str, Any]:
    """Test figures on shares and in floats, for some seeds."""
    found = []
    for seed in range(seeds):
        credit = Credit(seed)
        found.append({"shares": credit.test(credit.train_shares()), "floats": credit.test(credit.train_floats())})
    apart = [one["shares"]["auc"] - one["floats"]["auc"] for one in found]
    return {"seeds": found, "AUC, shares less floats": apart, "largest difference (goal 0.002)": max(map(abs, apart))}


def measure_lines(*, quick: bool, epochs: int) -> list[dict[str, Any]]:
    """Each source over each line."""
    cells = itertools.product(SOURCES, LINES)
    found = []
    with tempfile.TemporaryDirectory() as place:
        for number, (source, line) in enumerate(itertools.islice(cells, 1 if quick else None)):
            found.append(train_processes(Path(place) / str(number), source, line, epochs))
            print(found[-1], flush=True)
    return found


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one line, few rows, one seed")
    parser.add_argument("--only", choices=("lines", "quality"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = before("two_parties_links")
    if data(load_credit, "two parties") is None:
        return
    if options.only != "lines":
        figures["quality"] = measure_quality(1 if options.quick else options.seeds)
    if options.only != "quality":
        figures["lines"] = measure_lines(quick=options.quick, epochs=options.epochs)
    write("two_parties_links", figures)


if __name__ == "__main__":
    main()

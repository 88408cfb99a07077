"""FedDA's experiment on images: do left halves of non-aligned rows help to generate right halves?

    python -m benchmarks.fedda_images mnist [--data PATH] [--size quick|paper] [--device cuda]

As in the paper (WCMC 2022, 6596925, section 4) party A has left halves and generates the right halves of its
non-aligned rows. Real pairs are aligned images, fake ones ``[left; G(left)]``: of 10,000 non-aligned rows ("with"), or
of the aligned ones again ("without"). The images so completed are scored against the originals of the same 10,000 rows.

The paper scores by FID, that is over Inception features, whose weights are not to be had offline. Here the features are
a small classifier's, so the distances have another scale: only ratios, without to with, stand beside the paper's.

`--size paper` has the paper's steps and rate and its six counts of aligned rows; `quick` fewer of both, a larger rate
that falls, and smaller batches and networks, so that MNIST takes minutes on one core. Finished cells stay in the JSON
file and are skipped; another setting, or another classifier, never mixes with them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import skip
from benchmarks.common import RESULTS, data
from benchmarks.fedda_networks import Generator, Training, completed, train
from benchmarks.frechet import Classifier, between, between_batches, train_classifier
from securevfl.data.sources import image_set, read_cifar10
from securevfl.errors import InputError
from securevfl.run.machine import describe_machine, package_versions

PAPER = {
    "mnist": {
        250: (68.67, 119.45),
        500: (57.02, 112.44),
        1000: (48.54, 92.49),
        2000: (34.93, 61.55),
        5000: (30.33, 44.73),
        10_000: (25.47, 35.44),
    },
    "cifar10": {
        250: (66.66, 172.41),
        500: (54.07, 155.22),
        1000: (51.78, 124.44),
        2000: (40.62, 97.27),
        5000: (33.58, 78.16),
        10_000: (28.28, 71.53),
    },
}
"""Aligned rows → average FID with and without 10,000 non-aligned rows (tables 1 and 3)."""
SIZES = {
    "quick": ((250, 1000, 5000), Training(steps=1000, lr=2e-3, falls=True, width=16, batch=32)),
    "paper": (tuple(PAPER["mnist"]), Training(steps=20_000, lr=1e-4, falls=False, width=32, batch=64)),
}
CLASSIFIERS = {"mnist": ((8, 16, 32), 2), "cifar10": ((32, 64, 64), 4)}
"""Channels and epochs of the classifier whose features are compared."""
SCORED, BATCH, BATCHES = 2000, 64, 200
"""Rows of one distance; rows and number of the paper's batches."""
WITH, WITHOUT = "with non-aligned rows", "without"
MANY, SMALL, UNSEEN = f"{SCORED} rows", f"mean of {BATCHES} batches of {BATCH} rows", f"{SCORED} rows never seen"
"""Three scores of a cell: of the non-aligned rows, of small batches of them, and of test images."""
NOTE = (
    "Fréchet distances over features of a small classifier of the same data set, not over Inception's: compare ratios, "
    "not distances, with the paper's FID"
)


class Bench:
    """Images of one data set, the network whose features are compared, and how many rows are not aligned."""

    def __init__(self, name: str, path: str | None, non_aligned: int, device: str) -> None:
        images = data(lambda: image_set(name, path) if name == "mnist" else read_cifar10(path), f"fedda_images {name}")
        if images is None:
            raise SystemExit(skip.STATUS)
        x, y, x_test, y_test = images
        self.x, self.test = _pixels(x), _pixels(x_test)
        channels, epochs = CLASSIFIERS[name]
        self.net: Classifier = train_classifier(self.x, torch.tensor(y), channels=channels, epochs=epochs)
        self.about: dict[str, Any] = {
            "channels": channels,
            "epochs": epochs,
            "features": self.net.head.in_features,
            "test accuracy": self.net.accuracy(self.test, torch.tensor(y_test)),
            "fingerprint": self.net.fingerprint(),
        }
        self.x, self.test, self.net = self.x.to(device), self.test[:SCORED].to(device), self.net.to(device)
        self.unseen = self.net.features(self.test)
        self.non_aligned = non_aligned
        self.half = self.x.shape[3] // 2

    def rows(self, aligned: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of non-aligned and of aligned rows; for one seed the former stay the same and the latter grow."""
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(self.x))).to(self.x.device)
        end = self.non_aligned + aligned
        if end > len(self.x):
            raise InputError(
                f"{aligned} aligned and {self.non_aligned} other rows: there are {len(self.x)}, take fewer"
            )
        return self.x[order[: self.non_aligned]], self.x[order[self.non_aligned : end]]

    def features(self, generator: Generator, images: torch.Tensor) -> np.ndarray:
        """Features of the left halves of `images`, completed."""
        with torch.no_grad():
            parts = [completed(generator, part[..., : self.half]) for part in images.split(500)]
        return np.concatenate([self.net.features(part) for part in parts])

    def cell(self, aligned: int, setting: str, seed: int, how: Training) -> dict[str, Any]:
        """Train one generator and score it."""
        start, start_cpu = time.perf_counter(), time.process_time()
        others, real = self.rows(aligned, seed)
        originals = self.net.features(others)
        lefts = (others if setting == WITH else real)[..., : self.half]
        curve: list[tuple[int, float]] = []

        def watch(step: int, generator: Generator) -> None:
            if step % max(how.steps // 5, 1) == 0 and step < how.steps:
                made = self.features(generator, others[:SCORED])
                curve.append((step, round(between(made, originals[:SCORED]), 3)))

        generator = train(real, lefts, how, seed=seed, watch=watch)
        made = self.features(generator, others)
        many = round(between(made[:SCORED], originals[:SCORED]), 3)
        rng = np.random.default_rng(seed)
        return {
            "aligned": aligned,
            "setting": setting,
            "seed": seed,
            MANY: many,
            SMALL: round(between_batches(made, originals, rng, rows=BATCH, repeat=BATCHES), 3),
            UNSEEN: round(between(self.features(generator, self.test), self.unseen), 3),
            "curve": [*curve, (how.steps, many)],
            "seconds": round(time.perf_counter() - start, 1),
            "processor seconds": round(time.process_time() - start_cpu, 1),
            "device": self.x.device.type,
        }

    def yardsticks(self) -> dict[str, float]:
        """Distances that say what the scale means: right halves of other rows, and none (the darkest pixel)."""
        images = self.x[: 2 * SCORED]
        left, right = images[: len(images) // 2, ..., : self.half], images[len(images) // 2 :, ..., self.half :]
        right = right[: len(left)]
        originals = self.net.features(images[: len(left)])
        found = {"right half of another row": right, "dark right half": torch.full_like(right, -1)}
        return {
            name: round(between(self.net.features(torch.cat([left, other], dim=3)), originals), 3)
            for name, other in found.items()
        }


def _pixels(images: np.ndarray) -> torch.Tensor:
    """Images (n, h, w[, c]) uint8 as (n, c, h, w) from -1 to 1."""
    x = torch.tensor(images).float() / 127.5 - 1
    return x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()


def summary(data: str, cells: Sequence[dict[str, Any]], score: str) -> list[dict[str, Any]]:
    """A line for each count of aligned rows that both settings have: means over the seeds of both, and their ratio."""
    lines = []
    for aligned in sorted({cell["aligned"] for cell in cells}):
        found = {
            setting: {c["seed"]: c[score] for c in cells if (c["aligned"], c["setting"]) == (aligned, setting)}
            for setting in (WITH, WITHOUT)
        }
        seeds = sorted(found[WITH].keys() & found[WITHOUT].keys())
        if not seeds:
            continue
        means = {setting: float(np.mean([found[setting][seed] for seed in seeds])) for setting in (WITH, WITHOUT)}
        published = PAPER[data].get(aligned)
        lines.append(
            {
                "aligned": aligned,
                **{setting: round(mean, 3) for setting, mean in means.items()},
                "ratio": round(means[WITHOUT] / means[WITH], 3),
                "ratio of each seed": [round(found[WITHOUT][seed] / found[WITH][seed], 3) for seed in seeds],
                "paper's ratio of FID": round(published[1] / published[0], 3) if published else None,
            }
        )
    return lines


def table(data: str, cells: Sequence[dict[str, Any]]) -> str:
    """All scores beside the paper's, and in how many pairs of cells the non-aligned rows helped."""
    head = ("aligned", "with", "without", "ratio", "of each seed", "paper: with", "without", "ratio")
    form = "{:>9} {:>8} {:>8} {:>6}  {:<18} {:>11} {:>8} {:>6}"
    lines = [f"{data}. {NOTE}"]
    for score in (MANY, SMALL, UNSEEN):
        lines += [f"\n{score}", form.format(*head)]
        found = summary(data, cells, score)
        for line in found:
            count, ratios = line["aligned"], line["ratio of each seed"]
            published, theirs = PAPER[data].get(count, ("", "")), line["paper's ratio of FID"]
            ours = (f"{line[WITH]:.2f}", f"{line[WITHOUT]:.2f}", f"{line['ratio']:.2f}")
            seeds = " ".join(f"{ratio:.2f}" for ratio in ratios)
            lines.append(form.format(count, *ours, seeds, *published, f"{theirs:.2f}" if theirs else ""))
        ratios = [ratio for line in found for ratio in line["ratio of each seed"]]
        lines.append(f"  lower with non-aligned rows in {sum(ratio > 1 for ratio in ratios)} of {len(ratios)} pairs")
    return "\n".join(lines)


def group_of(content: dict[str, Any], key: dict[str, Any], bench: Bench, device: str) -> dict[str, Any]:
    """The group of `content` for these settings, a new one if there is none.

    Raises:
        InputError: its cells were scored with another classifier.
    """
    for group in content["groups"]:
        if {name: group[name] for name in key} == key:
            if group["classifier"]["fingerprint"] != bench.about["fingerprint"]:
                raise InputError(
                    "the file's cells were scored with another classifier (another machine or torch trained it), so "
                    "their distances have another scale; give another file with --results"
                )
            return dict(group)
    return {
        **key,
        "machine": describe_machine(device),
        "versions": package_versions(),
        "classifier": bench.about,
        f"yardsticks, {MANY}": bench.yardsticks(),
        "summary": {},
        "cells": [],
    }


def save(file: Path, content: dict[str, Any]) -> None:
    """Write all at once: an interrupted run leaves the file as it was."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(file.name + ".part")
    draft.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(file)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_set", choices=sorted(PAPER))
    parser.add_argument("--data", help="the file, or its folder; else the folder that SECUREVFL_DATA names")
    parser.add_argument("--size", choices=sorted(SIZES), default="quick")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--aligned", type=int, nargs="+", help="counts of aligned rows, instead of the size's")
    parser.add_argument("--non-aligned", type=int, default=10_000)
    parser.add_argument("--steps", type=int, help="of the generator, instead of the size's")
    parser.add_argument("--lr", type=float, help="Adam's rate, instead of the size's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS / "fedda_images.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options(arguments)
    if asked.seeds < 1 or asked.non_aligned < SCORED or min(asked.aligned or [1]) < 1:
        raise InputError(f"--seeds and --aligned start at 1, --non-aligned at {SCORED}, the rows that are scored")
    torch.set_num_threads(1)
    counts, how = SIZES[asked.size]
    changes = {name: getattr(asked, name) for name in ("steps", "lr") if getattr(asked, name) is not None}
    how = Training(**{**asdict(how), **changes})
    bench = Bench(asked.data_set, asked.data, asked.non_aligned, asked.device)
    key = {"data": asked.data_set, "training": asdict(how), "non-aligned rows": asked.non_aligned}
    content = {"note": NOTE, "groups": []}
    if asked.results.exists():
        content = json.loads(asked.results.read_text(encoding="utf-8"))
    group = group_of(content, key, bench, asked.device)
    others = [other for other in content["groups"] if {name: other[name] for name in key} != key]
    done = {(cell["aligned"], cell["setting"], cell["seed"]) for cell in group["cells"]}
    for seed in range(asked.seeds):
        for aligned in asked.aligned or counts:
            for setting in (WITH, WITHOUT):
                if (aligned, setting, seed) in done:
                    continue
                cell = bench.cell(aligned, setting, seed, how)
                print(f"{aligned} aligned, {setting}, seed {seed}: {cell[MANY]} in {cell['seconds']} s", flush=True)
                group["cells"].append(cell)
                group["summary"] = {s: summary(asked.data_set, group["cells"], s) for s in (MANY, SMALL, UNSEEN)}
                save(asked.results, {**content, "groups": [*others, group]})
    print(table(asked.data_set, group["cells"]))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(f"error: {error}") from None

"""The results of FedDA's experiment on images, for the page of the papers' claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["count_pairs"]

_IMAGES = Path(__file__).parents[2] / "benchmarks" / "results" / "fedda_images.json"


@cache
def count_pairs() -> Mapping[str, int]:
    """In how many pairs of runs on MNIST rows that are not aligned lower the distance, of how many; seeds; steps of the
    generators."""
    group = next(one for one in json.loads(_IMAGES.read_text("utf-8"))["groups"] if one["data"] == "mnist")
    ratios = [line["ratio of each seed"] for line in group["summary"]["2000 rows"]]
    return {
        "lower": sum(ratio > 1 for seeds in ratios for ratio in seeds),  # without such rows, over with them
        "pairs": sum(map(len, ratios)),
        "seeds": len(ratios[0]),
        "steps": group["training"]["steps"],
    }

"""Frames of two parties, small, for sweeps and searches over own tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["frames"]

ROWS = 240


def frames(label: str = "good") -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(ROWS)]
    a, b = generator.normal(size=ROWS), generator.normal(size=ROWS)
    city = generator.choice(["Rome", "Oslo", None], size=ROWS)
    bank = pd.DataFrame({"id": ids, "income": a, "city": city})
    bank[label] = np.where(a + 2 * b > 0, "yes", "no") if label == "good" else 5 + a + 2 * b
    return {"bank": bank, "shop": pd.DataFrame({"id": ids, "spent": b}).iloc[generator.permutation(ROWS)[:220]]}

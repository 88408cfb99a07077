"""Other models on the rows of the additive model's comparison: boosted trees without privacy, DP-SGD, and the peers of
`benchmarks/peers/dp_tables.py`.

All see the pooled columns of the same training rows, numbers on the logarithmic scale of their declared ranges that
private bins have too, and all ε are for a row *replaced*, δ = 1e-5. Opacus accounts for a row added or left out; two
such steps replace a row, so DP-SGD gets the ε of half of the μ of Gaussian differential privacy, which long training
with subsampling approaches (Dong, Roth and Su 2022). It has Poisson batches and a clip of 1.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from securevfl.privacy.gaussian_dp import epsilon_at, mu_for

__all__ = ["DELTA", "Work", "boost_trees", "run_script", "train_noisily"]

DELTA = 1e-5

SCRIPT = Path(__file__).parent / "peers" / "dp_tables.py"
EPOCHS, BATCH, HIDDEN, RATE = 20, 512, 32, 1.0

Work = dict[str, np.ndarray]
"""See `benchmarks/peers/dp_tables.py`; and `own`, which columns are the active party's."""


def spread_levels(work: Work, part: str) -> np.ndarray:
    """Rows as numbers, with a column for each level of a category."""
    x, columns = work[part], []
    for j, many in enumerate(work["levels"].tolist()):
        columns += [(x[:, j] == level).astype(float) for level in range(many)] if many else [x[:, j]]
    return np.column_stack(columns)


def boost_trees(work: Work, seed: int, *, alone: bool) -> float:
    """AUC of scikit-learn's boosted trees without privacy.

    Args:
        work: the rows.
        seed: of the trees.
        alone: whether they see the active party's columns only.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    chosen = work["own"] if alone else np.ones(len(work["own"]), dtype=bool)
    fitted = HistGradientBoostingClassifier(random_state=seed).fit(work["x"][:, chosen], work["y"])
    return float(roc_auc_score(work["ty"], fitted.predict_proba(work["tx"][:, chosen])[:, 1]))


def train_noisily(work: Work, epsilon: float, seed: int) -> float:
    """AUC of a network of one hidden layer, trained by Opacus' DP-SGD.

    Args:
        work: the rows.
        epsilon: of a row replaced.
        seed: of weights, batches and noise.
    """
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(seed)
    train, test = (torch.from_numpy(spread_levels(work, part)).float() for part in ("x", "tx"))
    y = torch.from_numpy(work["y"]).float()
    share = min(BATCH, max(len(train) // 8, 1)) / len(train)
    steps, width = EPOCHS * math.ceil(1 / share), train.shape[1]
    layers = torch.nn.Sequential(torch.nn.Linear(width, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
    model: Any = GradSampleModule(layers)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=_find_noise(epsilon, share, steps),
        max_grad_norm=1.0,
        expected_batch_size=round(share * len(train)),
    )
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(steps):
        drawn = torch.rand(len(train)) < share
        optimizer.zero_grad()
        loss(model(train[drawn])[:, 0], y[drawn]).backward()
        optimizer.step()
    with torch.no_grad():
        return float(roc_auc_score(work["ty"], model(test)[:, 0].numpy()))


@cache
def _find_noise(epsilon: float, share: float, steps: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    found: float = get_noise_multiplier(
        target_epsilon=epsilon_at(mu_for(epsilon, DELTA) / 2, DELTA),
        target_delta=DELTA,
        sample_rate=share,
        steps=steps,
        accountant="prv",
    )
    return found


def run_script(
    python: Path, work: Work, seed: int, wanted: Sequence[tuple[str, float]], neighbours: str = "replaced"
) -> Iterator[dict[str, Any]]:
    """Run the other peers, and yield each one's method, ε, AUC, CPU seconds and version.

    Args:
        python: an interpreter that has them.
        work: the rows.
        seed: of the models.
        wanted: methods and ε.
        neighbours: "replaced" or "added".
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "work.npz"
        np.savez(file, **work)  # type: ignore[arg-type]
        for method in sorted({name for name, _ in wanted}):
            strengths = [str(epsilon) for name, epsilon in wanted if name == method]
            command = [str(python), str(SCRIPT), str(file), "--seed", str(seed), "--only", method]
            command += ["--neighbours", neighbours, "--epsilon", *strengths]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise RuntimeError(f"{method} failed: {ran.stderr[-800:]}")
            yield from map(json.loads, ran.stdout.splitlines())

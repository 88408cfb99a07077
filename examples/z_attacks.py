"""The arithmetic of `attack_on_z.py`: what follows from z, in numpy and nothing else.

X (rows, d) are the features of all passive parties side by side, W (d, h) their weights at the cut, z = X W of a batch.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score

KNOWN = (10, 19, 36, 72, 300)
"""Numbers of records that the active party knows from elsewhere; the passive parties have 18 columns together."""


@dataclass(frozen=True)
class View:
    """What the active party has after a job: T steps on n training rows, E looks at m validation rows.

    Attributes:
        batches: T arrays of row numbers below n.
        z: T arrays (B, h).
        steps: T arrays (B, h): η ∂L/∂z.
        looks: (E, m, h): z of the validation rows, numbered from n, after each epoch.
        momentum: μ of the cut's rule.
        decay: η λ of the cut's rule.
        width: d, columns of all passive parties together.
        truth: (n + m, d), what the attack is after; for scoring it only.
        auc: of the job on its test rows.
        labels: passive party → how well its gradients tell the labels, see `label_auc`.
    """

    batches: list[np.ndarray]
    z: list[np.ndarray]
    steps: list[np.ndarray]
    looks: np.ndarray
    momentum: float
    decay: float
    width: int
    truth: np.ndarray
    auc: float
    labels: dict[str, float]

    @property
    def rows(self) -> int:
        return len(self.truth) - int(self.looks.shape[1])

    @property
    def per_epoch(self) -> int:
        return len(self.z) // len(self.looks)

    def first(self, epochs: int) -> "View":
        """The view of a job that ended after `epochs`."""
        end = epochs * self.per_epoch
        return replace(
            self, batches=self.batches[:end], z=self.z[:end], steps=self.steps[:end], looks=self.looks[:epochs]
        )

    def stacked(self) -> np.ndarray:
        """(n + m, E h): what was seen of each row, side by side."""
        h = self.looks.shape[2]
        found = np.zeros((len(self.truth), len(self.looks) * h))
        for t, (rows, z) in enumerate(zip(self.batches, self.z, strict=True)):
            at = t // self.per_epoch * h
            found[rows, at : at + h] = z
        found[self.rows :] = np.hstack(list(self.looks))
        return found


def symmetric_fit(c: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The positive semidefinite P (d, d) nearest to the solution of P C = Y by least squares, (d, k) each."""
    p = np.linalg.lstsq(c.T, y.T, rcond=None)[0]
    value, v = np.linalg.eigh((p + p.T) / 2)
    return np.asarray((v * np.maximum(value, 0)) @ v.T)


def full_batch(view: View) -> np.ndarray:
    """Rows X̂ (n, d) with X̂ X̂ᵀ ≈ X Xᵀ, where each step takes all rows and the rule is plain SGD.

    With S = η G, z_t − z_{t+1} = X Xᵀ S_t: in the space U that all z_t span, U P Uᵀ S = ΔZ gives P, and X Xᵀ = U P Uᵀ.
    """
    order = [np.argsort(rows) for rows in view.batches]
    z = [part[rows] for part, rows in zip(view.z, order, strict=True)]
    steps = np.hstack([part[rows] for part, rows in zip(view.steps, order, strict=True)][:-1])
    u = np.linalg.svd(np.hstack(z), full_matrices=False)[0][:, : view.width]
    change = np.hstack([one - two for one, two in itertools.pairwise(z)])
    return np.asarray(u @ root(symmetric_fit(u.T @ steps, u.T @ change)))


def root(p: np.ndarray) -> np.ndarray:
    """L with L Lᵀ = P."""
    value, v = np.linalg.eigh(p)
    return np.asarray(v * np.sqrt(np.maximum(value, 0)))


def transcript(view: View, turns: int = 60) -> tuple[np.ndarray, float]:
    """Rows X̂ (n + m, d) with X̂ X̂ᵀ ≈ X Xᵀ from mini-batches, and the rms of what they leave unexplained of z.

    After an epoch all validation rows are seen with the same weights: the looks side by side have rank d, and their
    singular vectors give X R and R⁻¹W_e for some unknown R (d, d). Weights inside an epoch are first taken to move
    evenly from one end to the other. Then, in turns: each training row from all its looks, by least squares;
    P = R⁻¹R⁻ᵀ from the change of weights over each epoch, R⁻¹(W_e − W_{e+1}) = P Σ_t (X R)ᵀS_t; the weights inside the
    epochs again, step by step.
    """
    n, d, per = view.rows, view.width, view.per_epoch
    epochs, _, h = view.looks.shape
    u, s, v = np.linalg.svd(np.hstack(list(view.looks)), full_matrices=False)
    ends = v[:d].reshape(d, epochs, h).transpose(1, 0, 2)
    x = np.zeros((len(view.truth), d))
    x[n:] = u[:, :d] * s[:d]
    share = np.arange(per)[:, None, None] / per
    before = np.concatenate([2 * ends[:1] - ends[1:2], ends])  # the first by going on backwards
    path = np.concatenate([a + share * (b - a) for a, b in itertools.pairwise(before)])
    size = float(np.sqrt(sum((z**2).sum() for z in view.z)))
    p, best = np.zeros((d, d)), (np.inf, x)
    for turn in range(turns):
        x[:n] = _rows(view, path)
        parts = zip(view.batches, path, view.z, strict=True)
        left = float(np.sqrt(sum(((x[rows] @ w - z) ** 2).sum() for rows, w, z in parts))) / size
        if turn and left < best[0]:
            best = left, x @ root(p)
        if turn and left < 1e-7:  # z has the 24 bits of a float32
            break
        moved, decayed = np.zeros((d, h)), np.zeros((d, h))
        through_p, beside = [], []  # the change of weights in each step is P times the first plus the second
        for rows, step, w in zip(view.batches, view.steps, path, strict=True):
            moved = view.momentum * moved + x[rows].T @ step
            decayed = view.momentum * decayed + view.decay * w
            through_p.append(moved)
            beside.append(decayed)
        a, b = (np.stack(part).reshape(epochs, per, d, h) for part in (through_p, beside))
        change = ends[:-1] - ends[1:] - b[1:].sum(axis=1)
        p = symmetric_fit(np.hstack(list(a[1:].sum(axis=1))), np.hstack(list(change)))
        step = p @ a + b
        after = np.cumsum(step[:, ::-1], axis=1)[:, ::-1]  # from before each step to the end of its epoch
        path = ends[:, None] + after
        path[1:] += (ends[:-1] - ends[1:] - after[1:, 0])[:, None] * (1 - share)
        path = path.reshape(-1, d, h)
    return best[1], best[0]


def _rows(view: View, path: np.ndarray) -> np.ndarray:
    """Each training row from its looks at these weights, (n, d)."""
    n, d = view.rows, view.width
    square, right = np.zeros((n, d, d)), np.zeros((n, d, 1))
    for rows, z, w in zip(view.batches, view.z, path, strict=True):
        square[rows] += w @ w.T
        right[rows] += (z @ w.T)[:, :, None]
    square += 1e-13 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(d)
    return np.asarray(np.linalg.solve(square, right)[:, :, 0])


def gram_error(found: np.ndarray, truth: np.ndarray) -> float:
    """‖X̂X̂ᵀ − XXᵀ‖ / ‖XXᵀ‖ without making either: both are (n, d)."""
    cross, own, true = found.T @ truth, found.T @ found, truth.T @ truth
    return float(np.sqrt(max((own**2).sum() + (true**2).sum() - 2 * (cross**2).sum(), 0)) / np.linalg.norm(true))


def feature_errors(found: np.ndarray, truth: np.ndarray, draws: int = 5) -> dict[str, float]:
    """Known records → error of all other rows' features, rms over their deviation, the median of several choices of
    known records: a linear map fitted on those (ridge, its penalty by leave-one-out). Guessing the mean scores 1."""
    scaled = found / np.maximum(found.std(axis=0), 1e-300)
    deviation = np.sqrt(((truth - truth.mean(axis=0)) ** 2).mean())
    errors: dict[str, float] = {}
    for known in (k for k in KNOWN if k < len(truth) // 2):
        tries = []
        for draw in range(draws):
            order = np.random.default_rng(draw).permutation(len(truth))
            mine, rest = order[:known], order[known:]
            fit = RidgeCV(alphas=np.logspace(-12, 4, 33)).fit(scaled[mine], truth[mine])
            tries.append(float(np.sqrt(((fit.predict(scaled[rest]) - truth[rest]) ** 2).mean()) / deviation))
        errors[str(known)] = float(np.median(tries))
    return errors


def label_auc(gradients: list[np.ndarray], labels: list[np.ndarray]) -> float:
    """AUC with which gradients at activations, batch by batch (B, d), rank the labels of two classes (B,).

    A row's gradient is (p − y) times nearly the same direction: the first singular vector of all, turned such that the
    larger half of the rows lies on the side of p > y, which the more frequent class does.
    """
    g = np.concatenate(gradients)
    direction = np.linalg.svd(g, full_matrices=False)[2][0]
    score = g @ direction
    score = score if (score > 0).mean() > 0.5 else -score
    return float(roc_auc_score(np.concatenate(labels), -score))

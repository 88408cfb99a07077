"""What the active party can solve for from z: passive parties' features, whatever the encryption.

python examples/attack_on_z.py [--quick] [--rows 3500] [--out benchmarks/results/attack_on_z.json]

In every step the active party sees z = Σ_p a_p W_p of the batch, and after every epoch z of the validation rows. It
also knows the gradient G that it hands back, the learning rate η, the momentum and which rows a batch holds; this is
all that the attacks (`securevfl.attacks.gram`) use. With identity bottoms the step is W ← W − η XᵀG with
X = [a_1 a_2 …], so that z of a later step is linear in the Gram matrix X Xᵀ. The weights, and the parties' parts of z,
stay unknown.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeCV

import securevfl as sv
from securevfl.attacks.gram import GramObservations, factor_gram, full_batch, gram_error, observations_of
from securevfl.attacks.label_inference import score_single_observations
from securevfl.attacks.measure import auc
from securevfl.cut import ActiveCut, CutSpec, Protection, WrappedCut
from securevfl.experiments.recorder import Recorder
from securevfl.party_context import PartyContext, PartySecret
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.simulation import Aligned

RUNS = 9
"""Runs of a job with noise, whose AUC differs from run to run: their mean counts. One of them is attacked."""

KNOWN = (10, 19, 36, 72, 300)
"""Numbers of records that the active party knows from elsewhere; the passive parties have 18 columns together."""


@dataclass(frozen=True)
class View:
    """What the active party has after a job, and what its attacks are scored by.

    Attributes:
        shown: what it saw.
        truth: features of the n training and the m validation rows, (n + m, d), in the order of `shown`.
        auc: of the job on its test rows.
        labels: passive party → the AUC with which its gradients rank the labels, each look by itself.
    """

    shown: GramObservations
    truth: np.ndarray
    auc: float
    labels: dict[str, float]

    def first(self, epochs: int) -> "View":
        """The view of a job that ended after `epochs`."""
        return replace(self, shown=self.shown.after_epochs(epochs))


class NoisyCut(WrappedCut):
    """Fresh noise on z, as if the passive parties had added it inside the ciphertexts."""

    def __init__(self, cut: ActiveCut, deviation: float, seed: int) -> None:
        super().__init__(cut)
        self.deviation, self.draw = deviation, np.random.default_rng(seed)

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        z = await super().forward(rows, train=train)
        return z + torch.from_numpy(self.draw.normal(scale=self.deviation, size=z.shape)).float()


def noisy(protection: Protection, deviation: float, seed: int) -> Protection:
    """The same protection, with noise on z."""

    class Noisy(type(protection)):  # type: ignore[misc]
        def active_cut(self, site: PartyContext, spec: CutSpec) -> NoisyCut:
            return NoisyCut(super().active_cut(site, spec), deviation, seed)

    return Noisy(**{name: getattr(protection, name) for name in protection.__struct_fields__})


def watch(
    job: sv.Job,
    parties: sv.Parties,
    aligned: Aligned,
    noise: float = 0.0,
    seed: int = 0,
    secrets: Mapping[str, PartySecret] | None = None,
) -> View:
    """Run a job with a recorder and keep what its active party sees.

    Args:
        job: what to run.
        parties: their tables.
        aligned: their alignment.
        noise: deviation of fresh noise on z.
        seed: of that noise.
        secrets: derived from the job's seed unless given, so that the figures can be made again and a sealed run has
            its twin; the attacks do not use them.
    """
    recorder = Recorder()
    result = sv.simulate(
        job.replace(protection=noisy(job.protection, noise, seed)) if noise else job,
        parties,
        aligned=aligned,
        secrets=secrets or {name: PartySecret.from_seed(job.seed, name) for name in parties},
        observers=dict.fromkeys(parties, recorder),
    )
    transcript = recorder.transcript()
    active = transcript.view(parties.active.name)
    seen = observations_of(active)
    if seen is None:
        raise SystemExit("the attacks need steps on all training rows, and validation rows after each epoch")
    truth, labels = transcript.truth(), {}
    for name in active.passive:
        view, what = transcript.view(name), ("gradient at the activations", name)
        if view.observations.get(what):  # a trainable bottom's
            found = score_single_observations(replace(view, observations={what: view.observations[what]}))
            ranked = auc(truth.y[found.rows] == 1, found.values)
            labels[name] = max(ranked, 1 - ranked)  # which class is the rarer one is known
    return View(
        shown=seen,
        truth=np.hstack([truth.x[name] for name in active.passive])[seen.order],
        auc=result.record.runs[-1].test["auc"],
        labels=labels,
    )


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


def figures(view: View) -> dict[str, object]:
    """What the attacks get out of a view."""
    seen = view.shown
    n, h = seen.training_rows, seen.scored_z.shape[2]
    stacked = seen.stack_observations()
    looks = np.linalg.svd(stacked[n:], full_matrices=False)[0][:, : seen.width]
    found: dict[str, object] = {
        "epochs": len(seen.scored_z),
        "steps": len(seen.z),
        "training rows": n,
        "test AUC": view.auc,
        "deviation of z": float(np.concatenate(seen.z).std()),
        "label AUC from gradients": view.labels,
        "features, one look": feature_errors(stacked[:n, :h], view.truth[:n]),
        "features, all looks": feature_errors(stacked[:n], view.truth[:n]),
        "features of validation rows": feature_errors(looks, view.truth[n:]),
    }
    if len(seen.scored_z) > 1 and stacked.shape[1] >= seen.width:  # one look fewer is not enough, as the table shows
        x, left = factor_gram(seen)
        found |= {"z unexplained": left, "gram": gram_error(x[:n], view.truth[:n])}
        found["features, transcript"] = feature_errors(x[:n], view.truth[:n])
    return found


def line(name: str, found: dict[str, Any]) -> str:
    """One line of the table: the better of all looks and of the transcript, as known records tell the attacker."""
    one, looks, held = (found[f"features{what}"] for what in (", one look", ", all looks", " of validation rows"))
    solved = found.get("features, transcript", looks)
    cells = [f"{name:<45}{found['epochs']:>4}{found['steps']:>6}{found['test AUC']:>7.3f}"]
    cells.append(f"{found['gram']:>9.1e}" if "gram" in found else f"{'–':>9}")
    cells += [f"{one['36']:>9.1e}"]
    cells += [f"{min(looks[k], solved[k]):>9.1e}" for k in ("10", "19", "36", "72")]
    cells += [f"{held[k]:>9.1e}" if k in held else f"{'–':>9}" for k in ("19", "36")]
    return "".join(cells)


HEAD = f"""\
Errors are relative: of the Gram matrix in Frobenius norm; of features in rms over their deviation (the mean scores 1).
{"":<55}{"test":>7}{"Gram,":>9}{"one look":>9}{"  all looks, by number of known records":<36}{"  validation rows":>18}
{"":<45}{"ep.":>4}{"steps":>6}{"AUC":>7}{"0 known":>9}{36:>9}{10:>9}{19:>9}{36:>9}{72:>9}{19:>9}{36:>9}"""


def settings(job: sv.Job, quick: bool) -> dict[str, tuple[sv.Job, float, tuple[int, ...]]]:
    """Name → job, noise on z, and after which epochs to attack."""

    def with_(**changes: Any) -> sv.Job:
        return job.replace(algorithm=job.algorithm.replace(**changes))

    def on_features(**arguments: Any) -> sv.Job:
        return job.replace(protection=sv.Plain(fixed_point=True, dp=sv.DP(features=sv.Gaussian(**arguments))))

    labels = sv.Plain(fixed_point=True, dp=sv.DP(labels=sv.Gaussian(epsilon=8.0)))

    if quick:
        return {
            "batches of 256": (job.replace(epochs=4), 0.0, (1, 4)),
            "DP on features, ε = 2": (on_features(epsilon=2.0).replace(epochs=4), 0.0, (4,)),
        }
    return {
        "batches of 256": (job, 0.0, (1, 2, 3, 4, 8)),
        "batches of 64": (job.replace(batch_size=64, epochs=4), 0.0, (3, 4)),
        "full batch": (job.replace(batch_size=1 << 16), 0.0, (3, 8)),
        "η = 0.1 instead of 1": (with_(cut_lr=0.1), 0.0, (3, 8)),
        "momentum 0.9, decay 0.001, η = 0.2": (
            with_(cut_momentum=0.9, cut_weight_decay=1e-3, cut_lr=0.2),
            0.0,
            (3, 8),
        ),
        "h = 32": (with_(hidden=32), 0.0, (1, 2)),
        "h = 4": (with_(hidden=4).replace(epochs=16), 0.0, (4, 8, 16)),
        "logistic regression, h = 1": (
            job.replace(algorithm=sv.LogisticRegression(hidden=1, lr=0.005, cut_lr=1.0), epochs=24),
            0.0,
            (8, 24),
        ),
        "trainable bottoms (16)": (with_(bottom=(16,)), 0.0, (1, 8)),
        "trainable bottoms (16), DP on labels, ε = 8": (
            with_(bottom=(16,)).replace(protection=labels),
            0.0,
            (8,),
        ),
        "DP on features, σ/Δ = 0.1, C = 4": (
            on_features(noise_multiplier=0.1, clip=4.0),
            0.0,
            (8,),
        ),
        "DP on features, ε = 50": (on_features(epsilon=50.0), 0.0, (8,)),
        "DP on features, ε = 8": (on_features(epsilon=8.0), 0.0, (8,)),
        "DP on features, ε = 2": (on_features(epsilon=2.0), 0.0, (8,)),
        "fresh noise on z, deviation 0.1": (job, 0.1, (8,)),
        "fresh noise on z, deviation 1": (job, 1.0, (8,)),
        "fresh noise on z, deviation 4": (job, 4.0, (8,)),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the attacks, print a table, and write the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small table and few settings, in seconds")
    parser.add_argument("--rows", type=int, default=3_500, help="clients of the credit table")
    parser.add_argument("--out", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    started = time.perf_counter()
    found: dict[str, Any] = {}

    def attack(name: str, epochs: Sequence[int], view: View, *others: View) -> None:
        means = {"runs": 1 + len(others), "test AUC": float(np.mean([view.auc, *(other.auc for other in others)]))}
        found[name] = {str(count): figures(view.first(count)) | means for count in epochs}
        if view.labels:
            told = ", ".join(f"{party} {auc:.3f}" for party, auc in view.labels.items())
            print(f"  a passive party that sees ∂L/∂a_p ranks labels with AUC {told}")
        for count in epochs:
            print(line(name, found[name][str(count)]), flush=True)

    # Three organisations, two of them passive with 18 columns; identity bottoms; the integers of the sealed cut.
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=1_000 if options.quick else options.rows)
    algorithm = sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0)
    job = sv.Job(algorithm=algorithm, protection=sv.Plain(fixed_point=True), epochs=8, batch_size=256, seed=0)
    aligned = sv.align_parties(parties, job)
    print(HEAD)
    for name, (changed, noise, epochs) in settings(job, options.quick).items():
        runs = RUNS if (noise or changed.protection.dp) and not options.quick else 1
        attack(name, epochs, *(watch(changed, parties, aligned, noise, seed) for seed in range(runs)))

    # Full batches need no turns: two linear systems.
    view = watch(job.replace(batch_size=1 << 16, epochs=4), parties, aligned)
    parts = {count: view.first(count) for count in (2, 3, 4)}
    found["Gram error in closed form"] = {
        f"{count} steps": gram_error(full_batch(part.shown), part.truth[: part.shown.training_rows])
        for count, part in parts.items()
    }
    print("\nFull batches, in closed form:", found["Gram error in closed form"])

    if not options.quick:
        # Encryption changes nothing: the same job under Paillier shows the active party the same numbers, bit by bit.
        few = sv.datasets.default_credit(overlap=0.85, seed=0, rows=600)
        short = job.replace(epochs=4, batch_size=128)
        aligned = sv.align_parties(few, short)
        clear = watch(short, few, aligned)
        sealed = watch(short.replace(protection=sv.Paillier(bits=2048)), few, aligned)
        if not all((a == b).all() for a, b in zip(clear.shown.z, sealed.shown.z, strict=True)):
            raise SystemExit("under Paillier the active party saw other numbers than in the clear")
        print(f"\n{HEAD}")
        attack("under Paillier 2048, 256 training rows", (3, 4), sealed)

        everyone = sv.datasets.default_credit(overlap=0.85, seed=0)
        whole = job.replace(epochs=4)
        attack("the whole table", (4,), watch(whole, everyone, sv.align_parties(everyone, whole)))
        alone = sv.simulate(job, parties, baselines=["alone"]).run("alone").test["auc"]
        found["test AUC of the active party alone"] = alone
        print(f"The active party alone: test AUC {alone:.3f}")

    if options.out:
        seconds = round(time.perf_counter() - started, 1)
        content = {
            "machine": describe_machine(),
            "versions": package_versions(),
            "rows": options.rows,
            "seconds": seconds,
            **found,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    main()

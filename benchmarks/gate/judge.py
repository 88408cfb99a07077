"""The rules of the gate: what a measured cell must not contradict. Pure functions of figures, so that tests can feed
them cells that break each rule.

*Noise.* What only noise hides is tested with a stated power: see `power`. Cells that were measured before these tests
existed fall under the margin.

*Margin.* An AUC is compared after taking `SIGMAS` standard errors off it (Hanley and McNeil 1982), an R² after taking
off `R2_MARGIN`: an honest attack at its limit fails by chance about once in 700. Bounds of audits carry their
confidence already, which `__main__` divides among all audits of a run. On shares all that is attacked ought to be
noise: there, an R² beside own columns may not exceed what the same attacker gets with columns of chance in place of
those that it received by `NOISE` deviations of that over draws, nor by less than `R2_MARGIN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from benchmarks.gate.power import Ranked, broken_tests, rejects
from securevfl.privacy.severity import NOTE_AUC_GAIN, NOTE_R2_GAIN, OK_AUC

__all__ = ["RULES", "SIGMAS", "Audited", "Figures", "Got", "judge"]

SIGMAS = 3.0
R2_MARGIN = 0.02
DP_TOLERANCE = 0.03
CONTROL = 0.99
SUMS = 0.2
"""What sums that lie open give away at least, above guessing."""
NOISE = 4.0
"""Standard errors that the worst of some dozens of attacks on noise may be off."""


class Got(msgspec.Struct, frozen=True, kw_only=True):
    """What the attacks on one thing got in a cell."""

    severity: Literal["ok", "note", "leak"]
    """what the job's findings say"""
    value: float
    """of the best attack: AUC, or R² of features"""
    without: float
    """of the same attacker without what he received"""
    error: float = 0.0
    """standard error of `value`, of an AUC; on shares, of an R² the deviation of what columns of chance get"""
    attack: str = ""
    """the best one"""
    view: str = ""
    """as in ``measured.json``, where the cell has no noise"""
    bound: float = 1.0
    """what the planned ε permits, where nothing else tells the secret; 1 without noise or where something else does"""
    correlation: float | msgspec.UnsetType = msgspec.UNSET
    """of a numeric target: of the best attack with the true number, where `value` is the AUC of *above its median*"""
    correlation_without: float | msgspec.UnsetType = msgspec.UNSET
    """likewise of the same attacker without what he received"""
    admitted: bool = False
    """whether a policy with ``leaks = false`` of the one whose data it is accepts the job"""


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A lower bound on the ε that was spent."""

    what: str
    reported: float
    lower: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A measured cell."""

    name: str
    data: str
    algorithm: str
    protection: str
    seed: int
    labels: Got | None = None
    features: Got | None = None
    attribute: Got | None = None
    order: Got | None = None
    """the secret that a table was sorted by, from the numbers of its rows that are not aligned"""
    audits: list[Audited] = []
    ranked: list[Ranked] = []
    """what only noise hides, by each attack"""
    control: bool = False
    """whether its noise is too small, and the gate has to find that"""
    predictions: Got | msgspec.UnsetType = msgspec.UNSET
    """on shares: features from final predictions alone, over own columns; `features` has them in its baseline"""
    uneven: float | msgspec.UnsetType = msgspec.UNSET
    """on shares: how far words that were received are from uniform; above 1 they are not"""
    sums: Got | msgspec.UnsetType = msgspec.UNSET
    """of trees and scorecards: what sums by bin give away, as a share of the partners' cells, or R² of the counts of
    own bins; on shares with what one party received"""
    together: float | msgspec.UnsetType = msgspec.UNSET
    """on shares: the same with what two computing parties have together, the positive control of that attack"""
    twin: bool | None = None
    """whether a sealed transcript equals that of its exact twin, where both ran"""


def _sure(got: Got) -> float:
    """The AUC less its margin."""
    return got.value - SIGMAS * got.error


def _aucs(cell: Figures) -> list[tuple[str, Got]]:
    named = (("labels", cell.labels), ("an attribute", cell.attribute), ("a row's order", cell.order))
    return [(what, got) for what, got in named if got is not None]


def ok_is_ok(cell: Figures) -> Iterator[str]:
    """A cell says *ok* and an attack ranks labels, or an attribute, with an AUC above 0.55."""
    for what, got in _aucs(cell):
        if got.severity == "ok" and _sure(got) > OK_AUC:
            yield f"says ok, and {got.attack} ranks {what} with AUC {got.value:.3f} ± {got.error:.3f}"


def note_is_small(cell: Figures) -> Iterator[str]:
    """A cell says *note* and an attack gains more than 0.05 of AUC, or 0.10 of R², over what is known without it."""
    for what, got in _aucs(cell):
        if got.severity == "note" and _sure(got) - got.without > NOTE_AUC_GAIN:
            yield f"says note, and {got.attack} ranks {what} with AUC {got.value:.3f} where {got.without:.3f} is known"
    got_features = cell.features
    if got_features is not None and got_features.severity != "leak" and _explains(got_features):
        yield f"says {got_features.severity}, and {_explained(got_features)}"


def noise_holds(cell: Figures) -> Iterator[str]:
    """Something under differential privacy is ranked better than Φ(μ/√2) + 0.03."""
    for what, got in _aucs(cell) if not cell.ranked else ():
        if _sure(got) > got.bound + DP_TOLERANCE:
            yield f"{got.attack} ranks {what} with AUC {got.value:.3f}, and its ε permits {got.bound:.3f}"


def epsilon_is_true(cell: Figures) -> Iterator[str]:
    """An audited lower bound on ε exceeds the reported ε."""
    for audited in cell.audits:
        if not audited.lower <= audited.reported:
            yield f"ε of {audited.what} is reported as {audited.reported:.3g} and was at least {audited.lower:.3g}"


def policies_hold(cell: Figures) -> Iterator[str]:
    """A policy with ``leaks = false`` admits a cell that measures as a leak."""
    for what, got in _aucs(cell):
        if got.admitted and _sure(got) > OK_AUC and _sure(got) - got.without > NOTE_AUC_GAIN:
            yield f"leaks = false admits it, and {got.attack} ranks {what} with AUC {got.value:.3f}"
    if cell.features is not None and cell.features.admitted and _explains(cell.features):
        yield f"leaks = false admits it, and {_explained(cell.features)}"


def shares_tell_nothing(cell: Figures) -> Iterator[str]:
    """Shares and masked values tell more than chance, or features more than final predictions alone do."""
    if not cell.protection.startswith("shares"):
        return
    for what, got in _aucs(cell):
        if got.value - max(got.without, 0.5) > NOISE * got.error:
            yield f"{got.attack} ranks {what} with AUC {got.value:.3f} ± {got.error:.3f}; {got.without:.3f} is known"
    found, told = cell.features, cell.predictions
    if found is not None and found.value - max(found.without, 0.0) > max(R2_MARGIN, NOISE * found.error):
        yield f"{_explained(found)}, final predictions included"
    if cell.uneven is not msgspec.UNSET and not cell.uneven <= 1:
        yield f"words that a computing party received are not uniform: {cell.uneven:.1f} times what chance gives"
    if told is not msgspec.UNSET and told.severity != "leak" and _explains(told):
        yield f"says {told.severity}, and {_explained(told)}"
    if cell.sums is not msgspec.UNSET and cell.sums.value - cell.sums.without > R2_MARGIN:
        yield f"{cell.sums.attack} gives away {cell.sums.value:.2f}, and guessing {cell.sums.without:.2f}"


def twins_agree(cell: Figures) -> Iterator[str]:
    """A sealed transcript differs from that of its exact twin."""
    if cell.twin is False:
        yield "what was opened differs from the exact twin's"


def _explains(got: Got) -> bool:
    return got.value - max(got.without, 0) - R2_MARGIN > NOTE_R2_GAIN


def _explained(got: Got) -> str:
    return f"{got.attack} gets features with R² {got.value:.2f} where {got.without:.2f} is known"


RULES: Sequence[Callable[[Figures], Iterator[str]]] = (
    ok_is_ok,
    note_is_small,
    noise_holds,
    epsilon_is_true,
    policies_hold,
    shares_tell_nothing,
    twins_agree,
)
"""Each says what is wrong with a cell, or nothing."""


def controls(cells: Sequence[Figures]) -> list[str]:
    """What is wrong with the positive controls: an attacker who gets nothing where all lies open proves nothing."""
    plain = [c for c in cells if c.protection == "plain" and c.algorithm.startswith("splitnn") and c.data != "amount"]
    labels = [c.labels.value for c in plain if c.labels is not None]
    features = [c.features.value for c in plain if c.algorithm == "splitnn, identity" and c.features is not None]
    found = []
    for what, values in (("labels of plain gradients", labels), ("features under identity bottoms", features)):
        worst = min(values, default=0.0)
        if not worst >= CONTROL:
            found.append(f"positive control: {what} are got with {worst:.3f}, and {CONTROL} was expected")
    for cell in cells:
        if cell.sums is not msgspec.UNSET:
            reached = cell.sums.value if cell.together is msgspec.UNSET else cell.together
            if not reached - cell.sums.without >= SUMS:
                found.append(
                    f"positive control: {cell.name} gives away {reached:.2f} by sums that lie open, and guessing "
                    f"{cell.sums.without:.2f}"
                )
        if cell.protection == "exact sums" and cell.labels is not None:
            got = cell.labels
            if not (got.value >= CONTROL and got.severity == "leak"):
                found.append(
                    f"positive control: {cell.name} says {got.severity}, and labels are got with {got.value:.3f}"
                )
    tests = sum(len(cell.ranked) for cell in cells if not cell.control)
    for cell in cells:
        if cell.control and not any(rejects(one, tests) for one in cell.ranked):
            best = max((one.value for one in cell.ranked), default=0.0)
            found.append(f"positive control: {cell.name} passes with AUC {best:.3f}, and its noise is too small")
    return found


def judge(cells: Sequence[Figures]) -> list[str]:
    """Everything that is wrong, in words; empty where the gate opens."""
    found = controls(cells)
    cells = [cell for cell in cells if not cell.control]
    found += broken_tests([(cell.name, one) for cell in cells for one in cell.ranked])
    for cell in cells:
        found += [f"{cell.name}: {text}" for rule in RULES for text in rule(cell)]
        for got in (cell.labels, cell.features, cell.attribute, cell.order):
            if got is not None and not math.isfinite(got.value):
                found.append(f"{cell.name}: an attack got {got.value}, which no rule can judge")
    return found

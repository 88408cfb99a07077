"""Recompute ε of each release recorded in the ledgers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from securevfl.errors import InputError
from securevfl.ledger import Flaw
from securevfl.privacy import READABLE_KINDS, Entry, GaussianRelease, LedgerChain, NoteLine, PureRelease, epsilon_rdp
from securevfl.transport import Kind

__all__ = ["Epsilon", "find_wrong_epsilons", "recompute_epsilons"]

_KINDS = {
    "activations": Kind.ACTIVATION,
    "gradients": Kind.GRADIENT,
    "representations": Kind.REPRESENTATION,
}
"""What is released → the kind of the messages that carry it."""

_TOLERANCE = 1e-4
"""Relative: another version of the accountant may round otherwise."""


@dataclass(frozen=True, slots=True)
class Epsilon:
    """Cost of one party's releases of one kind in one run, if one row's content is replaced.

    Attributes:
        run: name of the run.
        party: whose data it protects.
        what: ``"activations"`` or ``"gradients"``.
        epsilon: ε; infinite where content was released without noise.
        delta: δ.
        releases: of the row that was released most often.
        source: ``"ledger"``, or ``"no noise"``.
    """

    run: str
    party: str
    what: str
    epsilon: float
    delta: float
    releases: int
    source: str


def recompute_epsilons(chain: LedgerChain) -> Iterator[Epsilon]:
    """ε from the chain's notes; infinite where content left without noise.

    Raises:
        ValueError: a note without numbers; `find_wrong_epsilons` finds it first.
    """
    notes = [note for note in chain.notes if note.note == "epsilon"]
    for note in notes:
        epsilon, delta, releases = _read_numbers(note)
        yield Epsilon(chain.run, chain.party, str(note.values.get("what", "")), epsilon, delta, releases, "ledger")
    bare = {f"{entry.kind.value}s" for entry in chain.entries if entry.way == "sent" and _is_bare(entry)}
    if any(note.values.get("what") == "labels" for note in notes):
        bare.discard("gradients")  # they were computed from labels that randomised response had drawn
    yield from (Epsilon(chain.run, chain.party, what, float("inf"), 0.0, 0, "no noise") for what in sorted(bare))


def _read_numbers(note: NoteLine) -> tuple[float, float, int]:
    values = note.values
    epsilon = next((values[name] for name in ("epsilon", "epsilon_rdp", "epsilon_prv") if name in values), "inf")
    releases = next((values[name] for name in ("releases", "times") if name in values), 0)
    return float(epsilon), float(values.get("delta", 0.0)), int(releases)


def find_wrong_epsilons(chain: LedgerChain) -> Iterator[Flaw]:
    """Notes whose ε differs from the cost of the recorded release, or that claim more noise than the messages carried;
    and noisy messages without any note in a run that ended well.
    """
    noisy: dict[Kind, float] = {}
    for entry in chain.entries:
        if entry.way == "sent" and entry.noise > 0 and entry.kind in READABLE_KINDS:
            noisy[entry.kind] = min(entry.noise, noisy.get(entry.kind, math.inf))
    notes = [(at, n) for at, n in zip(chain.notes_at, chain.notes, strict=True) if n.note == "epsilon"]
    for at, note in notes:
        text = _explain_wrong(note, noisy)
        if text:
            yield Flaw(chain.file, at, chain.party, text)
    if noisy and not notes and chain.outcome == "done":
        yield Flaw(chain.file, chain.last, chain.party, "messages left with noise, but no note records their ε")


def _explain_wrong(note: NoteLine, noisy: dict[Kind, float]) -> str:
    try:
        epsilon, delta, _ = _read_numbers(note)
        release = _build_release(note)
    except (ValueError, TypeError, OverflowError, InputError):
        return "a note of ε without numbers"
    what, sigma = str(note.values.get("what", "")), note.values.get("noise_multiplier", 0.0)
    least = noisy.get(_KINDS[what]) if what in _KINDS else None
    if least is not None and isinstance(sigma, float) and sigma > least * (1 + _TOLERANCE):
        return f"the note of ε records σ/Δ = {sigma:.4g} for {what}, but one of the messages carried {least:.4g}"
    if release is None:
        return ""
    try:
        again = epsilon_rdp(release, delta)
    except InputError:
        return f"the note of ε records an impossible δ = {delta}"
    if abs(again - epsilon) > _TOLERANCE * max(again, 1e-9):
        return f"the note records ε = {epsilon:.4g} for {what}, but the recorded release costs {again:.4g}"
    return ""


def _build_release(note: NoteLine) -> GaussianRelease | PureRelease | None:
    """The release that the note describes."""
    values = {name.removeprefix("release."): v for name, v in note.values.items() if name.startswith("release.")}
    kind = values.pop("kind", None)
    if kind == "GaussianRelease":
        return GaussianRelease(
            float(values["noise_multiplier"]), int(values["times"]), float(values.get("sample_rate", 1.0))
        )
    if kind == "PureRelease":
        return PureRelease(float(values["epsilon"]), int(values["times"]), int(values.get("classes", 2)))
    return None


def _is_bare(entry: Entry) -> bool:
    return entry.kind in READABLE_KINDS and entry.guard.is_readable

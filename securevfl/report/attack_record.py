"""What attacks on a job got, as `attacks.json` holds it: plain values beside what the job states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from securevfl.attacks import AttackScore
from securevfl.report.record_files import read_record

__all__ = ["ATTACK_FORMAT", "AttackLine", "AttackRecord", "Claimed", "attack_lines", "attacks_beside"]

ATTACK_FORMAT = 1


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What the job states of one party's learning about another."""

    party: str
    about: str
    severity: str
    """"ok", "note" or "leak" """
    learns: str


class AttackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Attacks on a job: all figures, as in `attacks.json`."""

    format: int = ATTACK_FORMAT
    name: str
    title: str
    created: str
    """UTC, ISO 8601"""
    command: str
    versions: dict[str, str]
    machine: dict[str, str]
    job: dict[str, object]
    seeds: list[int]
    test: dict[str, float]
    """metrics of the job on its test rows, the mean over the seeds"""
    seconds: float
    claims: list[Claimed]
    measured: list[AttackScore]
    contradictions: list[str]
    """claims of *ok* that an attack proved false: empty is what a job should have"""
    unstated: list[str]
    """what an attack got and the job states nothing of"""

    def to_json(self) -> bytes:
        """UTF-8 JSON, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def read(cls, path: Path) -> AttackRecord:
        """Read `attacks.json`.

        Raises:
            InputError: no such file, or not a record of this format.
        """
        missing, again = "run securevfl attack first", "run securevfl attack again"
        return read_record(path, cls, format=ATTACK_FORMAT, what="attacks", missing=missing, again=again)


class AttackLine(msgspec.Struct, frozen=True, kw_only=True):
    """One attack of one party on another, the mean over the seeds."""

    attacker: str
    victim: str
    attack: str
    target: str
    metric: str
    known: int
    value: float
    baseline: float
    spread: float
    """half the range over the seeds, or the standard error of one seed"""
    rows: int
    severity: str
    """the worst that the job states of this pair; empty where it states nothing"""

    @property
    def gain(self) -> float:
        """Over the attacker without the view."""
        return self.value - self.baseline


def attack_lines(record: AttackRecord) -> list[AttackLine]:
    """The figures as tables and pictures show them, attacks of one pair together."""
    worst: dict[tuple[str, str], str] = {}
    order = ("", "ok", "note", "leak")
    for claim in record.claims:
        pair = claim.party, claim.about
        worst[pair] = max(worst.get(pair, ""), claim.severity, key=order.index)
    groups: dict[tuple[str, str, str, str, int], list[AttackScore]] = {}
    for one in record.measured:
        groups.setdefault((one.attacker, one.victim, one.attack, one.target, one.known), []).append(one)
    return [_make_line(found, worst) for found in groups.values()]


def _make_line(found: Sequence[AttackScore], worst: dict[tuple[str, str], str]) -> AttackLine:
    first, values = found[0], [one.value for one in found]
    victims = first.victim.split(", ")
    stated = [worst.get((first.attacker, victim), "") for victim in victims]
    return AttackLine(
        attacker=first.attacker,
        victim=first.victim,
        attack=first.attack,
        target=first.target,
        metric=first.metric,
        known=first.known,
        value=sum(values) / len(values),
        baseline=sum(one.baseline for one in found) / len(found),
        spread=(max(values) - min(values)) / 2 if len(values) > 1 else first.error,
        rows=first.rows,
        severity=stated[0] if len(set(stated)) == 1 else "",
    )


def attacks_beside(folder: Path) -> AttackRecord | None:
    """The attacks whose figures are in a run's folder; None where there are none.

    Raises:
        InputError: the file is there and is no record of attacks.
    """
    file = folder / "attacks.json"
    return AttackRecord.read(file) if file.exists() else None

"""What the matrix asks of each run: everybody ended, the model is right, nothing was counted too low, nobody honest is
convicted, messages name the right party, exit codes say rightly whether to start again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.faults.asking import QUESTIONS, read_answers, read_failures
from benchmarks.faults.course import Told
from benchmarks.faults.expected import FAULTS, starts_again
from benchmarks.faults.party import ANSWERS
from securevfl.errors import SecureVFLError
from securevfl.ledger.key_files import read_private_key
from securevfl.privacy import ResultBook
from securevfl.report import Record
from securevfl.run.store import read_tree, tree_digest

__all__ = ["Reference", "judge"]

TOLERANCE = 0.1
"""Largest difference of a metric or a score between two runs under fresh masks, which round differently."""


@dataclass(frozen=True)
class Reference:
    """The undisturbed run of the same job and phase.

    Attributes:
        folder: of it.
        names: of the parties.
        exact: whether the disturbed run must give the same bits.
        alike: whether it must give nearly the same numbers.
    """

    folder: Path
    names: Sequence[str]
    exact: bool
    alike: bool


def judge(folder: Path, phase: str, fault: str, victim: str, peer: str, told: Told, reference: Reference) -> list[str]:
    """What is broken in a run, each with its class: ``"stuck: …"``; empty where nothing is.

    Args:
        folder: of the run.
        phase, fault: of the cell.
        victim: whom the fault harmed.
        peer: at the other end of the harmed link.
        told: what came of it.
        reference: the undisturbed run.
    """
    broken: list[str] = []
    expects = FAULTS[fault]
    final = {name: codes[-1] if codes else None for name, codes in told.codes.items()}
    if not told.ended:
        waiting = ", ".join(f"{name} after {codes}" for name, codes in told.codes.items())
        return [f"stuck: not everybody ended within the deadline ({waiting})"]
    done = (0, 75) if phase == "serving" else (0,)  # a server ends by the signal that the run sends it at the end
    wrong = {name: code for name, code in final.items() if name in reference.names and code not in done}
    if expects.goes_on:
        broken += [
            f"{'exit class' if name == victim or name in told.left else 'ends'}: {name} ended with {code} "
            f"({'again' if starts_again(code or 0) else 'not again'}): {_last_words(told.texts[name])}"
            for name, code in wrong.items()
        ]
    elif (victim not in wrong and phase in expects.may_end) or (
        victim not in wrong and phase in expects.then_goes_on and _was_named(folder, expects.words, victim)
    ):
        pass
    elif victim not in wrong:
        broken.append(f"accepted: {victim} must be refused, and reached its end")
    elif starts_again(final[victim] or 0):
        broken.append(f"exit class: {victim} is refused for good, and ended with {final[victim]}, which says again")
    if (
        fault == "folder copied"
        and (code := final.get(f"{victim}.copy")) is not None
        and starts_again(code)
        and code > 0
    ):
        broken.append(f"exit class: the copy of {victim} ended with {code}, which says again")
    broken += _judge_words(expects.words, victim, told, wrong)
    broken += _judge_names(expects.harms, victim, peer, told, wrong, reference.names)
    if not wrong:
        broken += _judge_model(folder, phase, reference)
    answers = phase in ("prediction", "serving")
    # Training counts in its folder, which is old; what predictions and servers count is beside it.
    counted = [name for name in reference.names if answers or fault != "folder restored" or name != victim]
    broken += _judge_counts(folder, counted, with_report=not wrong and not answers, answers=answers)
    if fault != "folder restored":  # the older folder's ledger lacks lines, and an audit has to say so
        broken += _judge_audit(folder, reference.names)
    return broken


def _is_named(words: Sequence[str], text: str) -> bool:
    return any(word in text for word in words)


def _was_named(folder: Path, words: Sequence[str], name: str) -> bool:
    """Whether one of a party's processes, not only the last one, said one of these words."""
    path = folder / f"{name}.out"
    return path.exists() and _is_named(words, path.read_text(errors="replace"))


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("---")]
    return " ".join(lines[-1:])[:300]


def _judge_words(words: Sequence[str], victim: str, told: Told, wrong: Mapping[str, int | None]) -> list[str]:
    refused = told.texts.get(f"{victim}.copy") or (told.texts[victim] if victim in wrong else "")
    if words and refused and not _is_named(words, refused):
        return [f"cause: {victim} ended without the reason ({' or '.join(words)}): {_last_words(refused)}"]
    return []


def _judge_names(
    harms: str, victim: str, peer: str, told: Told, wrong: Mapping[str, int | None], names: Sequence[str]
) -> list[str]:
    """Whether messages of parties that were not harmed name somebody who was."""
    broken = []
    for name in names:
        text = told.texts[name]
        guilty = {victim} if harms == "party" else {victim, peer}
        if name in wrong and name not in guilty and name not in told.left:
            named = {other for other in names if re.search(rf"\b{other}\b", _last_words(text)) and other != name}
            if not named & guilty:
                broken.append(f"cause: {name} does not name {' or '.join(sorted(guilty))}: {_last_words(text)}")
            elif named - guilty:
                broken.append(f"cause: {name} also names {', '.join(sorted(named - guilty))}: {_last_words(text)}")
        if name not in guilty:
            for other in set(names) - guilty - {name}:
                if f"{other} is not connected" in text and "its process ended" not in text:
                    broken.append(f"cause: {name} lost {other}, which nobody harmed")
    return broken


def _judge_model(folder: Path, phase: str, reference: Reference) -> list[str]:
    if phase == "serving":
        found, wanted = read_answers(folder), read_answers(reference.folder)
        if len(found) != QUESTIONS:
            return [f"model: {len(found)} of {QUESTIONS} questions were answered"]
        if 404 in read_failures(folder):
            return ["cause: a question about a common customer was answered with 404: nobody can score this customer"]
        off = max(float(np.abs(np.subtract(found[name], wanted[name])).max()) for name in wanted)
        return _judge_distance(off, reference, "an answer")
    if phase == "prediction":
        file = "bank.predictions.csv"
        if not (folder / file).exists():
            return ["model: no predictions were written"]
        same = (folder / file).read_bytes() == (reference.folder / file).read_bytes()
        return _judge_distance(
            0.0 if same else _scores_off(folder / file, reference.folder / file), reference, "a score"
        )
    broken = []
    for name in reference.names:
        part = Path(f"{name}.state") / "model" / f"{name}.model.safetensors"
        if not (folder / part).exists():
            if (reference.folder / part).exists():
                broken.append(f"model: {name} has no part")
            continue
        if not reference.exact:
            continue
        if tree_digest(read_tree(folder / part)) != tree_digest(read_tree(reference.folder / part)):
            broken.append(f"model: the part of {name} differs from the undisturbed run's; it must not")
    off = _metrics_off(folder, reference.folder, drawn=len(reference.names) > 2)
    return broken + _judge_distance(off, reference, "a metric of the test rows")


def _judge_distance(off: float, reference: Reference, what: str) -> list[str]:
    if reference.exact and off > 0:
        return [f"model: {what} differs from the undisturbed run's by {off:.2g}; it must not differ"]
    if reference.alike and not off <= TOLERANCE:
        return [f"model: {what} differs from the undisturbed run's by {off:.2g}; rounding explains {TOLERANCE}"]
    return []


def _scores_off(one: Path, other: Path) -> float:
    rows = [[line.split(",") for line in path.read_text().splitlines()[1:]] for path in (one, other)]
    if [row[0] for row in rows[0]] != [row[0] for row in rows[1]]:
        return float("inf")
    return float(np.abs(np.subtract(*[[float(row[1]) for row in found] for found in rows])).max())


def _metrics_off(one: Path, other: Path, *, drawn: bool) -> float:
    """The largest difference of the test rows' metrics in the reports of the bank. On secret shares every run draws its
    first weights: there it is that of the log-loss, because the others count a few rows.
    """
    found, wanted = (
        Record.read(folder / "bank.state" / "report" / "metrics.json").runs[0].test for folder in (one, other)
    )
    if found.keys() != wanted.keys():
        return float("inf")
    judged = wanted if not drawn else {"log_loss"}
    return max((abs(found[name] - wanted[name]) for name in judged), default=0.0)


def _judge_counts(folder: Path, names: Sequence[str], *, with_report: bool, answers: bool) -> list[str]:
    """Whether what left was counted: releases in ε, numbers and sets of metrics in the result books."""
    broken = []
    for name in names:
        made: Counter[tuple[str, str]] = Counter()
        for what, asker, count in _read_lines(folder / f"{name}.answered.jsonl"):
            made[what, asker] += count
        if made:
            try:
                key = read_private_key(folder / "keys" / f"{name}.key")
                book = ResultBook(folder / f"{name}.results.jsonl", party=name, key=key)
                told = {"numbers": book.running, "metrics": book.metric_sets}
                for (what, asker), count in made.items():
                    if told[what](asker) < count:
                        broken.append(
                            f"counts: {name} gave {count} {what} to {asker}, its book has {told[what](asker)}"
                        )
            except SecureVFLError as error:
                broken.append(f"counts: {name}'s book cannot be read: {error}")
        if with_report:
            broken += _judge_releases(folder, name)
        if answers:
            broken += _judge_answered(folder, name)
    return broken


def _judge_releases(folder: Path, name: str) -> list[str]:
    counts: dict[str, Counter[int]] = {}
    for key, rows in _read_lines(folder / f"{name}.made.jsonl"):
        if key == ANSWERS:
            continue
        counts.setdefault(key, Counter()).update(rows)
    broken = []
    for key, rows_of in counts.items():
        (record,) = Record.read(folder / f"{name}.state" / "report" / "metrics.json").runs
        what = key.rsplit(" ", 1)[1]
        made = max(rows_of.values())
        told = max((e.releases for e in record.epsilon if e.party == name and e.what == what), default=0)
        if told < made:
            broken.append(f"counts: {key} was released {made} times, ε counts {told}")
    return broken


def _judge_answered(folder: Path, name: str) -> list[str]:
    """Whether each noisy row that left for an answer is among the releases that the party counted on its disk."""
    made: Counter[int] = Counter()
    for key, rows in _read_lines(folder / f"{name}.made.jsonl"):
        if key == ANSWERS:
            made.update(rows)
    told: Counter[str] = Counter()
    for file in (folder / f"{name}.results.days").glob("counts-*.jsonl"):
        for line in _read_lines(file):
            (told.subtract if "back" in line else told.update)(line["released"])
    broken = []
    if told.total() < made.total():
        broken.append(f"counts: {name} released {made.total()} noisy rows for answers, it counted {told.total()}")
    most = [max(found.values(), default=0) for found in (made, told)]
    if most[1] < most[0]:
        broken.append(f"counts: {name} released a row {most[0]} times for answers, ε counts {most[1]}")
    return broken


def _read_lines(path: Path) -> list[Any]:
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):  # the last line, which a kill cut off
            found.append(json.loads(line))
    return found


def _judge_audit(folder: Path, names: Sequence[str]) -> list[str]:
    """Whether the ledgers of parties that all followed the protocol convict somebody."""
    collected = folder / "collected"
    shutil.rmtree(collected, ignore_errors=True)
    collected.mkdir()
    for name in names:
        file = folder / f"{name}.state" / "ledgers" / f"{name}.jsonl"
        if file.exists():
            shutil.copy(file, collected)
    if not any(collected.iterdir()):
        return []
    try:
        sv.audit(collected)
    except SecureVFLError as error:
        return [f"audit: {error}"[:400]]
    return []

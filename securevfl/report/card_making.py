"""How a card is made: the worst of what findings tell of each kind of data, and of what attacks got of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from securevfl.privacy import OTHER_OWNERS
from securevfl.privacy.attack_verdict import measures_as_leak
from securevfl.privacy.severity import READ_AUC
from securevfl.report.attack_record import AttackLine, AttackRecord, attack_lines
from securevfl.report.card import STANDINGS, Card, CardCell, Column, Group, Standing
from securevfl.report.record import FigureRecord, LearnedRecord, MemberRecord, PartyRecord, RunRecord, SightRecord

__all__ = ["NUMBERS_SHARE", "make_card", "make_run_card", "rate_finding", "rate_numbers"]

_MOST = 4
"""More parties of one role share a row and a column."""

NUMBERS_SHARE = 1 / 4
"""Of a party's columns: more numbers of each row than that are as good as reading it."""

_SAYS = 60
"""Most characters of a cell's sentence that comes from the words of a finding."""


def make_run_card(
    run: RunRecord, parties: Sequence[PartyRecord], attacked: AttackRecord | None = None, *, title: str = ""
) -> Card | None:
    """The card of one run; None if no party could read anything of another, as in a run of one party.

    Args:
        run: with what its messages reveal.
        parties: of the record.
        attacked: attacks on the same job; their figures replace those from recorded runs.
        title: as shown; the run's unless given.
    """
    known = {party.name for party in parties}
    ends = dict.fromkeys(name for link in run.links for name in (link.sender, link.receiver))
    helpers = [PartyRecord(name=name, role="coordinator", rows=0, columns=[]) for name in ends if name not in known]
    title = title or run.title
    return make_card(run.learned, [*parties, *helpers], attacked, title=title, assumes=run.assumes, members=run.members)


def rate_numbers(numbers: int | None, columns: int) -> Standing:
    """The standing of an answer, by how many numbers of each row its receiver is ever given.

    Args:
        numbers: the most; None without a bound.
        columns: of the party whose rows they are; 0 where that is not known here.
    """
    if numbers is None:
        return "reads it"
    if not columns:
        return "not known yet"
    return "reads it" if numbers > NUMBERS_SHARE * columns else "bounded"


def make_card(
    learned: Sequence[LearnedRecord],
    parties: Sequence[PartyRecord],
    attacked: AttackRecord | None = None,
    *,
    title: str = "",
    assumes: str = "",
    members: Sequence[MemberRecord] = (),
) -> Card | None:
    """See `make_run_card`, for a job that has not run."""
    roles = {party.name: party.role for party in parties}
    told = dict(_collect_pairs(learned, roles))
    readers = [*roles, *dict.fromkeys(reader for reader, _ in told if reader not in roles)]
    if not told or len(readers) < 2:
        return None
    rows = _group_parties(readers, roles)
    owners = _group_parties([name for name, role in roles.items() if role != "coordinator"], roles)
    columns = tuple(
        Column(owner, of)
        for owner in owners
        for of in (("features", "labels") if owner.role == "active" else ("features",))
    )
    got = _index_attacks(attacked)
    widths = {party.name: len(party.columns) for party in parties}
    return Card(
        title=title,
        assumes=assumes,
        rows=tuple(rows),
        columns=columns,
        cells=tuple(tuple(_make_cell(row, column, told, got, widths) for column in columns) for row in rows),
        rows_told=_rows_told(told),
        members=tuple(_make_member_cell(row, members) for row in rows) if members else (),
    )


def _make_member_cell(row: Group, members: Sequence[MemberRecord]) -> CardCell:
    """The worst that a party of the group learns of who is whose customer."""
    found = [one for one in members if one.party in row.names]
    worst = min(found, key=lambda one: STANDINGS.index(_member_standing(one)), default=None)
    standing: Standing = "nothing found" if worst is None else _member_standing(worst)
    says = "which rows are common is not told" if worst is None else worst.says
    return CardCell(reader=row.title, about="", of="membership", standing=standing, says=says)


def _member_standing(one: MemberRecord) -> Standing:
    return next((known for known in STANDINGS if known == one.standing), "reads it")


Told = Mapping[tuple[str, str], Sequence[LearnedRecord]]
"""(who learns, about whom) → what."""


def _collect_pairs(learned: Sequence[LearnedRecord], roles: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], Any]]:
    found: dict[tuple[str, str], list[LearnedRecord]] = {}
    owners = [name for name, role in roles.items() if role == "active"]
    for line in learned:
        for about in line.about.split(", "):
            readers = (
                [name for name in owners if name != about] if line.party == OTHER_OWNERS else line.party.split(", ")
            )
            for reader in readers:
                found.setdefault((reader, about), []).append(line)
    yield from found.items()


def _group_parties(names: Sequence[str], roles: Mapping[str, str]) -> list[Group]:
    """One group a party; more than a few parties of one role share a group."""
    found: list[Group] = []
    for role in dict.fromkeys(roles.get(name, "coordinator") for name in names):
        mine = tuple(name for name in names if roles.get(name, "coordinator") == role)
        found += [Group(mine, role)] if len(mine) > _MOST else [Group((name,), role) for name in mine]
    return found


def _make_cell(
    row: Group,
    column: Column,
    told: Told,
    got: Mapping[tuple[str, str, str], tuple[AttackLine, bool]],
    widths: Mapping[str, int],
) -> CardCell:
    """The worst over the parties of a group; `widths` are the numbers of their columns."""
    pairs = [(a, b) for a in row.names for b in column.owner.names if a != b]
    cell = CardCell(reader=row.title, about=column.owner.title, of=column.of, standing="its own")
    if not pairs:
        return cell
    found = [
        _make_pair_cell(cell, told.get(pair, ()), column, got.get((*pair, column.of)), widths.get(pair[1], 0))
        for pair in pairs
    ]
    return min(found, key=lambda one: STANDINGS.index(one.standing))


def _make_pair_cell(
    cell: CardCell,
    learned: Sequence[LearnedRecord],
    column: Column,
    attack: tuple[AttackLine, bool] | None,
    columns: int,
) -> CardCell:
    labels = column.owner.role == "active"

    def rank(sight: SightRecord) -> tuple[int, bool, bool, float]:
        return _sort_key(sight, columns)

    sights = [sight for line in learned for sight in _list_sights(line, labels=labels) if sight.of == column.of]
    worst = min(sights, key=rank, default=None)
    standing: Standing = "nothing found" if worst is None else _rate_sight(worst, columns)
    says = "no message reveals it" if worst is None else _describe_sight(worst)
    figure, source = ("", "") if worst is None else _cite_figure(worst)
    if worst is not None and worst.result:
        besides = min((sight for sight in sights if not sight.result), key=rank, default=None)
        beyond, measured = _describe_other_sights(besides, columns)
        says = f"{says}, {_describe_numbers(worst.numbers, columns)}; {beyond}"
        figure = f"each party's own card has its figure; one number elsewhere: {figure}{measured}" if figure else ""
    if attack is not None:
        line, read = attack
        figure, source = _attack_figure(line), "attacks on this job"
        known = None if worst is None else worst.measured
        if known is not None and (line.metric == "AUC") == (column.of == "labels") and known.got > line.value + 0.005:
            figure += f"; {known.got:.2f} elsewhere"
        if standing == "nothing found" and read:
            standing, says = "reads it", f"an attack did: {line.attack}"
    return CardCell(
        reader=cell.reader,
        about=cell.about,
        of=cell.of,
        standing=standing,
        says=says,
        figure=figure,
        source=source,
    )


def _describe_numbers(numbers: int | None, columns: int) -> str:
    if numbers is None:
        return "of each row as many numbers as are asked for"
    if not columns:
        return f"at most {numbers} numbers of each row: what that bounds is not known before the columns are counted"
    return f"at most {numbers} of {columns} numbers of each row"


def _describe_other_sights(besides: SightRecord | None, columns: int) -> tuple[str, str]:
    """What is revealed beside the result, and what attacks measured of it."""
    if besides is not None and _rate_sight(besides, columns) != "nothing found":
        return f"and {_describe_sight(besides)}", ""
    if besides is None or besides.measured is None:
        return "beyond them nothing found", ""
    return "beyond them nothing found", f"; beyond them {_find_measured(besides.of, besides.measured)}"


def _describe_sight(sight: SightRecord) -> str:
    return f"{'only' if sight.severity == 'ok' else 'from'} {sight.through}"


def _list_sights(line: LearnedRecord, *, labels: bool) -> list[SightRecord]:
    """What a finding reveals; without a breakdown, its severity applies to everything the other party has."""
    if line.sights:
        return line.sights
    words = _first_words(line.learns)
    kinds = ("features", "labels") if labels else ("features",)
    return [SightRecord(of=of, severity=line.severity, through=words) for of in kinds]


def _first_words(text: str) -> str:
    """A finding up to the first punctuation mark, where its explanation begins."""
    for mark in (":", ";", " (", ", and ", ", from ", ", which "):
        text = text.partition(mark)[0]
    return text if len(text) <= _SAYS else text[:_SAYS].rpartition(" ")[0] + " …"


def _rate_sight(sight: SightRecord, columns: int) -> Standing:
    """The standing of a sight; an unknown severity counts as the worst."""
    if sight.severity == "ok":
        return "nothing found"
    if sight.result:
        return rate_numbers(sight.numbers, columns)
    if sight.severity == "note" or sight.budget:
        return "bounded"
    return "bounded" if sight.epsilon is not None and sight.auc is not None and sight.auc < READ_AUC else "reads it"


def rate_finding(line: LearnedRecord, widths: Mapping[str, int], abouts: Sequence[str] = ()) -> str:
    """The severity of a finding as the card rates it, so that both have one colour: what a job is for is a leak only
    where it is more than a few numbers of each row.

    Args:
        line: the finding; one that nobody took apart keeps its severity.
        widths: party → number of its columns; none where they are not known here.
        abouts: of which parties; of all that the finding is about, the worst, unless given.
    """
    if not line.sights:
        return line.severity
    standings = [
        _rate_sight(sight, widths.get(about, 0)) for about in abouts or line.about.split(", ") for sight in line.sights
    ]
    worst = min(standings, key=STANDINGS.index)
    return {"reads it": "leak", "nothing found": "ok"}.get(worst, "note")


def _sort_key(sight: SightRecord, columns: int) -> tuple[int, bool, bool, float]:
    """Sorts the worst first; of equal standings, what is told beside the result, then the largest figure."""
    permits = sight.auc if sight.auc is not None else 1.0
    measured = sight.measured.got if sight.measured is not None else permits
    bare = sight.measured is None and sight.auc is None and not sight.budget
    return STANDINGS.index(_rate_sight(sight, columns)), sight.result, bare, -measured


def _cite_figure(sight: SightRecord) -> tuple[str, str]:
    """The bound or the measurement of a sight, and its source."""
    if sight.budget:
        return sight.budget, "the job's own bound"
    if sight.auc is not None:
        if sight.epsilon is None:
            return "ε grows with every release", "the plan sets no bound"
        return f"ε = {sight.epsilon:.3g}: AUC at most {math.ceil(sight.auc * 100 - 1e-9) / 100:.2f}", "what ε permits"
    if sight.measured is None:
        return "", ""
    return _find_measured(sight.of, sight.measured), f"attacks on recorded runs; {sight.measured.cell}"


def _find_measured(of: str, found: FigureRecord) -> str:
    if found.after:
        shares = ", ".join(f"{_percent(share)} after {trees}" for trees, share in found.after.items())
        return f"cells computed: {shares} trees ({_percent(found.without)} guessed)"
    if of == "labels":
        return f"AUC {found.got:.2f} ({max(found.without, 0.5):.2f} without)"
    return f"R² {found.got:.2f} ({max(found.without, 0.0):.2f} without)"


def _percent(share: float) -> str:
    return f"{math.floor(100 * share + 0.5)} %"


def _index_attacks(record: AttackRecord | None) -> Mapping[tuple[str, str, str], tuple[AttackLine, bool]]:
    """(attacker, victim, kind of data) → the attack that gained most, and whether any counts as a leak."""
    kinds = {"labels": "labels"}
    kinds |= dict.fromkeys(("features", "attribute", "others' columns", "predictions: final"), "features")
    best: dict[tuple[str, str, str], tuple[AttackLine, bool]] = {}
    if record is None:
        return best
    leaked = {(one.attacker, one.victim, one.attack) for one in record.measured if measures_as_leak(one)}
    for line in attack_lines(record):
        kind = next((of for start, of in kinds.items() if line.attack.startswith(start)), None)
        for victim in line.victim.split(", ") if kind is not None else ():
            key = line.attacker, victim, kind or ""
            before, read = best.get(key, (line, False))
            read = read or (line.attacker, line.victim, line.attack) in leaked
            best[key] = (line if line.gain > before.gain else before), read
    return best


def _attack_figure(line: AttackLine) -> str:
    spread = f" ± {line.spread:.2f}" if line.spread >= 0.005 else ""
    floor = 0.5 if line.metric == "AUC" else 0.0
    return f"{line.metric} {max(line.value, 0.0):.2f}{spread} ({max(line.baseline, floor):.2f} without)"


def _rows_told(told: Told) -> tuple[str, ...]:
    """What parties learn of rows but not of values in them, a sentence each."""
    found: dict[str, dict[str, None]] = {}
    for (reader, about), learned in told.items():
        for line in learned:
            if any(sight.of == "rows" for sight in line.sights):
                found.setdefault(f"of {about}: {line.learns}", {})[reader] = None
    return tuple(f"{', '.join(readers)} {text}" for text, readers in found.items())

"""Unbalanced alignments of two agreements, over TLS: the second needs no filter; and the folder that keeps one."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.align import alignment_exchanges
from securevfl.align.shelf import FolderShelf
from securevfl.process.party_process import JobProcess
from securevfl.testing.company import Company, create_company

DAY = 86_400
JOB = sv.Job(
    protection=sv.Plain(),
    algorithm=sv.SplitNN(hidden=4),
    epochs=1,
    batch_size=16,
    seed=3,
    align=sv.Align(protocol="unbalanced", keep_days=7),
)


def _steps(ran: dict[str, JobProcess]) -> set[str]:
    steps: set[str] = set()
    for party in ran.values():
        assert party.finished is not None
        steps |= {entry.what for entry in party.finished.ledger.entries if entry.what.startswith("psi/")}
    return steps


def _rows(ran: dict[str, JobProcess], company: Company) -> list[list[str]]:
    told = []
    for name, party in ran.items():
        assert party.finished is not None
        (alignment,) = party.finished.alignments.values()
        assert "filters may be kept for 7 days" in alignment.protocol
        told.append([company.people[name].ids[row] for row in alignment.rows])
    return told


def test_a_second_agreement_between_the_same_parties_needs_no_filter(tmp_path: Path) -> None:
    one, other = (create_company(tmp_path / name, make_parties(passive=1, rows=60), JOB) for name in ("one", "other"))
    first = one.over_network()
    for name in one.names:
        assert len(list((one.folder / f"{name}.filters").glob("*.psi"))) == 1
        shutil.copytree(one.folder / f"{name}.filters", other.folder / f"{name}.filters")
    again = other.over_network()
    assert _steps(first) - _steps(again) == {"psi/filter"}
    assert _steps(again) <= _steps(first)
    lists = _rows(first, one) + _rows(again, other)
    assert all(rows == lists[0] for rows in lists)
    assert set(lists[0]) == set(one.people["bank"].ids) & set(one.people["shop1"].ids)


def test_a_simulation_keeps_nothing_and_the_option_is_for_unbalanced_alone(tmp_path: Path) -> None:
    result = sv.simulate(JOB, make_parties(passive=1, rows=60))
    assert "unbalanced PSI" in result.record.alignment.protocol
    with pytest.raises(sv.InputError, match=r"only 'unbalanced' has a filter to keep"):
        sv.Align(keep_days=3)


def test_what_kept_filters_tell_stands_in_the_declarations() -> None:
    told = {}
    for days in (None, 7):
        declared = alignment_exchanges(1, align=sv.Align(protocol="unbalanced", keep_days=days))
        told[days] = {exchange.reveals for exchange in declared if "earlier job" in exchange.reveals}
    assert told[None] == set()
    assert told[7] == {
        "whether its table changed since an earlier job",
        "whether it kept the filter of an earlier job",
    }


class _Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_shelf_keeps_for_its_owner_alone_and_as_long_as_was_agreed(tmp_path: Path) -> None:
    clock = _Clock()
    folder = tmp_path / "deep" / "filters"
    week, day = FolderShelf(folder, 7, clock), FolderShelf(folder, 1, clock)
    assert week.load("x") is None
    assert not folder.exists()
    week.save("publication for shop/../x", b"secret")
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert week.load("publication for shop/../x") == day.load("publication for shop/../x") == b"secret"
    assert week.load("publication for shop") is None
    clock.now += DAY
    assert day.load("publication for shop/../x") is None  # too old for an agreement of one day
    assert week.load("publication for shop/../x") == b"secret"
    clock.now -= 2 * DAY
    assert week.load("publication for shop/../x") is None  # made in the future
    clock.now += 7 * DAY + DAY
    day.save("another", b"")
    assert [one.name for one in folder.iterdir()] == [day._path_of("another").name]  # keys do not outlive their time
    day._path_of("another").write_bytes(b"short")
    assert day.load("another") is None
    day.save("another", b"1")
    day.drop("another")
    day.drop("another")
    assert day.load("another") is None


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(sv.InputError, match="cannot be a folder"):
        FolderShelf(file, 7).save("x", b"")
    shelf = FolderShelf(tmp_path, 7)
    shelf._path_of("x").mkdir()
    with pytest.raises(sv.InputError, match="cannot be read"):
        shelf.load("x")

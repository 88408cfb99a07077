"""Checkpoints: whole, of this job and these tables, with their journal; and what a break costs is never forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.privacy import Journal
from securevfl.privacy.rows import RowRelease
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.run.store import read_tree

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(), bottom=(3,)), epochs=3, batch_size=32)
NOISY = JOB.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=30.0))))


class Fails(sv.Observer):
    def __init__(self, after: int) -> None:
        self.after = after

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self.after:
            raise OSError("the lights went out")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that broke off in epoch 3: every party has a checkpoint of 1 and 2."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with pytest.raises(sv.PartyFailed):
        sv.simulate(JOB, make_parties(rows=60), checkpoints=folder, observer=Fails(3))
    return folder


@pytest.fixture
def copied(broken: Path, tmp_path: Path) -> Path:
    shutil.copytree(broken, tmp_path / "copy")
    return tmp_path / "copy" / "plain"


def _resumed(folder: Path, people: sv.Parties | None = None) -> sv.Result:
    return sv.simulate(JOB, people or make_parties(rows=60), checkpoints=folder.parent)


def test_a_folder_is_its_owners_alone(copied: Path) -> None:
    _resumed(copied)
    assert copied.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in copied.iterdir()} == {0o600}


@pytest.mark.parametrize("damage", ["truncated", "empty", "zeros", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_and_named(damage: str, copied: Path) -> None:
    whole = sv.simulate(JOB, make_parties(rows=60))
    path = copied / "shop1.epoch-2.safetensors"
    data = path.read_bytes()
    half = len(data) // 2
    cut = {"truncated": data[:half], "empty": b"", "zeros": bytes(len(data))}
    path.write_bytes(cut.get(damage, data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]))
    again = _resumed(copied)
    np.testing.assert_array_equal(again.scores["plain"], whole.scores["plain"])
    assert any("shop1.epoch-2.safetensors is damaged" in note for note in again.run("plain").notes)
    assert any("resumed from epoch 1, which all parties saved intact" in note for note in again.run("plain").notes)


def _rename(folder: Path) -> None:
    for file in list(folder.glob("*.epoch-*")):
        epoch = int(file.name.split("epoch-")[1].split(".")[0])
        file.rename(str(file).replace(f"epoch-{epoch}", f"epoch-{epoch + 5}"))


def _delete_all_of_one(folder: Path) -> None:
    for file in list(folder.glob("shop1.epoch-*")):
        file.unlink()


def _shorten_journal(folder: Path) -> None:
    file = folder / "bank.journal.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "renamed": (_rename, r"epoch-\d+.safetensors contains a checkpoint of epoch \d: rename the file back"),
    "none left of one": (
        _delete_all_of_one,
        r"no epoch with an intact checkpoint of every party .*shop1: none.*bring the missing files",
    ),
    "no journal": (lambda folder: (folder / "bank.journal.jsonl").unlink(), "goes with a journal that is not there"),
    "a shorter journal": (_shorten_journal, "goes with a journal that is not there, or not as long as it was"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_make_epsilon_wrong_is_refused(name: str, copied: Path) -> None:
    change, words = REFUSED[name]
    change(copied)
    with pytest.raises(sv.InputError, match=words):
        _resumed(copied)


@pytest.mark.parametrize(
    ("people", "words"),
    [
        (
            lambda: make_parties(rows=60, seed=9),
            r"written with another table of 'bank' \(SHA-256 \w+…; this one has \w+…",
        ),
        (lambda: make_parties(rows=70), "written with another table of 'bank'"),
    ],
    ids=["other values", "more rows"],
)
def test_another_table_is_refused(people: Callable[[], sv.Parties], words: str, copied: Path) -> None:
    with pytest.raises(sv.InputError, match=words):
        _resumed(copied, people())


@pytest.mark.parametrize("other", ["job", "party"])
def test_a_checkpoint_of_another_job_or_party_is_refused(other: str, copied: Path) -> None:
    """Before its journal or its tables are looked at, which may be the same."""
    path = copied / "shop1.epoch-2.safetensors"
    keeper = FolderKeeper(copied, "shop1", "0" * 64)
    if other == "party":
        shutil.copy(path, copied / "bank.epoch-2.safetensors")
        keeper = FolderKeeper(copied, "bank", str(read_tree(path)["job"]))
    with pytest.raises(sv.InputError, match="is of another job or party: use another folder for checkpoints"):
        keeper.read_state(2)


def test_two_runs_do_not_share_a_folder(copied: Path) -> None:
    class Again(sv.Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            _resumed(copied)

    with pytest.raises(sv.InputError, match=r"in use by process \d+: a run keeps its checkpoints there"):
        sv.simulate(JOB, make_parties(rows=60), checkpoints=copied.parent, observer=Again())


@pytest.fixture
def true_releases(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Party → how often each of its rows was released in fact, over all attempts; counted beside the package."""
    found: dict[str, np.ndarray] = {}
    original = RowRelease.__call__

    def counted(self: RowRelease, values: object, rows: np.ndarray, **more: object) -> object:
        sent = original(self, values, rows, **more)  # type: ignore[arg-type]
        party = self.counts._reserve.func.__self__.party  # type: ignore[union-attr]
        np.add.at(found.setdefault(party, np.zeros(self.counts.rows, np.int64)), rows, 1)
        return sent

    monkeypatch.setattr(RowRelease, "__call__", counted)
    return found


class Dies(FolderKeeper):
    """Its process ends while it saves an epoch."""

    at = 2

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        if epoch == self.at:
            raise SystemError("killed")
        super().save(epoch, state)


@pytest.mark.parametrize("kills", [1, 3])
@pytest.mark.parametrize("at", [1, 2])
def test_epsilon_is_never_less_than_what_was_released(
    kills: int, at: int, true_releases: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """A party dies as it saves an epoch that the others have saved; with one party ahead, and before any checkpoint."""
    people = make_parties(rows=60)
    joined = join_parties(people, NOISY)

    def attempt(dies: bool) -> RunOutcome:
        from securevfl.run.checkpoint import make_keepers

        keeping = make_keepers(tmp_path, people, NOISY.digest)
        if dies:
            last = Dies(tmp_path, "shop2", NOISY.digest)
            last.start, last.at = keeping["shop2"].start, at
            keeping["shop2"] = last
        return run_parties(NOISY, people, joined, run="run", keepers=keeping)

    for _ in range(kills):
        with pytest.raises(sv.PartyFailed, match="killed"):
            attempt(dies=True)
    ran = attempt(dies=False)
    for party in ("shop1", "shop2"):
        (spent,) = ran.trained[party].spent
        made = int(true_releases[party].max())
        assert made <= spent.times <= made + kills
    assert true_releases["shop2"].max() == 3 + kills


def _attempt(folders: Path, dies: int | None, starts: dict[str, int] | None = None) -> RunOutcome:
    """A run in which each party has a folder of its own, as in a deployment."""
    people = make_parties(rows=60)
    keeping: dict[str, FolderKeeper] = {}
    for name in people:
        (folders / name).mkdir(parents=True, exist_ok=True)
        kind = Dies if dies is not None and name == "shop2" else FolderKeeper
        keeping[name] = kind(folders / name, name, NOISY.digest)
        keeping[name].start = (starts or {}).get(name)
    if dies is not None:
        keeping["shop2"].at = dies  # type: ignore[attr-defined]
    return run_parties(NOISY, people, join_parties(people, NOISY), run="run", keepers=keeping)


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("party", ["bank", "shop1", "shop2"])
def test_a_party_whose_journal_was_lost_is_named_by_its_peers(party: str, kills: int, tmp_path: Path) -> None:
    for _ in range(kills):
        with pytest.raises(sv.PartyFailed, match="killed"):
            _attempt(tmp_path, dies=1)
    aside = tmp_path / "aside"
    (tmp_path / party).rename(aside)
    for _ in range(2):  # nor does asking again make it forget
        with pytest.raises(sv.InputError, match=rf"journal of '{party}' records 0 attempts .* of '\w+' {kills}"):
            _attempt(tmp_path, dies=None)
    shutil.rmtree(tmp_path / party)
    aside.rename(tmp_path / party)
    assert len(_attempt(tmp_path, dies=None).trained) == 3


def test_an_older_journal_of_one_party_is_found(tmp_path: Path) -> None:
    with pytest.raises(sv.PartyFailed, match="killed"):
        _attempt(tmp_path, dies=1)
    shutil.copytree(tmp_path / "bank", tmp_path / "older")
    with pytest.raises(sv.PartyFailed, match="killed"):
        _attempt(tmp_path, dies=1)
    shutil.rmtree(tmp_path / "bank")
    (tmp_path / "older").rename(tmp_path / "bank")
    with pytest.raises(sv.InputError, match=r"journal of 'bank' records 1 attempts at this run, that of .* 2"):
        _attempt(tmp_path, dies=None)


def test_one_folder_of_all_parties_that_lacks_one_partys_files_is_refused_before_anything_is_moved(
    tmp_path: Path,
) -> None:
    def attempt(after: int | None) -> sv.Result:
        watching = None if after is None else Fails(after)
        return sv.simulate(NOISY, make_parties(rows=60), checkpoints=tmp_path, observer=watching)

    with pytest.raises(sv.PartyFailed):
        attempt(1)
    for file in (tmp_path / "plain-dp").glob("bank.*"):
        file.unlink()
    before = sorted(file.name for file in (tmp_path / "plain-dp").iterdir())
    with pytest.raises(sv.InputError, match="journal of 'bank' records 0 attempts at this run, that of 'shop1' 1"):
        attempt(None)
    assert sorted(file.name for file in (tmp_path / "plain-dp").iterdir()) == before


def test_a_party_killed_before_it_began_has_lost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers wrote the attempt down and it did not, again and again; nobody released anything."""
    original = Journal.record_agreed

    def agree(self: Journal, attempt: int) -> None:
        if self.party == "shop1":
            raise SystemError("killed")
        original(self, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "record_agreed", agree)
        for _ in range(3):
            with pytest.raises(sv.PartyFailed, match="killed"):
                _attempt(tmp_path, dies=None)
    ran = _attempt(tmp_path, dies=None)
    assert {spent.times for name in ("shop1", "shop2") for spent in ran.trained[name].spent} == {3}
    found = [Journal(name, NOISY.digest, tmp_path / name / f"{name}.journal.jsonl") for name in ran.trained]
    assert {journal.attempt for journal in found} == {4}


def test_parties_that_would_go_on_from_different_epochs_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(sv.PartyFailed, match="killed"):
        _attempt(tmp_path, dies=2)
    with pytest.raises(sv.InputError, match=r"from different epochs \(bank: 1, shop1: 0, shop2: 1\)"):
        _attempt(tmp_path, dies=None, starts={"bank": 1, "shop2": 1})

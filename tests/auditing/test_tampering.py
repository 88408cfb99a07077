"""Tampering with a finished run's folder: each kind is found, with the file, the line and the party; the untouched
folder passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import make_parties

import securevfl as sv
from securevfl import cli
from securevfl.ledger import decode_line
from securevfl.ledger.lines import (
    GENESIS,
    Closing,
    Entry,
    Line,
    Mark,
    NoteLine,
    OpeningLine,
    PeersLine,
    encode,
    hash_of,
    signed_kind,
    signed_part,
)
from securevfl.privacy import PrivateKey

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, batch_size=64)
NOISY = JOB.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=6.0), labels=sv.Gaussian(epsilon=6.0))))
NAMES = ("bank", "shop1", "shop2")
KEYS = {name: PrivateKey.generate() for name in NAMES}
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two jobs, with a model."""
    folder = tmp_path_factory.mktemp("whole")
    result = sv.compare({"plain": JOB, "noisy": NOISY}, make_parties(rows=90), baselines=(), keys=KEYS)
    result.report(folder)
    result.models["noisy"].save(folder / "model")
    return folder


def file_of(folder: Path, party: str = "shop1") -> Path:
    return folder / "ledgers" / f"{party}.jsonl"


def sum_up_chain(folder: Path, party: str = "shop1") -> list[bytes]:
    return file_of(folder, party).read_bytes().splitlines(keepends=True)


def edit(folder: Path, change: Callable[[list[bytes]], list[bytes]], party: str = "shop1") -> None:
    before = sum_up_chain(folder, party)
    after = change(before)
    assert after != before
    file_of(folder, party).write_bytes(b"".join(after))


def rechain(lines: list[Line], key: PrivateKey | None, surplus: int = 0) -> bytes:
    """Forge a whole file: hashes and counts of these lines computed again, and signatures where there is a key.

    Signed lines count `surplus` messages more than there are.
    """
    out, head, ends, count = [], GENESIS, "", 0
    for line in lines:
        changes: dict[str, object] = {}
        if isinstance(line, OpeningLine):
            head, count, changes = GENESIS, 0, {"after": ends}
            if key is not None:
                changes["key"] = key.public_key.hex
        if isinstance(line, Entry):
            count += 1
            changes["seq"] = count
        if isinstance(line, Mark | Closing):
            changes["messages"] = count + surplus
        new = replace(line, prev=head, hash="", **changes)
        head = hash_of(new)
        if key is not None and isinstance(new, OpeningLine | Mark | Closing):
            new = replace(new, signature=key.sign(signed_kind(new), signed_part(new)))
        ends = head if isinstance(new, Closing) else ends
        out.append(encode(replace(new, hash=head)) + b"\n")
    return b"".join(out)


def forge(
    change: Callable[[list[Line]], list[Line]], key: PrivateKey | None, party: str = "shop1"
) -> Callable[[Path], None]:
    """Rewrite a party's whole file, with all hashes computed again."""

    def act(folder: Path) -> None:
        lines = [decode_line(raw.rstrip(b"\n")) for raw in sum_up_chain(folder, party)]
        file_of(folder, party).write_bytes(rechain(change(lines), key))

    return act


def miscount(folder: Path) -> None:
    """The party's own key signs one message more than its file has."""
    lines = [decode_line(raw.rstrip(b"\n")) for raw in sum_up_chain(folder, "shop1")]
    file_of(folder, "shop1").write_bytes(rechain(lines, KEYS["shop1"], surplus=1))


def each(kind: type, **changes: object) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [replace(line, **changes) if isinstance(line, kind) else line for line in lines]


def chain_of(lines: list[bytes], run: str) -> tuple[int, int]:
    """Where the chain of a run begins and ends in a file."""
    starts = [i for i, raw in enumerate(lines) if b'"line":"open"' in raw[:20]]
    first = next(i for i in starts if f'"run":"{run}"'.encode() in lines[i])
    return first, next((i for i in starts if i > first), len(lines))


def without(run: str, party: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        first, end = chain_of(sum_up_chain(folder, party), run)
        edit(folder, lambda lines: lines[:first] + lines[end:], party)

    return act


def everywhere(*runs: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for run in runs:
            for party in NAMES:
                without(run, party)(folder)
        shutil.rmtree(folder / "model")

    return act


def swap_runs(folder: Path) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        (a, b), (c, d) = chain_of(lines, "plain"), chain_of(lines, "noisy")
        return lines[:a] + lines[c:d] + lines[a:b] + lines[d:]

    edit(folder, change)


def replay(folder: Path) -> None:
    """The party's file of an earlier run of the same jobs, with the same keys."""
    old = sv.compare({"plain": JOB, "noisy": NOISY}, make_parties(rows=90), baselines=(), keys=KEYS)
    old.report(folder / "old")
    shutil.copy(file_of(folder / "old"), file_of(folder))
    shutil.rmtree(folder / "old")


def other_signature(folder: Path) -> None:
    """The opening line's signature for the closing line's."""

    def change(lines: list[bytes]) -> list[bytes]:
        opening, last = decode_line(lines[0].rstrip(b"\n")), decode_line(lines[-1].rstrip(b"\n"))
        assert isinstance(opening, OpeningLine)
        return [*lines[:-1], encode(replace(last, signature=opening.signature)) + b"\n"]

    edit(folder, change)


def text(old: str, new: str, party: str = "shop1") -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = file_of(folder, party)
        content = path.read_text(encoding="utf-8")
        assert old in content
        path.write_text(content.replace(old, new, 1), encoding="utf-8")

    return act


def flip_model(folder: Path) -> None:
    path = folder / "model" / "shop1.model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def line(number: int, change: Callable[[bytes], list[bytes]]) -> Callable[[Path], None]:
    return lambda folder: edit(folder, lambda lines: [*lines[:number], *change(lines[number]), *lines[number + 1 :]])


def move(folder: Path) -> None:
    edit(folder, lambda lines: [*lines[:40], lines[41], lines[40], *lines[42:]])


def rename(folder: Path) -> None:
    file_of(folder).rename(file_of(folder, "shop3"))


def without_notes(lines: list[Line]) -> list[Line]:
    return [found for found in lines if not (isinstance(found, NoteLine) and found.note.startswith("epsilon"))]


def cheaper(lines: list[Line]) -> list[Line]:
    """A smaller ε."""
    return [
        replace(found, values=found.values | {"epsilon_rdp": 0.01})
        if isinstance(found, NoteLine) and found.note == "epsilon"
        else found
        for found in lines
    ]


def other_words(lines: list[Line]) -> list[Line]:
    """What a declared exchange tells its receiver, made harmless."""
    return [
        replace(found, values=found.values | {"reveals": ""})
        if isinstance(found, NoteLine) and found.note == "exchange"
        else found
        for found in lines
    ]


def failed(lines: list[Line]) -> list[Line]:
    """Of the last run with messages: only its beginning, and that it failed."""
    out: list[Line] = []
    run, count = "", 0
    for found in lines:
        if isinstance(found, OpeningLine):
            run, count = found.run, 0
        count += isinstance(found, Entry)
        if run == "noisy" and isinstance(found, Entry) and count > 5:
            continue
        out.append(
            replace(found, outcome="failed: x", words={}) if run == "noisy" and isinstance(found, Closing) else found
        )
    return out


NEW = PrivateKey.generate()
MINE = KEYS["shop1"]


def no_results(folder: Path) -> None:
    everywhere("results", "noisy")(folder)
    for name in ("metrics.json", "scores.csv"):
        (folder / name).unlink()


def failed_at_last(folder: Path) -> None:
    """Its own last closing line says that the run failed, which no peer's word covers; the results are edited."""
    everywhere("results")(folder)
    lines = [decode_line(raw.rstrip(b"\n")) for raw in sum_up_chain(folder)]
    last = lines[-1]
    assert isinstance(last, Closing)
    file_of(folder).write_bytes(rechain([*lines[:-1], replace(last, outcome="InterruptedError: killed")], MINE))
    (folder / "metrics.json").write_text("{}")


def one_more(folder: Path) -> None:
    """A run of its own that never happened, after all others, with a small ε."""
    lines = [decode_line(raw.rstrip(b"\n")) for raw in sum_up_chain(folder)]
    opening = next(line for line in reversed(lines) if isinstance(line, OpeningLine))
    time = max(line.time for line in lines)
    more: list[Line] = [
        replace(opening, run="more", runs=[*opening.runs, "more"], time=time, signature="", hash=""),
        Closing(time=time, messages=0, outcome="done", words={}, prev=GENESIS),
    ]
    file_of(folder).write_bytes(rechain([*lines, *more], MINE))


def late_note(folder: Path) -> None:
    """A second, smaller ε before the closing line of the noisy run."""
    raw = sum_up_chain(folder)
    end = chain_of(raw, "noisy")[1]
    lines = [decode_line(one.rstrip(b"\n")) for one in raw]
    note = next(line for line in reversed(lines) if isinstance(line, NoteLine) and line.note == "epsilon")
    again = replace(note, time=lines[end - 1].time)
    file_of(folder).write_bytes(rechain([*lines[: end - 1], again, *lines[end - 1 :]], MINE))


def mixed_parts(folder: Path) -> None:
    other = sv.compare({"plain": JOB, "noisy": NOISY}, make_parties(rows=90), baselines=(), keys=KEYS)
    shutil.rmtree(folder)
    other.report(folder)
    other.models["noisy"].save(folder / "model")
    other.models["plain"].save(folder / "else")
    shutil.copy(folder / "else" / "shop1.model.safetensors", folder / "model" / "shop1.model.safetensors")
    shutil.rmtree(folder / "else")


LINE = "ledgers/shop1.jsonl:"

TAMPERINGS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a field edited": (text('"bytes":', '"bytes":1'), LINE),
    "a line dropped": (line(40, lambda raw: []), LINE + "41"),
    "two lines swapped": (move, LINE + "41"),
    "a line doubled": (line(40, lambda raw: [raw, raw]), LINE + "42"),
    "the opening line dropped": (line(0, lambda raw: []), LINE + "1"),
    "the last line dropped": (lambda f: edit(f, lambda lines: lines[:-1]), "Incomplete: {folder}/" + LINE),
    "cut in the last line": (
        lambda f: edit(f, lambda lines: [*lines[:-1], lines[-1][:-30]]), "Incomplete: {folder}/" + LINE
    ),
    "cut in mid-run": (lambda f: edit(f, lambda lines: lines[: chain_of(lines, "noisy")[1] - 8]), LINE),
    "a blank line": (line(40, lambda raw: [b"\n", raw]), LINE + "41"),
    "carriage returns": (lambda f: edit(f, lambda lines: [raw.replace(b"\n", b"\r\n") for raw in lines]), LINE + "1"),
    "an unknown field": (line(40, lambda raw: [raw.replace(b"{", b'{"comment":"x",', 1)]), LINE + "41"),
    "a doubled key": (text('"time":', '"time":1,"time":'), LINE + "1"),
    "an escaped letter": (text('"party":"shop1"', '"party":"sho\\u00701"'), LINE + "1"),
    "a number as a float": (text('"messages":0', '"messages":0.0'), LINE),
    "a huge line": (line(40, lambda raw: [b" " * (1 << 20) + raw]), LINE + "41"),
    "deep nesting": (line(40, lambda raw: [b"[" * 50_000 + b"\n"]), LINE + "41"),
    "a version of another time": (text('"version":3', '"version":2'), LINE + "1"),
    "the time changed": (text('"time":1', '"time":2'), LINE + "1"),
    "the policy's text changed": (text('"policy":"keys >= 2048', '"policy":"keys >= 9048'), LINE + "1"),
    "a declared exchange changed": (text('"reveals":"its part of z', '"reveals":"its part of y'), LINE),
    "a signature of another line": (other_signature, LINE),
    "lines after the close": (lambda f: edit(f, lambda lines: [*lines, lines[40]]), LINE),
    "two closes": (lambda f: edit(f, lambda lines: [*lines, lines[-1]]), LINE),
    "runs swapped": (swap_runs, LINE),
    "a run of one party deleted": (without("plain", "shop1"), LINE),
    "a run of all parties deleted": (everywhere("plain"), "a run was removed or added"),
    "the last runs of all parties deleted": (everywhere("results", "noisy"), "no chain of 'results' names them"),
    "the last runs of all parties deleted, and the results": (no_results, "Incomplete: {folder}/" + LINE),
    "own key: the last run failed, and nobody has results": (failed_at_last, "no chain of 'results' names them"),
    "own key: a run that never happened": (one_more, LINE),
    "own key: a note after the word": (late_note, LINE),
    "a part of nobody": (
        lambda f: shutil.copy(f / "model" / "shop1.model.safetensors", f / "model" / "shop9.model.safetensors"),
        "no run of this party's ledger names {folder}/model/shop9",
    ),
    "parts of two runs": (mixed_parts, "are of different runs"),
    "the results' chain of one party deleted": (without("results", "shop1"), "Incomplete: {folder}/" + LINE),
    "an old run's file": (replay, ": another run's chain"),
    "another party's file": (lambda f: shutil.copy(file_of(f, "shop2"), file_of(f)), LINE + "1"),
    "a party renamed": (rename, "ledgers/shop3.jsonl:1"),
    "a party's file deleted": (lambda f: file_of(f).unlink(), "ledgers/shop1.jsonl is not there"),
    "all hashes again, without a key": (forge(each(Entry, bytes=8), None), LINE),
    "all hashes again, with another key": (forge(lambda lines: lines, NEW), LINE + "1"),
    "own key: bytes": (forge(each(Entry, bytes=8), MINE), "a different message; they differ in bytes"),
    "own key: shapes": (forge(each(Entry, shapes={"z": [1, 1]}), MINE), LINE),
    "own key: digests": (forge(each(Entry, digest="00" * 32), MINE), LINE),
    "own key: noise": (forge(each(Entry, noise=99.0), MINE), LINE),
    "own key: cipher": (forge(each(Entry, cipher="paillier", bits=3072, key="ab"), MINE), LINE),
    "own key: times": (forge(each(Entry, time=1 << 51), MINE), "s older than the line before it"),
    "own key: ε": (forge(cheaper, MINE), "it was rewritten or cut off afterwards"),
    "own key: no ε": (forge(without_notes, MINE), LINE),
    "own key: policy": (forge(each(OpeningLine, policy="none"), MINE), LINE),
    "own key: job": (forge(each(OpeningLine, job="0" * 64), MINE), LINE),
    "own key: role": (forge(each(OpeningLine, role="active"), MINE), LINE),
    "own key: expected runs": (forge(each(OpeningLine, runs=["alignment"]), MINE), LINE),
    "own key: declarations": (forge(other_words, MINE), LINE),
    "own key: peers' words left out": (forge(each(Closing, words={}), MINE), LINE),
    "own key: peers left out": (forge(lambda lines: [x for x in lines if not isinstance(x, PeersLine)], MINE), LINE),
    "own key: counts of messages": (miscount, "messages, but the chain has"),
    "own key: a run failed early": (forge(failed, MINE), LINE),
    "metrics edited": (lambda f: (f / "metrics.json").write_text((f / "metrics.json").read_text() + " "), LINE),
    "scores edited": (lambda f: (f / "scores.csv").write_text("id,plain\n"), LINE),
    "metrics deleted": (lambda f: (f / "metrics.json").unlink(), LINE),
    "a model part edited": (flip_model, LINE),
    "a model part deleted": (lambda f: (f / "model" / "shop1.model.safetensors").unlink(), LINE),
    "another party's model part": (
        lambda f: shutil.copy(f / "model" / "shop2.model.safetensors", f / "model" / "shop1.model.safetensors"), LINE
    ),
}  # fmt: skip


def _audit(folder: Path, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(folder), *options])
    return int(str(ended.value.code or 0))


def test_the_untouched_folder_passes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = [x for name, key in KEYS.items() for x in ("--pin", f"{name}={key.public_key.fingerprint}")]
    assert _audit(whole, *pins) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "12 ledgers verified" in said
    assert said.count("as pinned") == 3
    assert "Not pinned" not in said
    found = sv.audit(whole)
    assert (found.is_complete, list(found.incomplete)) == (True, [])


@pytest.mark.parametrize(("act", "words"), TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_is_found_and_its_place_named(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], act: Callable[[Path], None], words: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    act(folder)
    assert _audit(folder) == 8
    said = capsys.readouterr()
    told = said.out + said.err
    assert words.format(folder=folder) in told
    assert ("shop1" if "shop1" in words else "shop") in told
    assert "Traceback" not in told


def test_a_party_without_the_label_owner_s_scores_audits_all_else(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "scores.csv").unlink()
    found = sv.audit(folder)
    assert list(found.missing) == ["scores.csv"]
    assert not found.incomplete
    (folder / "metrics.json").write_text("{}")
    with pytest.raises(sv.AuditError, match=r"metrics\.json has changed"):
        sv.audit(folder)


def test_a_whole_set_under_other_keys_is_told_by_pins_alone(whole: Path, tmp_path: Path) -> None:
    """What the page says: without pins nobody can tell."""
    result = sv.compare({"plain": JOB, "noisy": NOISY}, make_parties(rows=90), baselines=())
    result.report(tmp_path)
    assert sv.audit(tmp_path).is_complete
    pin = {"shop1": KEYS["shop1"].public_key.fingerprint}
    with pytest.raises(sv.AuditError, match=r"shop1.jsonl:1: 'shop1': the chain is signed with ed25519:.* was pinned"):
        sv.audit(tmp_path, pins=pin)
    with pytest.raises(sv.InputError, match="unknown party that is pinned 'shop9'"):
        sv.audit(whole, pins={"shop9": "ed25519:x"})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_of_any_ledger_is_found(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    party = data.draw(st.sampled_from(NAMES))
    raw = bytearray(file_of(whole, party).read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    folder = tmp_path / "flipped"
    if not folder.exists():
        shutil.copytree(whole, folder)
    file_of(folder, party).write_bytes(raw)
    found = _found(folder)
    shutil.copy(file_of(whole, party), file_of(folder, party))
    assert f"ledgers/{party}.jsonl:" in found


def _found(folder: Path) -> str:
    """What an audit finds, in words; empty for nothing."""
    try:
        return "; ".join(sv.audit(folder).incomplete)
    except sv.AuditError as error:
        return str(error)


def test_json_says_what_is_incomplete(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole, tmp_path / "run")
    edit(tmp_path / "run", lambda lines: lines[:-1])
    assert _audit(tmp_path / "run", "--json") == 8
    told = json.loads(capsys.readouterr().out)
    assert len(told["incomplete"]) == 1

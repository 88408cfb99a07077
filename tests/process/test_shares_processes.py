"""Training on shares by programs: the commands of "Train so that nobody learns z", a computing party that is killed, a
computing party without data."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import jinja2  # noqa: F401 - as below
import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401 - processes are copies of this one, and need not load what draws reports
import numpy as np
import pytest
from securevfl_crypto.ring import decode_words

import securevfl as sv
from securevfl import cli
from securevfl.data import Parties
from securevfl.party_context import Observer, PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.run.store import read_tree
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PAGE = Path(__file__).parents[2] / "docs/tutorials/nobody-learns-z.md"
SECTION = re.compile(r"^## With processes\n(.*?)^## ", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r'^```(toml|console)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
NAMES = ("bank", "network", "retailer")
ASSUMED = "no two of bank, network and retailer collude, and all three follow the protocol"
PATIENCE = 240.0


class Dies(Observer):
    """Kills its process in the middle of an epoch."""

    def __init__(self, epoch: int) -> None:
        self._dies_in = epoch

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == self._dies_in and done == max(total // 2, 1):
            os.kill(os.getpid(), signal.SIGKILL)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _typed(folder: Path, words: list[str]) -> str:
    """A command in a folder; what it said, in one line."""
    if words[0] == "cp":
        shutil.copy(folder / words[1], folder / words[2])
        return ""
    said = io.StringIO()
    with chdir(folder), redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        cli.main(words[1:])
    assert not ended.value.code, said.getvalue()
    return " ".join(said.getvalue().split())


def _take_part(folder: Path, words: list[str]) -> None:
    with chdir(folder):
        cli.main(words[1:])


def _take_part_in(company: Company, name: str, dies: int) -> None:
    read_start(company.agreement_file, name).run(wait=PATIENCE, hearers=[Dies(dies)])


def _together(start: Callable[[str, int], BaseProcess], names: tuple[str, ...], killed: str = "") -> None:
    """Run all parties at the same time; one is killed in the second epoch and started again."""
    running: list[BaseProcess] = []

    def begin(name: str, dies: int = 0) -> BaseProcess:
        process = start(name, dies)
        running.append(process)
        process.start()
        return process

    try:
        every = {name: begin(name, 2 if name == killed else 0) for name in names}
        if killed:
            every[killed].join(PATIENCE)
            assert every[killed].exitcode == -signal.SIGKILL
            every[killed] = begin(killed)
        for process in every.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in every.items()} == dict.fromkeys(names, 0)
    finally:
        for process in running:
            process.kill()
            process.join()


def _set_up(root: Path) -> None:
    """Each one's folder, table, keys, certificate, party file and card, and the cards at the bank."""
    ports = {name: _port() for name in NAMES}
    for place, table in zip(NAMES, make_parties(passive=2, rows=1000).values(), strict=True):
        folder = root / place
        folder.mkdir()
        label = [] if table.label is None else ["late"]
        with (folder / "customers.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["ref", *table.columns, *label])
            for row, name in enumerate(table.ids):
                late = [] if table.label is None else [int(table.label[row])]
                writer.writerow([name, *(column[row] for column in table.columns.values()), *late])
        peers = [
            f"[peer.{peer}]\n" + ("listen = true" if peer > place else f'dial = "127.0.0.1:{ports[peer]}"')
            for peer in NAMES
            if peer != place
        ]
        head = [f'party = "{place}"', f'listen = "127.0.0.1:{ports[place]}"']
        data = ["[data]", 'file = "customers.csv"', 'id = "ref"', *(['label = "late"'] if label else [])]
        keys = ["[keys]", f'signing = "keys/{place}.key"']
        keys += [f'certificate = "certs/{place}.crt"', f'key = "certs/{place}.key"']
        (folder / f"{place}.toml").write_text("\n".join([*head, *data, *keys, *peers]))
        for line in (f"keys {place}", f"certs new {place}", f"card {place}.toml"):
            _typed(folder, ["securevfl", *line.split()])
        if place != "bank":
            shutil.copy(folder / f"{place}.card", root / "bank")


def _collected(states: dict[str, Path], folder: Path) -> Path:
    """The ledgers of all, as an auditor has them."""
    (folder / "ledgers").mkdir(parents=True)
    for name, state in states.items():
        shutil.copy(state / "ledgers" / f"{name}.jsonl", folder / "ledgers")
    return folder


def _entries(state: Path, name: str, what: str) -> list[dict[str, Any]]:
    """A party's lines on messages of one step."""
    lines = (state / "ledgers" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("what") == what]


def _is_resumed_under_fresh_keys(states: dict[str, Path], killed: str, folder: Path, step: str = "step") -> None:
    audit = sv.audit(_collected(states, folder))
    assert audit.is_complete
    assert not audit.incomplete
    assert [chain.party for chain in audit.chains if chain.broke_off] == [killed]
    for name, state in states.items():
        sent = [one for one in _entries(state, name, "shares/key") if one["way"] == "sent"]
        peers = [one["peer"] for one in sent]
        assert len(sent) == 4  # to two others, in two attempts
        assert len({one["digest"] for one in sent}) == len(sent) // 2, peers
        run = Record.read(state / "report" / "metrics.json").runs[0]
        assert any(f"rounds a {step}" in note and f"{name!r} sent" in note for note in run.notes), name


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=1000))
    _set_up(tmp_path)
    section = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section is not None
    said: dict[str, str] = {}
    waiting: dict[str, list[str]] = {}

    def process(name: str, dies: int) -> BaseProcess:
        arguments = (tmp_path / name, waiting[name])
        return multiprocessing.get_context("fork").Process(target=_take_part, args=arguments)

    for kind, title, content in BLOCK.findall(section[1]):
        if kind == "toml":
            (tmp_path / title).write_text(content)
            continue
        for line in content.splitlines():
            where, _, command = line.partition("$ ")
            words = shlex.split(command)
            if words[1] not in ("party", "predict"):
                said[f"{where} {words[1]}"] = _typed(tmp_path / where, words)
                continue
            waiting[where] = words
            if len(waiting) == len(NAMES):
                _together(process, NAMES)
                waiting.clear()
    for signing in ("bank propose", *(f"{name} approve" for name in NAMES)):
        assert f"What follows is true only if {ASSUMED}. By signing" in said[signing]
    assert ASSUMED in " ".join(section[1].split())
    states = {name: tmp_path / name / "state" for name in NAMES}
    assert sv.audit(_collected(states, tmp_path / "collected")).is_complete
    assert len(_entries(states["bank"], "bank", "shares/open metrics")) > 0
    with (tmp_path / "bank" / "scores.csv").open() as file:
        scored = {row["id"] for row in csv.DictReader(file)}
    tables = [(tmp_path / name / "customers.csv").read_text("utf-8").splitlines()[1:] for name in NAMES]
    assert scored == set.intersection(*({line.split(",")[0] for line in lines} for lines in tables))
    assert {path.name for name in NAMES[1:] for path in (tmp_path / name).glob("*.csv")} == {"customers.csv"}


def _weights(one: Any, other: Any) -> dict[str, np.ndarray]:
    """What two computing parties could compute if they put their parts of the model together: the weights."""
    ours, theirs = one["parts"]["shares"], other["parts"]["shares"]
    return {
        name: decode_words(sum(part.numpy().view(np.uint64) for part in (*parts, theirs[name][1])))
        for name, parts in ours.items()
    }


def test_a_computing_party_without_data_is_killed(tmp_path: Path) -> None:
    protection = sv.Shares(computing=("bank", "shop1", "notary"), few_rows=True, useful="off")
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=protection, epochs=2, batch_size=32, keep="last", seed=3)
    policies = {"shop1": sv.Policy(few_rows=True, useful="off")}
    company = create_company(tmp_path / "real", make_parties(passive=1, rows=120), job, policies=policies)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.people}
    company.store_secrets(secrets)

    def process(name: str, dies: int) -> BaseProcess:
        arguments = (company, name, dies)
        return multiprocessing.get_context("fork").Process(target=_take_part_in, args=arguments)

    _together(process, company.names, killed="notary")
    states = {name: company.state_folder(name) for name in company.names}
    _is_resumed_under_fresh_keys(states, "notary", tmp_path / "collected")
    files = {name: states[name] / "model" / f"{name}.model.safetensors" for name in company.names}
    ours = _weights(read_tree(files["bank"]), read_tree(files["shop1"]))
    for name, weights in _weights(read_tree(files["shop1"]), read_tree(files["notary"])).items():
        assert np.array_equal(weights, ours[name]), name  # any two hold it, the notary among them
    alone = sv.simulate(job, company.people, secrets=secrets).model().parts
    for name, expected in _weights(alone["bank"], alone["shop1"]).items():
        assert np.abs(ours[name] - expected).max() < 0.01, name  # last bits are cut at random
        assert np.abs(expected).max() > 0.1, name


def test_boosted_trees_grow_between_processes_of_which_one_is_killed(tmp_path: Path) -> None:
    protection = sv.Shares(few_rows=True, useful="off")
    tree = sv.Boosting(depth=2, bins=8)
    job = sv.Job(algorithm=tree, protection=protection, epochs=3, keep="last", seed=3)
    policies = {name: sv.Policy(few_rows=True, useful="off") for name in ("shop1", "shop2")}
    company = create_company(tmp_path / "real", make_parties(passive=2, rows=200), job, policies=policies)

    def process(name: str, dies: int) -> BaseProcess:
        arguments = (company, name, dies)
        return multiprocessing.get_context("fork").Process(target=_take_part_in, args=arguments)

    _together(process, company.names, killed="shop2")
    states = {name: company.state_folder(name) for name in company.names}
    _is_resumed_under_fresh_keys(states, "shop2", tmp_path / "collected", "round of trees")
    parts: list[Any] = [read_tree(states[name] / "model" / f"{name}.model.safetensors") for name in company.names]
    kept = [part["parts"]["shares"]["trees"] for part in parts]
    assert [len(trees) for trees in kept] == [3, 3, 3]
    for three in zip(*kept, strict=True):
        sides = sum(one["sides"][0].numpy() for one in three)
        assert set(np.unique(sides)) <= {0, 1}


@pytest.mark.parametrize("number", [False, True])
def test_parties_that_sum_for_an_additive_model_go_on_to_the_same_shapes(tmp_path: Path, number: bool) -> None:
    protection = sv.Shares(computing=("bank", "shop1", "notary"), few_rows=True, useful="off")
    people, more = make_parties(passive=1, rows=120), dict[str, Any]()
    if number:
        amounts = 100 + 10 * np.asarray(people.active.columns["f0"])
        people = Parties.of(replace(people.active, label=amounts, classes=()), *people.passive)
        more = {"task": "regression", "target_range": (90.0, 120.0)}
    job = sv.Job(algorithm=sv.Additive(), protection=protection, epochs=2, keep="last", seed=3, **more)
    policies = {"shop1": sv.Policy(few_rows=True, useful="off")}
    company = create_company(tmp_path / "real", people, job, policies=policies)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.people}
    company.store_secrets(secrets)

    def process(name: str, dies: int) -> BaseProcess:
        arguments = (company, name, dies)
        return multiprocessing.get_context("fork").Process(target=_take_part_in, args=arguments)

    _together(process, company.names, killed="notary")
    states = {name: company.state_folder(name) for name in company.names}
    _is_resumed_under_fresh_keys(states, "notary", tmp_path / "collected")
    alone = sv.simulate(job, company.people, secrets=secrets).model().parts
    for name in ("bank", "shop1"):
        kept = read_tree(states[name] / "model" / f"{name}.model.safetensors")["parts"]["shapes"]
        assert np.array_equal(kept["values"].numpy(), alone[name]["parts"]["shapes"]["values"].numpy())
    for name in company.names:
        opened = [one for one in _entries(states[name], name, "shares/open sums") if one["way"] == "received"]
        assert {one["peer"] for one in opened} == (set() if name == "notary" else set(company.names) - {name})

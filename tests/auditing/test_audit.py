"""The audit: what it finds in ledgers, what it says of them, and how the command ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.helpers import make_parties

import securevfl as sv
from securevfl import cli
from securevfl.auditing import Audit
from securevfl.auditing.tables import audit_tables, summarise_audit
from securevfl.errors import AuditError, InputError
from securevfl.privacy import Ledger
from securevfl.report import Record, render_text
from securevfl.run import align_parties, write_ledgers
from securevfl.run.context_building import record_declarations
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Exchanges, Guard, Kind, Message

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=2, batch_size=64)
NOISE = sv.Gaussian(epsilon=6.0)
NOISY = sv.Job(
    algorithm=JOB.algorithm, epochs=2, batch_size=64, protection=sv.Plain(dp=sv.DP(features=NOISE, labels=NOISE))
)
C = np.zeros(16, np.uint8)
KEY, BACK = Guard("bfv", 218, "key of bank"), Guard("bfv", 218, "key of shop")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nobody looks; workers of the test runner state a width of their own."""
    monkeypatch.setattr(cli.terminal, "out", Console(width=120))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in plain and one with noise, of three parties."""
    target = tmp_path_factory.mktemp("audit")
    sv.compare({"plain": JOB, "noisy": NOISY}, make_parties(), baselines=()).report(target)
    return target


def _talk(*messages: tuple[str, Message], declared: tuple[Exchange, ...] = ()) -> tuple[Ledger, Ledger]:
    """Both parties' ledgers of messages; a sender's name with each, and what their run declares."""
    pair = {name: Ledger(name, run="r", job="00", policy="p") for name in ("bank", "shop")}
    record_declarations(pair["bank"], Exchanges(declared), ACTIVE)
    record_declarations(pair["shop"], Exchanges(declared), PASSIVE)
    for sender, message in messages:
        receiver = "shop" if sender == "bank" else "bank"
        pair[sender].record("sent", receiver, message, 100)
        pair[receiver].record("received", sender, message, 100)
    for one in pair.values():
        one.close()
    return pair["bank"], pair["shop"]


def _audit(folder: Path, *ledgers: Ledger) -> Audit:
    write_ledgers(ledgers, folder)
    return sv.audit(folder)


def _ended(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", *arguments])
    return ended.value.code


def test_what_one_sent_another_received(folder: Path) -> None:
    found = sv.audit(folder)
    assert len(found.chains) == 12  # of three parties: the alignment, two runs, and the chain that binds the results
    assert found.is_complete

    def told(way: str) -> list[tuple[object, ...]]:
        ends = [(x.party, x.peer) if way == "sent" else (x.peer, x.party) for x in found.lines if x.way == way]
        rest = [(x.run, x.kind, x.what, x.guard, x.opens, x.messages, x.bytes) for x in found.lines if x.way == way]
        return sorted((*a, *map(str, b)) for a, b in zip(ends, rest, strict=True))

    assert told("sent") == told("received")
    assert sum(line.messages for line in found.lines) == found.messages
    chains, lines = found
    assert (chains, lines) == (found.chains, found.lines)


def test_epsilon_is_in_the_ledger_and_without_noise_it_has_no_bound(folder: Path) -> None:
    found = {(e.run, e.party, e.what): e for e in sv.audit(folder).epsilons}
    figures = Record.read(folder / "metrics.json")
    spent = {("noisy", e.party, e.what): e.releases for run in figures.runs for e in run.epsilon}
    assert spent == {key: e.releases for key, e in found.items() if e.source == "ledger"}
    assert {key for key, e in found.items() if e.source == "ledger"} == {
        ("noisy", "bank", "gradients"),
        ("noisy", "shop1", "activations"),
        ("noisy", "shop2", "activations"),
    }
    assert all(0 < e.epsilon <= 6.001 for e in found.values() if e.source == "ledger")
    assert {key for key, e in found.items() if e.source == "no noise"} == {
        ("plain", "bank", "gradients"),
        ("plain", "shop1", "activations"),
        ("plain", "shop2", "activations"),
    }
    assert all(e.epsilon == float("inf") for e in found.values() if e.source == "no noise")


def test_a_message_without_noise_beside_noisy_ones_is_told(tmp_path: Path) -> None:
    z = {"z": np.zeros((2, 2), np.float32)}
    bank, shop = Ledger("bank", run="r", job="0"), Ledger("shop", run="r", job="0")
    for guard in (Guard(noise=2.0), Guard()):
        shop.record("sent", "bank", Message(Kind.ACTIVATION, "cut/forward", z, guard=guard), 9)
        bank.record("received", "shop", Message(Kind.ACTIVATION, "cut/forward", z, guard=guard), 9)
    shop.record_note("epsilon", {"what": "activations", "epsilon_rdp": 1.0, "delta": 1e-5, "times": 1})
    bank.close()
    shop.close()
    assert [(e.what, e.epsilon) for e in _audit(tmp_path, bank, shop).epsilons] == [
        ("activations", 1.0),
        ("activations", float("inf")),
    ]


def _sealed_talk() -> list[tuple[str, Message]]:
    c = {"c": C}
    return [
        ("bank", Message(Kind.PUBLIC_KEY, "cut/public key", c)),
        ("bank", Message(Kind.CIPHERTEXT, "cut/weights", c, guard=KEY)),
        ("shop", Message(Kind.CIPHERTEXT, "cut/forward", c, guard=KEY)),
        ("shop", Message(Kind.CIPHERTEXT, "cut/passive share", c, guard=BACK)),
        ("bank", Message(Kind.CIPHERTEXT, "cut/input gradient", c, guard=Guard("bfv", 218, "key of shop", 1.5))),
        ("shop", Message(Kind.MASKED_SHARE, "cut/reshare", c, guard=Guard("masked", 40))),
        ("shop", Message(Kind.CIPHERTEXT, "cut/weight gradient", c, guard=KEY)),
    ]


def test_what_a_receiver_computes_depends_on_who_has_the_key(tmp_path: Path) -> None:
    declared = sv.BFV().exchanges(sv.SplitNN(bottom=(2,)).cut, 1)
    found = _audit(tmp_path, *_talk(*_sealed_talk(), declared=declared))
    for way in ("sent", "received"):
        says = {line.what: line.reveals for line in found.lines if line.way == way}
        assert says["cut/weights"] == says["cut/passive share"] == Kind.CIPHERTEXT.disclosure
        assert says["cut/forward"].startswith("it has the key: its part of z, for each row and step")
        assert says["cut/input gradient"].startswith("it has the key: the gradient at its activations, for each row")
        assert says["cut/input gradient"].endswith(", up to the noise")
        assert "it has the key, and opens numbers under the sender's mask" in says["cut/weight gradient"]
        assert says["cut/reshare"] == Kind.MASKED_SHARE.disclosure


def test_what_was_not_declared_is_not_said_to_be_harmless(tmp_path: Path) -> None:
    """Ledgers of version 0.1 hold no declarations: whoever has the key reads all, for all that the ledger tells."""
    found = _audit(tmp_path, *_talk(*_sealed_talk()))
    says = {line.what: line.reveals for line in found.lines}
    assert says["cut/weight gradient"] == says["cut/forward"] == "it has the key: all that was encrypted"
    assert says["cut/weights"] == Kind.CIPHERTEXT.disclosure


def test_a_message_that_the_run_did_not_declare_is_an_error(tmp_path: Path) -> None:
    declared = sv.BFV().exchanges(sv.SplitNN(bottom=(2,)).cut, 1)
    extra = ("shop", Message(Kind.CIPHERTEXT, "cut/something new", {"c": C}, guard=KEY))
    with pytest.raises(AuditError, match="ciphertext 'cut/something new', which the run did not declare"):
        _audit(tmp_path, *_talk(*_sealed_talk(), extra, declared=declared))


def test_readable_content_is_named_so(folder: Path) -> None:
    lines = {(x.run, x.what): x for x in sv.audit(folder).lines if x.way == "sent"}
    assert lines["plain", "cut/forward"].reveals.startswith("its part of z in the clear")
    assert lines["plain", "cut/forward"].protection == "in the clear"
    assert lines["plain", "cut/forward"].is_readable
    assert lines["noisy", "cut/forward"].reveals.endswith(", up to the noise")
    assert lines["plain", "train/start"].protection == "none needed"
    assert not lines["plain", "cut/setup"].is_readable


def test_a_ledger_without_its_peers_is_said_to_be_alone(tmp_path: Path) -> None:
    bank, _ = _talk(("bank", Message(Kind.CONTROL, "hello")))
    found = _audit(tmp_path, bank)
    assert not found.is_complete
    assert found.alone == [("r", "bank")]
    assert "Not compared, because the other party's ledger is missing: links of bank (r)." in summarise_audit(found)


def test_an_empty_ledger_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "bank.jsonl").write_bytes(b"")
    with pytest.raises(AuditError, match="is empty"):
        sv.audit(tmp_path)


def test_a_note_of_epsilon_that_holds_none_is_an_error(tmp_path: Path) -> None:
    bank = Ledger("bank", run="r", job="0")
    bank.record_note("epsilon", {"what": "activations", "epsilon": "much"})
    bank.close()
    with pytest.raises(AuditError, match="note of ε without numbers"):
        _audit(tmp_path, bank)


def test_several_label_owners_ledgers_verify(tmp_path: Path) -> None:
    people = make_parties(passive=1)
    both = sv.Parties.of(people["bank"], people["shop1"].__class__(**_as_owner(people)), people["shop1"])
    aligned = align_parties(both, sv.Job(protection=sv.Plain(), algorithm=sv.MultiVFL()))
    found = _audit(tmp_path, *aligned.ledgers.values())
    assert {chain.run for chain in found.chains} == {"alignment"}
    assert found.is_complete


def _as_owner(people: sv.Parties) -> dict[str, object]:
    bank = people["bank"]
    return {
        "name": "lender",
        "ids": bank.ids,
        "columns": bank.columns,
        "label": bank.label,
        "classes": bank.classes,
    }


@pytest.mark.parametrize("width", [80, 100, 120])
def test_tables_fit_and_say_all(folder: Path, width: int) -> None:
    found = sv.audit(folder)
    tables = list(audit_tables(found))
    assert len(tables) == 9
    text = "\n".join(render_text(table, width=width) for table in tables)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for words in ("shop1, run noisy", "→ bank", "← bank", "ε: activations without noise: no bound", "at δ = 1e-05"):
        assert words in flat
    assert "its policy: keys >= 2048 bits" in flat


def test_names_in_ledgers_are_no_markup(tmp_path: Path) -> None:
    odd = Ledger("[red]bank", run="[link=x]r", job="0", policy="[bold]p")
    odd.record("sent", "[blink]shop", Message(Kind.METRIC, "[/]step"), 5)
    odd.close("[/]odd")
    found = _audit(tmp_path, odd)
    text = "".join(render_text(table) for table in audit_tables(found))
    for words in ("[red]bank", "[link=x]r", "[bold]p", "[blink]shop", "[/]step"):
        assert words in text


def test_a_verified_run_ends_well_and_shows_what_was_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.terminal, "out", Console(width=100))
    assert _ended(str(folder), "--party", "shop1", "--run", "noisy") == 0
    said = capsys.readouterr().out
    assert "shop1, run noisy" in said
    assert "bank, run" not in said
    assert "12 ledgers verified" in said  # all are, whichever are shown


def test_json_holds_lines_and_epsilon(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ended(str(folder), "--json", "--run", "noisy") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verified"], told["complete"], len(told["chains"])) == (True, True, 3)
    assert {line["way"] for line in told["lines"]} == {"sent", "received"}
    assert {(e["party"], e["what"]) for e in told["epsilons"]} >= {("bank", "gradients"), ("shop1", "activations")}
    assert _ended(str(folder), "--json", "--run", "plain") == 0
    told = json.loads(capsys.readouterr().out)
    assert [e["epsilon"] for e in told["epsilons"]] == [None] * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere/ledgers contains no ledger"),
        (["{folder}/metrics.json"], "metrics.json/ledgers contains no ledger"),
        (["{folder}", "--party", "nobody"], "the ledgers contain no party 'nobody'; they contain bank, shop1, shop2"),
        (["{folder}", "--run", "x"], "the ledgers contain no run 'x'; they contain alignment, noisy, plain, results"),
        (["{folder}", "--unknown"], "No such option"),
        ([], "Missing argument"),
    ],
)
def test_the_users_mistakes_end_with_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert _ended(*(argument.format(folder=folder) for argument in arguments)) == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split())
    assert "Traceback" not in said


def test_a_refused_run_can_be_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = sv.Job(protection=sv.Plain(), algorithm=JOB.algorithm, policies={"shop2": sv.Policy(sealed=True)})
    with pytest.raises(sv.PolicyError) as caught:
        sv.simulate(job, make_parties())
    write_ledgers(caught.value.ledgers, tmp_path)
    assert _ended(str(tmp_path)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "refusal of the job" in said
    assert "which rule of the sender's policy the job breaks" in said
    assert "alignment: bank ended with: failed: PolicyError: 'shop2' refuses the job" in said


def test_missing_folders_are_the_users_mistake_in_python_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no ledger"):
        sv.audit(tmp_path / "nowhere")


def test_a_cut_chain_is_not_complete(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "ledgers" / "shop1.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    found = sv.audit(tmp_path / "run")
    assert len(found.incomplete) == 1
    assert not found.is_complete
    assert sv.audit(folder).is_complete


def test_one_party_s_ledger_compares_no_link(folder: Path, tmp_path: Path) -> None:
    bank, shop = _talk(("bank", Message(Kind.CONTROL, "consent/terms", {}, {})))
    found = _audit(tmp_path / "one", bank)
    assert (found.compared, found.is_complete) == (0, False)
    said = summarise_audit(found)[0]
    assert "no link was compared, because that takes both parties' ledgers" in said
    assert "agree" not in said
    both = _audit(tmp_path / "both", bank, shop)
    assert (both.compared, both.is_complete) == (1, True)
    assert "both ends of every link agree" in summarise_audit(both)[0]
    assert sv.audit(folder).compared == 9


def test_model_parts_that_are_gone_are_mentioned(folder: Path, tmp_path: Path) -> None:
    result = sv.compare({"plain": JOB}, make_parties(), baselines=())
    result.report(tmp_path / "kept")
    result.models["plain"].save(tmp_path / "kept" / "model")
    assert sv.audit(tmp_path / "kept").parts == []
    shutil.rmtree(tmp_path / "kept" / "model")
    found = sv.audit(tmp_path / "kept")
    assert found.parts == [f"model/{name}.model.safetensors" for name in ("bank", "shop1", "shop2")]
    assert any("not in the folder: model/bank.model.safetensors, " in line for line in summarise_audit(found))

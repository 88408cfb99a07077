"""A dossier of a simulation and of two companies: what it states, what it cites, and what it refuses to rest on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.attacks import AttackScore
from securevfl.dossier import DossierEvidence, gather_evidence, write_documents, write_dossier
from securevfl.dossier.about_model import describe_metrics
from securevfl.dossier.evidence import _look_up
from securevfl.dossier.sentences import FillIn, Sentence, Source, Table
from securevfl.dossier.word import render_word
from securevfl.dossier.writing import ANSWERS
from securevfl.errors import AuditError, InputError, UnknownNameError
from securevfl.report.attack_record import AttackRecord, Claimed
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, batch_size=64)
SHARED = sv.Job(
    algorithm=sv.LogisticRegression(), protection=sv.Shares(computing=2), epochs=1, batch_size=256, valid=0.3
)
PAGE = Path(__file__).parents[2] / "docs/howto/dossier.md"
NAMES = ("impact-assessment", "record-of-processing", "ai-act-annex-iv", "model-risk", "model-card")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three parties in one process."""
    target = tmp_path_factory.mktemp("dossier") / "run"
    sv.compare({"plain": JOB}, make_parties(), baselines=()).report(target)
    return target


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two companies that trained on shares of two, each with its own state folder."""
    made = create_company(tmp_path_factory.mktemp("company"), make_parties(passive=1, rows=1000), SHARED)
    made.over_memory()
    return made


@pytest.fixture(scope="module")
def all_evidence(simulated: Path, company: Any) -> dict[str, DossierEvidence]:
    return {
        "simulation": gather_evidence(simulated),
        "bank": gather_evidence(company.agreement_file, me="bank"),
        "shop": gather_evidence(company.state_folder("shop1")),
        "agreement": gather_evidence(company.agreement_file),
    }


def _texts(evidence: DossierEvidence) -> str:
    """All sentences and cells of all documents."""
    found = []
    for document in write_documents(evidence):
        for item in document.items:
            if isinstance(item, Sentence):
                found.append(item.text)
            elif isinstance(item, Table):
                found += [" | ".join(row.cells) for row in item.rows]
    return "\n".join(found)


def _sources(evidence: DossierEvidence) -> set[Source]:
    found: set[Source] = set()
    for document in write_documents(evidence):
        for item in document.items:
            rows = item.rows if isinstance(item, Table) else [] if isinstance(item, FillIn) else [item]
            found |= {source for row in rows for source in row.sources}
    return found


@pytest.mark.parametrize("which", ["simulation", "bank", "shop", "agreement"])
def test_each_path_that_is_cited_is_there(all_evidence: dict[str, DossierEvidence], which: str) -> None:
    """A source is a path in a file: the report's, the agreement's or the job's settings."""
    evidence, checked = all_evidence[which], 0
    for source in _sources(evidence):
        tree = {"report": evidence._trees["report"], "agreement": evidence._trees["agreement"]}.get(source.kind)
        path = source.place.partition(" (")[0]
        if tree and not re.match(r"SHA-256|party\.\*|serving: ", path):
            _look_up(tree, path)
            checked += 1
    assert checked >= (10 if which == "agreement" else 20)


@pytest.mark.parametrize("which", ["simulation", "bank", "shop", "agreement"])
def test_pages_show_every_place_as_a_box_and_count_them(
    all_evidence: dict[str, DossierEvidence], which: str, tmp_path: Path
) -> None:
    written = write_dossier(all_evidence[which], tmp_path / "out", docx=False)
    assert [document.name for document in written.documents] == list(NAMES)
    for document in written.documents:
        page = (tmp_path / "out" / f"{document.name}.html").read_text(encoding="utf-8")
        boxes = sum(isinstance(item, FillIn) for item in document.items)
        assert page.count('class="fill"') == boxes >= len(document.places)
        assert f"{len(document.places)} places to fill in" in page
        for text in re.findall(r"<p>(.*?)</p>", page, re.DOTALL)[1:]:
            assert 'class="src"' in text, text
    index = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert f"{len(written.places)} places to fill in" in index
    assert "not legal advice" in index


def test_a_simulation_says_so_first_and_a_real_job_does_not(all_evidence: dict[str, DossierEvidence]) -> None:
    for which, words in (("simulation", "Simulation: not a record of processing"), ("agreement", "No finished run")):
        for document in write_documents(all_evidence[which]):
            assert document.warning is not None
            assert document.warning.text.startswith(words)
    assert all(document.warning is None for document in write_documents(all_evidence["bank"]))


def test_two_companies_cite_the_agreement_and_their_own_verified_ledger(
    all_evidence: dict[str, DossierEvidence],
) -> None:
    bank = all_evidence["bank"]
    assert bank.audit is not None
    assert bank.audit.pinned == ("bank",)
    text, sources = _texts(bank), " ".join(map(str, _sources(bank)))
    assert "is approved by bank, shop1; these signatures verify" in text
    assert re.search(r"\[ledger bank.jsonl, \d+ entries, head [0-9a-f]{12}…\]", sources)
    assert "[ledger shop1" not in sources
    assert "secret shares of two" in text
    assert "was not compared with them" in text
    assert "of 168 hours together" in text
    assert "bank.state/model | this party's part of the trained model" in text
    shop = _texts(all_evidence["shop"])
    assert "0 rows trained" not in shop
    assert "the label owner's has both" in shop
    assert "no other organisation should get it" in shop  # its own share, of its own table


def test_approvals_that_only_the_ledger_has_are_verified_and_used(company: Any, tmp_path: Path) -> None:
    shutil.copytree(company.folder, tmp_path / "copy")
    for file in (tmp_path / "copy").rglob("*.approval"):
        file.unlink()
    copied = tmp_path / "copy" / company.agreement_file.name
    assert not sv.agreement.read_agreement(copied).approvals
    found = gather_evidence(copied, me="bank").agreement
    assert found is not None
    assert found.is_complete


def test_without_attacks_it_says_so_and_with_them_it_cites_them(
    all_evidence: dict[str, DossierEvidence], tmp_path: Path
) -> None:
    none = all_evidence["simulation"]
    assert "No attack on this job is known here" in _texts(none)
    assert any(place.key == "attacks" for document in write_documents(none) for place in document.places)
    assert not any(source.kind == "attacks" and "of run" in source.place for source in _sources(none))
    score = AttackScore(
        attacker="shop1", victim="bank", attack="labels: norm", target="labels", metric="AUC", known=0, value=0.52,
        baseline=0.5, rows=90, seed=0,
    )  # fmt: skip
    claim = Claimed(party="shop1", about="bank", severity="note", learns="the mean")
    record = AttackRecord(
        name="x", title=none.title, created="2026-11-29T00:00:00+00:00", command="", versions={}, machine={}, job={},
        seeds=[0], test={}, seconds=1.0, claims=[claim], measured=[score], contradictions=[], unstated=["bank: sizes"],
    )  # fmt: skip
    (tmp_path / "attacks.json").write_bytes(record.to_json())
    attacked = gather_evidence(none.place, attacks=tmp_path)
    text = _texts(attacked)
    assert "No attack on this job" not in text
    assert "shop1 → bank | labels: norm (labels) | AUC 0.52 ± 0.00 | 0.50 | 90 | note" in text
    assert "The job states nothing of this: bank: sizes." in text
    assert "“note” a known and limited leak" in text
    (tmp_path / "attacks.json").write_bytes(msgspec.structs.replace(record, title="another").to_json())
    other = gather_evidence(none.place, attacks=tmp_path / "attacks.json")
    strange = msgspec.structs.replace(record, measured=[msgspec.structs.replace(score, victim="clinic")])
    (tmp_path / "strange.json").write_bytes(strange.to_json())
    assert gather_evidence(none.place, attacks=tmp_path / "strange.json").attacks is None
    assert none.record is not None
    longer = msgspec.structs.replace(record, job={**none.record.job, "epochs": 99})
    (tmp_path / "longer.json").write_bytes(longer.to_json())
    text = _texts(gather_evidence(none.place, attacks=tmp_path / "longer.json"))
    assert "This job has epochs = 1, the attacked one 99." in text
    assert text.count("the attacked one") == text.count("the attacked one 99.")
    assert "No attack on this job is known here" in _texts(other)
    assert Source("attacks", "attacks.json: of “another”, which is another job") in _sources(other)
    (tmp_path / "missing").mkdir()
    with pytest.raises(InputError, match=r"missing.attacks\.json does not exist"):
        gather_evidence(none.place, attacks=tmp_path / "missing")


def test_figures_of_other_jobs_are_not_cited_as_attacks_on_this_one(all_evidence: dict[str, DossierEvidence]) -> None:
    for evidence in all_evidence.values():
        for source in _sources(evidence):
            assert not (source.kind == "attacks" and "recorded runs" in source.place)
    kinds = {source.kind for source in _sources(all_evidence["bank"])}
    assert "measured" in kinds


def test_a_coordinator_gets_the_record_of_a_processor(all_evidence: dict[str, DossierEvidence]) -> None:
    evidence = replace(all_evidence["simulation"], me="notary")
    record = evidence.record
    assert record is not None
    party = msgspec.structs.replace(record.parties[0], name="notary", role="coordinator", columns=[], rows=0)
    helped = replace(evidence, record=msgspec.structs.replace(record, parties=[*record.parties, party]))
    laws = [section.law for section in write_documents(helped)[1].sections]
    assert laws == ["GDPR Art. 30(2)(a)", "GDPR Art. 30(2)(b)", "GDPR Art. 30(2)(c)", "GDPR Art. 30(2)(d) and 32(1)"]
    other = write_documents(replace(helped, me="bank"))[1]
    assert [section.law for section in other.sections][:2] == ["GDPR Art. 30(1)(a)", "GDPR Art. 30(1)(b)"]
    assert any(place.key == "helper" for place in other.places)


def test_annex_iv_has_all_nine_items_and_article_35_all_four(all_evidence: dict[str, DossierEvidence]) -> None:
    documents = write_documents(all_evidence["bank"])
    annex = " ".join(section.law for section in documents[2].sections)
    assert all(f"Annex IV({number})" in annex for number in range(1, 10))
    assert all(f"IV(2)({letter})" in annex for letter in "abcdefgh")
    assessment = " ".join(section.law for section in documents[0].sections)
    assert all(f"Art. 35(7)({letter})" in assessment for letter in "abcd")
    record = " ".join(section.law for section in documents[1].sections)
    assert all(f"Art. 30(1)({letter})" in record for letter in "abcdefg")
    assert "SR 26-2" in documents[3].law
    assert len(documents[4].sections) == 9


def _copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def test_an_edited_ledger_or_report_is_named_and_nothing_is_written(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = _copy(simulated, tmp_path / "a") / "ledgers/bank.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([*lines[:4], *lines[5:]]))
    with pytest.raises(SystemExit) as ended:
        cli.main(["dossier", str(tmp_path / "a"), "--out", str(tmp_path / "out")])
    assert ended.value.code == AuditError.exit_code
    assert f"{ledger}:5" in capsys.readouterr().err.replace("\n", "")
    assert not (tmp_path / "out").exists()
    figures = _copy(simulated, tmp_path / "b") / "metrics.json"
    figures.write_text(figures.read_text().replace('"epochs": 1', '"epochs": 9'))
    with pytest.raises(AuditError, match=r"metrics\.json has changed"):
        gather_evidence(tmp_path / "b")
    (tmp_path / "b/metrics.json").unlink()
    with pytest.raises(InputError, match=r"has neither metrics\.json nor report/metrics\.json"):
        gather_evidence(tmp_path / "b")
    shutil.rmtree(_copy(simulated, tmp_path / "c") / "ledgers")
    with pytest.raises(InputError, match="contains no ledger"):
        gather_evidence(tmp_path / "c")


def test_a_report_that_no_ledger_records_is_refused(company: Any, tmp_path: Path) -> None:
    """The end of a ledger is cut off, and the report edited: the audit alone calls such a ledger incomplete."""
    state = _copy(company.state_folder("bank"), tmp_path / "state")
    ledger, figures = state / "ledgers/bank.jsonl", state / "report/metrics.json"
    lines = ledger.read_text().splitlines(keepends=True)
    end = max(i for i, line in enumerate(lines) if '"line":"open"' in line)
    ledger.write_text("".join(lines[:end]))
    with pytest.raises(AuditError, match=r"no ledger records .*metrics\.json"):
        gather_evidence(state)
    figures.write_text(figures.read_text().replace('"created": "2', '"created": "1'))
    with pytest.raises(AuditError, match=r"no ledger records .*metrics\.json"):
        gather_evidence(state)


def test_a_peers_ledger_beside_its_own_hides_no_edit_of_the_report(company: Any, tmp_path: Path) -> None:
    """The audit compares a party's own report only where no other party's ledger is in the folder."""
    state = _copy(company.state_folder("bank"), tmp_path / "state")
    shutil.copy(company.state_folder("shop1") / "ledgers/shop1.jsonl", state / "ledgers")
    shutil.rmtree(state / "model")
    gather_evidence(state)
    figures = state / "report/metrics.json"
    figures.write_text(figures.read_text().replace('"created": "2', '"created": "1'))
    with pytest.raises(AuditError, match=r"no ledger records .*metrics\.json"):
        gather_evidence(state)


def test_a_simulation_beside_an_agreement_is_no_run_under_it(simulated: Path, company: Any, tmp_path: Path) -> None:
    state = _copy(simulated, tmp_path / "state")
    (state / "report").mkdir()
    shutil.copy(state / "metrics.json", state / "report")
    assert gather_evidence(state).kind == "simulation"
    shutil.copy(company.agreement_file, tmp_path / "agreement.toml")
    for file in company.folder.glob("*.approval"):
        shutil.copy(file, tmp_path)
    with pytest.raises(AuditError, match="record no agreement"):
        gather_evidence(state)


def test_figures_of_baselines_are_cited(all_evidence: dict[str, DossierEvidence]) -> None:
    record = all_evidence["simulation"].record
    assert record is not None
    alone = msgspec.structs.replace(record.runs[0], key="alone", title="alone", baseline=True)
    compared = replace(all_evidence["simulation"], record=msgspec.structs.replace(record, runs=[*record.runs, alone]))
    table = next(item for item in describe_metrics(compared) if isinstance(item, Table))
    assert Source("report", "runs.alone.test.accuracy") in table.rows[0].sources


def test_an_attempt_that_broke_off_and_a_folder_without_its_agreement_say_so(company: Any, tmp_path: Path) -> None:
    folder = _copy(company.folder, tmp_path / "copy")
    shutil.rmtree(folder / "bank.state/report")
    broken = gather_evidence(folder / company.agreement_file.name, me="bank")
    document, *_ = write_documents(broken)
    assert document.warning is not None
    assert document.warning.text.startswith("No run has finished, but one has begun")
    text = _texts(broken)
    assert "tokens of its identifiers" in text  # aligned: who is common is known
    assert "What crossed between organisations is not known" not in text
    alone = gather_evidence(shutil.copytree(company.state_folder("shop1"), tmp_path / "alone"))
    document, *_ = write_documents(alone)
    assert document.warning is not None
    assert document.warning.text.startswith("No agreement is beside these files")
    assert "not who signed" in _texts(alone)
    assert "not who signed" not in _texts(broken)


def test_membership_is_a_risk_with_its_number_and_a_category_of_data_received(
    all_evidence: dict[str, DossierEvidence],
) -> None:
    bank = all_evidence["bank"]
    assert bank.record is not None
    assessment, record, *_ = write_documents(bank)
    said = [item.text for item in assessment.items if isinstance(item, Sentence)]
    assert any("learn who is in the tables of all parties, by identifier" in text for text in said)
    assert f"In this run it was learned of {bank.record.alignment.common:,} rows." in said
    assert any("their own dossiers have the bound" in text for text in said)
    received = next(item for item in record.items if isinstance(item, Table) and item.heads[0] == "received of")
    assert "who is in the tables of all parties" in [row.cells[1] for row in received.rows]


def test_what_does_not_belong_together_is_refused(company: Any, simulated: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        gather_evidence(tmp_path / "none")
    with pytest.raises(UnknownNameError, match="nobody"):
        gather_evidence(simulated, me="nobody")
    with pytest.raises(UnknownNameError, match="dp"):
        gather_evidence(simulated, run="dp")
    with pytest.raises(InputError, match="the report is 'shop1''s own"):
        gather_evidence(company.state_folder("shop1"), me="bank")
    with pytest.raises(InputError, match="is the file of 'shop1'"):
        gather_evidence(company.agreement_file, me="bank", party_file=company.agreement_file.parent / "shop1.toml")
    with pytest.raises(UnknownNameError, match="ghost"):
        gather_evidence(company.agreement_file, me="ghost")


def test_answers_are_kept_and_edited_documents_are_not_overwritten(
    all_evidence: dict[str, DossierEvidence], tmp_path: Path
) -> None:
    evidence, out = all_evidence["bank"], tmp_path / "out"
    first = write_dossier(evidence, out, docx=False)
    answers = out / ANSWERS
    assert answers.read_text(encoding="utf-8").count("\ndpo = ") == 1
    answers.write_text(answers.read_text(encoding="utf-8").replace('dpo = ""', 'dpo = "Ada \\"A\\" Lovelace"'))
    second = write_dossier(evidence, out, docx=False)
    assert len(second.places) == len(first.places) - 1
    assert "Ada &#34;A&#34; Lovelace" in (out / "record-of-processing.html").read_text(encoding="utf-8")
    assert 'dpo = "Ada \\"A\\" Lovelace"' in answers.read_text(encoding="utf-8")
    page = out / "model-card.html"
    page.write_text(page.read_text(encoding="utf-8") + "mine")
    with pytest.raises(InputError, match=r"model-card\.html in .* was edited"):
        write_dossier(evidence, out, docx=False)
    answers.write_text("dpo = 3")
    page.unlink()
    with pytest.raises(InputError, match="dpo is not a text"):
        write_dossier(evidence, out, docx=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a dossier's folder"):
        write_dossier(evidence, tmp_path / "other", docx=False)


def test_docx_has_every_sentence_source_and_place(all_evidence: dict[str, DossierEvidence]) -> None:
    docx = pytest.importorskip("docx")
    document = write_documents(all_evidence["bank"])[1]
    file = docx.Document(BytesIO(render_word(document)))
    cells = [cell.text for table in file.tables for cell in table._cells]
    text = "\n".join([*(paragraph.text for paragraph in file.paragraphs), *cells])
    for item in document.items:
        if isinstance(item, Sentence):
            assert item.text in text
            assert all(str(source) in text for source in item.sources)
        elif isinstance(item, FillIn):
            assert f"FILL IN {item.what}" in text
        else:
            assert all(cell in text for row in item.rows for cell in row.cells)
    assert f"{len(document.places)} places to fill in" in text


def test_docx_that_is_not_asked_for_again_goes_and_without_its_library_it_says_so(
    all_evidence: dict[str, DossierEvidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securevfl.dossier.writing.render_word", lambda document: document.name.encode())
    write_dossier(all_evidence["agreement"], tmp_path, docx=True)
    assert len(list(tmp_path.glob("*.docx"))) == len(NAMES)
    write_dossier(all_evidence["agreement"], tmp_path, docx=False)
    assert not list(tmp_path.glob("*.docx"))  # nothing of an earlier state stays beside newer pages
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(InputError, match=r"pip install 'securevfl\[dossier\]'"):
        render_word(write_documents(all_evidence["agreement"])[0])


def test_the_same_evidence_gives_the_same_pages(all_evidence: dict[str, DossierEvidence], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_dossier(all_evidence["bank"], tmp_path / name, docx=False)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_the_bill_of_materials_follows_the_official_schema() -> None:
    pytest.importorskip("cyclonedx")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    from securevfl.dossier.materials import make_sbom

    found = make_sbom()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(found)) is None
    broken = json.dumps(found | {"version": "one"})
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(broken) is not None
    crypto = next(one for one in found["components"] if one["name"] == "securevfl-crypto")
    for kernel in crypto.get("components", []):
        assert kernel["name"].endswith(".so")
        assert re.fullmatch("[0-9a-f]{64}", kernel["hashes"][0]["content"])


def test_the_page_does_what_it_shows(
    simulated: Path,
    company: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands of docs/howto/dossier.md, on this file's run and companies."""
    monkeypatch.chdir(shutil.copytree(company.folder, tmp_path / "company"))
    shutil.copytree(simulated, "runs/credit")
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr("securevfl.dossier.word.has_word", lambda: False)
    monkeypatch.setattr("securevfl.dossier.writing.has_word", lambda: False)
    said, ran = "", 0
    for content in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in content.splitlines():
            if line.startswith("$ securevfl "):
                _run(line)
                said, ran = capsys.readouterr().out, ran + 1
            elif not line.startswith("$ echo"):
                assert line in said + "\n0", f"{line!r} is on the page and was not said: {said}"
    assert ran == 2


def _run(line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line)[2:])
    assert not ended.value.code

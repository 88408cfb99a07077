"""Releases that an agreement outlives: the numbers it names, and what an older protocol's file may lack."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from support.agreement_parties import agreed, proposal
from support.helpers import low_overlap_parties, ready_keys
from support.small_algorithms import SETTINGS, make

import securevfl as sv
from securevfl.agreement import Proposal, Versions, check_versions, versions
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.ledger import Entry

EXCHANGES = Path(__file__).with_name("exchanges.json")
"""Protocol → job → SHA-256 of its messages' directions, kinds, steps and shapes."""

OPTIONS = Path(__file__).with_name("options.json")
"""Protocol → section of an agreement → the options that it lists."""

PROTECTIONS: dict[str, tuple[sv.Protection, list[str]]] = {
    "plain": (sv.Plain(), list(SETTINGS)),
    "paillier": (sv.Paillier(bits=2048), ["splitnn"]),
    "bfv": (sv.BFV(), ["splitnn"]),
    "ckks": (sv.CKKS(), ["splitnn"]),
    "shares": (sv.Shares(), ["boosting", "logistic_regression", "scorecard", "splitnn"]),
}
JOBS = [f"{name} {protection}" for protection, (_, names) in PROTECTIONS.items() for name in names]


def exchanges(name: str, protection: str) -> str:
    """What a job's parties say to each other, in the order of each link, without content."""
    passive = 2 if protection == "shares" else 1
    job = sv.Job(
        algorithm=make(name),
        protection=PROTECTIONS[protection][0],
        epochs=4,
        batch_size=32,
        seed=3,
        keep="last",
        accept_leak=True,
    )
    overlap = 0.25 if protection == "plain" else 0.9
    result = sv.simulate(job, low_overlap_parties(passive, rows=80, classes=2, overlap=overlap))
    told: dict[tuple[str, ...], list[object]] = {}
    for run, ledgers in result.ledgers.items():
        for party, ledger in ledgers.items():
            for line in ledger.lines:
                if isinstance(line, Entry):
                    link = ("alignment" if run == "alignment" else "run", party, line.way, line.peer)
                    told.setdefault(link, []).append((line.kind.value, line.what, sorted(line.shapes.items())))
    return hashlib.sha256(repr(sorted(told.items())).encode()).hexdigest()[:32]


@pytest.mark.parametrize("job", JOBS)
def test_a_protocol_exchanges_what_it_always_did(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it fails, a party with the last release could not follow: restore the exchange, or make a new protocol.

    ``python tests/agreement/test_versions.py`` writes what a new number exchanges.
    """
    ready_keys(monkeypatch)
    known = json.loads(EXCHANGES.read_text(encoding="utf-8"))[str(versions.PROTOCOLS[1])]
    assert exchanges(*job.split()) == known[job]


def test_a_patch_runs_an_agreement_of_the_release_before() -> None:
    made = proposal()
    check_versions(agreed(made.replace(versions=made.versions.replace(securevfl="0.1.7"))))


@pytest.mark.parametrize("name", ["protocol", "wire", "session", "ledger"])
def test_a_version_that_is_not_spoken_is_refused_by_name(name: str) -> None:
    made = proposal()
    newer = made.versions.replace(**{name: getattr(made.versions, name) + 1})
    with pytest.raises(InputError, match=rf"{name} is \d here and \d in the agreement: install a newer"):
        check_versions(agreed(made.replace(versions=newer)))


def test_two_protocols_are_spoken_and_no_third(monkeypatch: pytest.MonkeyPatch) -> None:
    made = proposal()
    monkeypatch.setattr(versions, "PROTOCOLS", (2, 3))
    assert Versions.read_installed().protocol == 3
    for protocol, spoken in ((1, False), (2, True), (3, True), (4, False)):
        one = agreed(made.replace(versions=made.versions.replace(protocol=protocol)))
        if spoken:
            check_versions(one)
        else:
            with pytest.raises(InputError, match=f"protocol is 2 to 3 here and {protocol} in the agreement"):
                check_versions(one)


def _without(raw: bytes, *keys: bytes) -> bytes:
    lines = raw.split(b"\n")
    kept = [line for line in lines if not line.startswith(tuple(key + b" = " for key in keys))]
    assert len(kept) == len(lines) - len(keys)
    return b"\n".join(kept)


def test_an_older_file_lacks_options_and_keeps_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `huber_delta` would be if it were new: the bytes that were signed count, and defaults hold."""
    made = proposal()
    older = _without(made.signed_bytes, b"huber_delta")
    with pytest.raises(InputError, match="canonical form"):
        Proposal.decode(older)  # under the newest protocol nothing may be missing
    monkeypatch.setattr(versions, "PROTOCOLS", (1, 2))
    with pytest.raises(InputError, match="canonical form"):
        Proposal.decode(older)  # nor what did not come with a later one
    monkeypatch.setattr(versions, "ADDED_OPTIONS", {2: frozenset({"job.huber_delta"})})
    read = Proposal.decode(older)
    assert read.signed_bytes == older
    assert read.digest == hashlib.sha256(older).hexdigest()
    assert read.job == made.job
    assert Proposal.decode(made.signed_bytes).digest == made.digest


@pytest.mark.parametrize(("protocol", "added"), [(1, {1: {"job.epochs"}}), (2, {2: {"job.epochs"}})])
def test_only_options_of_later_protocols_may_be_missing(
    protocol: int, added: dict[int, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = proposal(job={"epochs": 7})
    made = made.replace(versions=made.versions.replace(protocol=protocol))
    monkeypatch.setattr(versions, "PROTOCOLS", (1, 3))
    monkeypatch.setattr(
        versions, "ADDED_OPTIONS", {n: frozenset(one) for n, one in added.items()} | {3: frozenset({"job.seed"})}
    )
    with pytest.raises(InputError, match="canonical form"):
        Proposal.decode(_without(made.signed_bytes, b"epochs"))
    assert Proposal.decode(_without(made.signed_bytes, b"seed")).job.epochs == 7


def test_an_older_file_in_another_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = proposal()
    monkeypatch.setattr(versions, "PROTOCOLS", (1, 2))
    monkeypatch.setattr(versions, "ADDED_OPTIONS", {2: frozenset({"job.huber_delta"})})
    lines = made.signed_bytes.split(b"\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(b"epochs = "))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    with pytest.raises(InputError, match="canonical form"):
        Proposal.decode(b"\n".join(lines))


def listed_options() -> dict[str, list[str]]:
    """Section of an agreement → the options that it lists where all are at their defaults."""
    made = proposal().to_tree()
    found = {name: list(made[name]) for name in ("job", "limits", "align")}
    found |= {f"algorithm {name}": list(make(name).describe()) for name in SETTINGS}
    return found | {f"protection {name}": list(kind().describe()) for name, kind in Protection.known_types().items()}


def test_an_option_that_is_added_does_not_change_what_earlier_agreements_sign() -> None:
    """If it fails, agreements and models of before no longer load: leave the option out where it has its default (see
    `BoostedResidual.describe`), or make a new protocol. What is new altogether is added by running this file."""
    assert listed_options() == json.loads(OPTIONS.read_text(encoding="utf-8"))[str(versions.PROTOCOLS[1])]


def test_a_proposal_names_an_older_protocol_if_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime

    from support.agreement_parties import card

    from securevfl.agreement import propose_job

    (tmp_path / "job.toml").write_text('[job]\naccept_leak = true\n[protection]\nname = "plain"\n')

    def propose(protocol: int | None) -> Proposal:
        cards = [card("bank"), card("shop")]
        now = datetime(2026, 11, 22, tzinfo=UTC)
        return propose_job(tmp_path / "job.toml", cards, purpose="x", expires="1d", now=now, protocol=protocol)

    monkeypatch.setattr(versions, "PROTOCOLS", (1, 2))
    assert propose(None).versions.protocol == 2
    assert propose(1).versions.protocol == 1
    with pytest.raises(InputError, match="--protocol: protocol is 1 to 2 here and 3"):
        propose(3)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        ready_keys(patch)
        found = {job: exchanges(*job.split()) for job in JOBS}
    told = json.loads(EXCHANGES.read_text(encoding="utf-8")) if EXCHANGES.exists() else {}
    told[str(versions.PROTOCOLS[1])] = found
    EXCHANGES.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    OPTIONS.write_text(json.dumps({versions.PROTOCOLS[1]: listed_options()}, indent=1) + "\n", encoding="utf-8")

"""Which certificate of a row a process shows, and when it takes up the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from securevfl_net.identity import CertificateSeries, Endorsement, Identity
from securevfl_net.identity.folder import endorse_certificate
from securevfl_net.link_state import LinkState
from support.identity_parties import NOW, World

from securevfl.errors import InputError
from securevfl.ledger import PrivateKey
from securevfl.process.certificate_renewal import renew_certificates
from securevfl.run.events import RunEvents

HERE, ELSEWHERE = bytes(32), bytes(31) + b"1"
"""Agreements."""


def _rotate(world: World, number: int, *, endorsed: bool = True, agreement: bytes = HERE) -> Identity:
    made = world.own("bank", file=f"bank.{number}")
    if endorsed:
        payload = Endorsement("bank", number, agreement, made.certificate).to_signed_bytes(PrivateKey.generate())
        made.certificate_file.with_suffix(".endorsement").write_bytes(payload)
    return made


def test_a_process_shows_what_its_peers_know(world: World, tmp_path: Path) -> None:
    first = world.own("bank")
    files = first.certificate_file, first.key_file
    assert CertificateSeries(*files, [first.certificate]).shown == first
    second, third = _rotate(world, 1), _rotate(world, 2)
    assert CertificateSeries(*files, [first.certificate]).shown == first
    assert CertificateSeries(*files, [second.certificate]).shown == second  # agreed after the first rotation
    assert CertificateSeries(*files, [third.certificate]).shown == third
    assert CertificateSeries(*files).shown == third  # an authority vouches for each


def test_the_newest_is_taken_up_and_a_restart_goes_on_with_it(world: World, tmp_path: Path) -> None:
    first, note = world.own("bank"), tmp_path / "certificate"
    files = first.certificate_file, first.key_file
    row = CertificateSeries(*files, [first.certificate], agreement=HERE, note=note)
    assert row.find_next() is None
    _rotate(world, 1)
    newest = _rotate(world, 2)
    found = row.find_next()
    assert found is not None
    assert found == (newest, newest.certificate_file.with_suffix(".endorsement").read_bytes())
    assert CertificateSeries(*files, [first.certificate], note=note).shown == first  # it was not taken up yet
    row.record_use(newest)
    assert row.find_next() is None
    assert CertificateSeries(*files, [first.certificate], note=note).shown == newest
    note.write_text("../bank.crt", encoding="utf-8")
    with pytest.raises(InputError, match="damaged"):
        CertificateSeries(*files, [first.certificate], note=note)


def test_one_without_an_endorsement_is_named_once_and_not_shown(world: World) -> None:
    first = world.own("bank")
    row = CertificateSeries(first.certificate_file, first.key_file, [first.certificate], agreement=HERE)
    _rotate(world, 1, endorsed=False)
    with pytest.raises(
        InputError, match=r"bank\.1\.crt has no endorsement for agreement 0000.*securevfl certs endorse bank"
    ):
        row.find_next()
    assert row.find_next() is None
    assert row.shown == first


def test_of_several_agreements_each_takes_the_newest_that_is_endorsed_for_it(world: World) -> None:
    first = world.own("bank")
    files = first.certificate_file, first.key_file
    here, elsewhere = (CertificateSeries(*files, [first.certificate], agreement=one) for one in (HERE, ELSEWHERE))
    older = _rotate(world, 1)
    newer = _rotate(world, 2, agreement=ELSEWHERE)
    found = here.find_next()
    assert found is not None
    assert found[0] == older
    assert here.shown.find_endorsed(found[1]) == older
    other = elsewhere.find_next()
    assert other is not None
    assert elsewhere.shown.find_endorsed(other[1]) == other[0] == newer
    here.record_use(older)
    with pytest.raises(InputError, match=r"bank\.2\.endorsement is for agreement 0000"):
        here.find_next()
    out = endorse_certificate("bank", world.folder, PrivateKey.generate(), HERE)
    assert out.name == "bank.2.00000000.endorsement"
    again = here.find_next()
    assert again is not None
    assert again == (newer, out.read_bytes())
    with pytest.raises(InputError, match="already"):
        endorse_certificate("bank", world.folder, PrivateKey.generate(), HERE)


def test_an_expired_certificate_gives_way_to_an_endorsed_one(world: World) -> None:
    first = world.own("bank", now=NOW - timedelta(days=100), days=90)
    files = first.certificate_file, first.key_file
    pins = [first.certificate]
    with pytest.raises(InputError, match="is valid from"):
        CertificateSeries(*files, pins, agreement=HERE)
    second = _rotate(world, 1, agreement=ELSEWHERE)
    with pytest.raises(InputError, match="is valid from"):
        CertificateSeries(*files, pins, agreement=HERE)
    assert CertificateSeries(*files, pins, agreement=ELSEWHERE).shown == second


def test_a_first_certificate_is_not_endorsed(world: World) -> None:
    world.own("bank")
    with pytest.raises(InputError, match="was never rotated"):
        endorse_certificate("bank", world.folder, PrivateKey.generate(), HERE)


def test_a_running_party_waits_until_all_peers_are_connected(world: World) -> None:
    first = world.own("bank")
    row = CertificateSeries(first.certificate_file, first.key_file, [first.certificate], agreement=HERE)
    said: list[bytes] = []
    heard: list[str] = []

    class Mesh:
        up = False

        def link_states(self) -> Mapping[str, LinkState]:
            return {"shop": LinkState(connected=True), "net": LinkState(connected=self.up)}

        async def send_endorsement(self, endorsement: bytes) -> None:
            said.append(endorsement)
            await asyncio.sleep(0.01)
            assert row.shown.renewals == 0  # not before all have it

        def renew_certificate(self) -> None:
            assert row.shown.renewals == 1  # if the process ends now, its next start shows the new one

    class Heard(RunEvents):
        def report_event(self, what: str, words: str, **values: object) -> None:
            heard.append(words)

    async def work() -> None:
        mesh = Mesh()
        task = asyncio.create_task(renew_certificates(row, mesh, Heard(), look=0.001))
        _rotate(world, 1)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not said
        mesh.up = True
        while not heard:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(asyncio.wait_for(work(), 60))
    assert said == [(world.folder / "bank.1.endorsement").read_bytes()]
    assert "bank.1.crt is now in use" in heard[0]
    assert row.shown.renewals == 1


@pytest.mark.parametrize("connected", [True, False], ids=["never answers", "away"])
def test_a_party_says_that_a_peer_keeps_its_new_certificate_from_use(world: World, connected: bool) -> None:
    first = world.own("bank")
    row = CertificateSeries(first.certificate_file, first.key_file, [first.certificate], agreement=HERE)
    heard: list[str] = []

    class Mesh:
        def link_states(self) -> Mapping[str, LinkState]:
            return {"shop": LinkState(connected=connected), "net": LinkState(connected=True)}

        async def send_endorsement(self, endorsement: bytes) -> None:
            await asyncio.sleep(3600)

        def renew_certificate(self) -> None:
            raise AssertionError("not all peers have it")

    class Heard(RunEvents):
        def report_event(self, what: str, words: str, **values: object) -> None:
            heard.append(words)

    async def work() -> None:
        task = asyncio.create_task(renew_certificates(row, Mesh(), Heard(), look=0.001, patience=0.05))
        _rotate(world, 1)
        await asyncio.sleep(0.01)
        assert not heard
        while not heard:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        task.cancel()

    asyncio.run(asyncio.wait_for(work(), 60))
    (said,) = heard
    why = "a peer has not stored its endorsement: see its log" if connected else "shop is not connected"
    assert f"bank.1.crt is not in use yet: {why}. The one before ends on 20" in said
    assert row.shown == first

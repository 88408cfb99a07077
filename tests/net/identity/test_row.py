"""Which certificate of a row a process shows, and when it takes up the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from securevfl_net.identity import CertificateSeries, Endorsement, Identity
from securevfl_net.link_state import LinkState
from support.identity_parties import World

from securevfl.errors import InputError
from securevfl.ledger import PrivateKey
from securevfl.process.certificate_renewal import renew_certificates
from securevfl.run.events import RunEvents


def _rotate(world: World, number: int, *, endorsed: bool = True) -> Identity:
    made = world.own("bank", file=f"bank.{number}")
    if endorsed:
        payload = Endorsement("bank", number, bytes(32), made.certificate).to_signed_bytes(PrivateKey.generate())
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
    row = CertificateSeries(*files, [first.certificate], note=note)
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
    row = CertificateSeries(first.certificate_file, first.key_file, [first.certificate])
    _rotate(world, 1, endorsed=False)
    with pytest.raises(InputError, match=r"bank\.1\.endorsement cannot be read"):
        row.find_next()
    assert row.find_next() is None
    assert row.shown == first


def test_a_running_party_waits_until_all_peers_are_connected(world: World) -> None:
    first = world.own("bank")
    row = CertificateSeries(first.certificate_file, first.key_file, [first.certificate])
    said: list[bytes] = []
    heard: list[str] = []

    class Mesh:
        up = False

        def link_states(self) -> Mapping[str, LinkState]:
            return {"shop": LinkState(connected=True), "net": LinkState(connected=self.up)}

        def renew_certificate(self, endorsement: bytes = b"") -> None:
            said.append(endorsement)

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

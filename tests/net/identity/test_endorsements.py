"""Certificates rotate while a job runs: endorsed by the party's signing key, with a counter that only rises."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from securevfl_net.identity import Accepted, Endorsement, Identity, PeerBook, Refusal, RefusalCode, make_tls_context
from support.identity_parties import NOW, Side, World, by, meet, pinned

from securevfl.errors import InputError
from securevfl.ledger import PrivateKey

JOB, OTHER_JOB = b"j" * 32, b"o" * 32
DAY = timedelta(days=1)


class Pair:
    """bank and shop, who pin each other; the bank rotates."""

    def __init__(self, world: World, store: Path | None = None) -> None:
        self.world = world
        self.bank, self.shop = world.own("bank"), world.own("shop")
        self.signing = {name: PrivateKey.generate() for name in ("bank", "shop")}
        self.store = store
        self.shops = self.book()
        self.banks = PeerBook("bank", {"shop": pinned(self.shop)})

    def book(self) -> PeerBook:
        signers = {name: key.public_key for name, key in self.signing.items()}
        return PeerBook("shop", {"bank": pinned(self.bank)}, agreement=JOB, signers=signers, store=self.store)

    def new(self, counter: int, *, party: str = "bank", job: bytes = JOB, key: str = "bank") -> tuple[Identity, bytes]:
        made = self.world.own(party, file=f"{party}.{counter}")
        return made, Endorsement(party, counter, job, made.certificate).to_signed_bytes(self.signing[key])

    def meet(self, bank: Identity) -> tuple[Accepted | Refusal, Accepted | Refusal]:
        return meet(Side(self.shop, self.shops, "bank"), Side(bank, self.banks))


@pytest.fixture
def pair(world: World) -> Pair:
    return Pair(world)


def _refused(
    book: PeerBook, payload: bytes, words: str, code: RefusalCode = RefusalCode.ENDORSEMENT, sender: str = "bank"
) -> None:
    before = book.version, book.trust_anchors()
    with pytest.raises(Refusal, match=words) as found:
        book.accept_endorsement(payload, sender=sender)
    assert found.value.code == code
    assert (book.version, book.trust_anchors()) == before


def test_a_new_certificate_is_let_in_and_the_old_one_until_the_new_one_was_seen(pair: Pair) -> None:
    made, payload = pair.new(1)
    assert isinstance(pair.meet(pair.bank)[0], Accepted)
    refused = pair.meet(made)
    assert [end.code for end in refused if isinstance(end, Refusal)] == [RefusalCode.UNKNOWN_CA] * 2
    version = pair.shops.version
    assert pair.shops.accept_endorsement(payload, sender="bank").certificate == made.certificate
    assert pair.shops.version > version
    assert isinstance(pair.meet(pair.bank)[0], Accepted)  # it overlaps
    client, server = pair.meet(made)
    assert isinstance(client, Accepted), client
    assert isinstance(server, Accepted), server
    assert client.certificate == made.certificate
    for end in pair.meet(pair.bank):  # a copy of the old key is worth nothing now
        assert isinstance(end, Refusal)
        assert end.code in {RefusalCode.REVOKED, RefusalCode.UNKNOWN_CA}
    with pytest.raises(Refusal, match=r"'bank' replaced the certificate .* endorsed with counter 1") as found:
        pair.shops.identify_peer(pair.bank.certificate.der)
    assert found.value.code == RefusalCode.REVOKED


def test_both_sides_rotate_at_once(pair: Pair) -> None:
    signers = {name: key.public_key for name, key in pair.signing.items()}
    pair.banks = PeerBook("bank", {"shop": pinned(pair.shop)}, agreement=JOB, signers=signers)
    bank, from_bank = pair.new(1)
    shop, from_shop = pair.new(1, party="shop", key="shop")
    pair.shops.accept_endorsement(from_bank, sender="bank")
    pair.banks.accept_endorsement(from_shop, sender="shop")
    assert all(isinstance(end, Accepted) for end in meet(Side(shop, pair.shops), Side(bank, pair.banks)))


def test_a_counter_only_rises(pair: Pair) -> None:
    made = {counter: pair.new(counter)[1] for counter in (1, 2, 3)}
    pair.shops.accept_endorsement(made[2])
    pair.shops.accept_endorsement(made[2])  # said again after a reconnect: the same bytes
    _refused(pair.shops, made[1], "counter 1; the last counter was 2")
    again = Endorsement("bank", 2, JOB, pair.world.own("bank", file="again").certificate)
    _refused(pair.shops, again.to_signed_bytes(pair.signing["bank"]), "counter 2; the last counter was 2")
    pair.shops.accept_endorsement(made[3])
    _refused(pair.shops, made[2], "counter 2; the last counter was 3")


def test_what_is_refused(pair: Pair, world: World) -> None:
    made, good = pair.new(1)
    _refused(pair.shops, pair.new(2, key="shop")[1], "not endorsed with the agreement's signing key")
    _refused(pair.shops, pair.new(3, job=OTHER_JOB)[1], "endorsed for agreement 6f6f6f6f.*, but this one is 6a6a6a6a")
    _refused(pair.shops, good, "'shop' sent an endorsement for 'bank'", sender="shop")
    _refused(
        pair.shops,
        pair.new(4, party="shop", key="shop")[1],
        "no signing key",
        RefusalCode.NOT_IN_AGREEMENT,
        sender="shop",
    )
    for place in (0, 1, 40, 60, len(good) // 2, len(good) - 1):
        changed = bytearray(good)
        changed[place] ^= 1
        with pytest.raises(Refusal):
            pair.shops.accept_endorsement(bytes(changed))
    for cut in (0, 10, 75, len(good) - 1):
        _refused(pair.shops, good[:cut], "not an endorsement")
    _refused(pair.shops, good + b"x", "not an endorsement")
    _refused(pair.shops, bytes(100_000), "not an endorsement")
    old = world.own("bank", now=NOW - 20 * DAY, days=10, file="old").certificate
    _refused(
        pair.shops,
        Endorsement("bank", 9, JOB, old).to_signed_bytes(pair.signing["bank"]),
        "valid until",
        RefusalCode.EXPIRED,
    )
    with pytest.raises(InputError, match="names 'bank'; 'net' cannot endorse it"):
        Endorsement("net", 1, JOB, made.certificate).to_signed_bytes(pair.signing["bank"])
    with pytest.raises(InputError, match="counter 0"):
        Endorsement("bank", 0, JOB, made.certificate).to_signed_bytes(pair.signing["bank"])
    pair.shops.accept_endorsement(good)  # after all that, the right one


def test_a_certificate_of_another_party_cannot_be_endorsed(pair: Pair, world: World) -> None:
    """The bank's key vouches for the shop's certificate under its own name: one would pass for the other."""
    net = world.own("net")
    signers = {"bank": pair.signing["bank"].public_key}
    book = PeerBook("shop", {"bank": pinned(pair.bank), "net": pinned(net)}, agreement=JOB, signers=signers)
    forged = replace(Endorsement("bank", 1, JOB, net.certificate))
    content = forged._signed_content()
    payload = content + bytes.fromhex(pair.signing["bank"].sign("securevfl certificate endorsement v1", content))
    _refused(book, payload, r"'bank' endorses a certificate that names \('net',\)", RefusalCode.OTHER_NAME)


def test_a_signature_over_something_else_is_none(pair: Pair) -> None:
    _, good = pair.new(1)
    content = good[:-64]
    for kind in ("securevfl approval v1", "", "securevfl certificate endorsement v2"):
        _refused(
            pair.shops,
            content + bytes.fromhex(pair.signing["bank"].sign(kind, content)),
            "not endorsed with the agreement's signing key",
        )


def test_endorsements_survive_a_restart_and_old_certificates_stay_refused(world: World, tmp_path: Path) -> None:
    pair = Pair(world, tmp_path / "endorsements.json")
    made, payload = pair.new(1)
    pair.shops.accept_endorsement(payload)
    pair.shops = pair.book()
    assert isinstance(pair.meet(made)[0], Accepted)
    pair.shops = pair.book()
    assert isinstance(pair.meet(made)[0], Accepted)
    assert pair.bank.certificate.der not in pair.shops.trust_anchors()
    with pytest.raises(Refusal, match="replaced"):
        pair.shops.identify_peer(pair.bank.certificate.der)
    assert pair.store is not None
    assert pair.store.stat().st_mode & 0o777 == 0o600
    pair.signing["bank"] = PrivateKey.generate()
    with pytest.raises(Refusal, match="not endorsed with the agreement's signing key"):
        pair.book()
    pair.store.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="damaged"):
        pair.book()


def test_a_party_known_by_an_authority_gets_its_next_certificate_there(world: World) -> None:
    ca = world.authority()
    bank = world.issued(ca, "bank")
    key = PrivateKey.generate()
    book = PeerBook("shop", {"bank": by(ca)}, agreement=JOB, signers={"bank": key.public_key})
    payload = Endorsement("bank", 1, JOB, world.own("bank", file="new").certificate).to_signed_bytes(key)
    _refused(book, payload, "identified by an authority")
    assert book.identify_peer(world.issued(ca, "bank", file="bank.1").certificate.der) == "bank"
    assert book.identify_peer(bank.certificate.der) == "bank"


def test_a_book_without_an_agreement_takes_no_endorsement(pair: Pair) -> None:
    book = PeerBook("shop", {"bank": pinned(pair.bank)}, signers={"bank": pair.signing["bank"].public_key})
    _refused(book, pair.new(1)[1], "endorsed for agreement")


def test_two_certificates_of_one_subject_are_told_apart_by_openssl(pair: Pair) -> None:
    """Both are anchors with the same subject; each is verified with its own key."""
    made = [pair.new(counter) for counter in (1, 2)]
    for _, payload in made:
        pair.shops.accept_endorsement(payload)
    assert len(pair.shops.trust_anchors()) == 3
    for identity in (pair.bank, made[0][0], made[1][0]):
        assert isinstance(pair.meet(identity)[0], Accepted)
    assert len(pair.shops.trust_anchors()) == 1


def test_a_context_follows_the_book_and_the_files(pair: Pair, world: World) -> None:
    made = make_tls_context(pair.shop, pair.shops, server=False)
    assert len(made.get_ca_certs(binary_form=True)) in {0, 1}  # a leaf is no authority, and not listed as one
    world.own("shop")  # writes the same files anew
    with pytest.raises(InputError, match="has changed since it was read"):
        make_tls_context(pair.shop, pair.shops, server=False)


def test_a_book_knows_when_its_peers_certificates_end(tmp_path: Path, world: World) -> None:
    """An endorsed successor counts as soon as it is accepted, also after a restart."""
    pair = Pair(world, tmp_path / "endorsements.json")
    old = pair.bank.certificate.not_after
    assert pair.shops.certificate_ends() == {"bank": old}
    made = world.own("bank", file="bank.1", days=200)
    payload = Endorsement("bank", 1, JOB, made.certificate).to_signed_bytes(pair.signing["bank"])
    pair.shops.accept_endorsement(payload)
    assert made.certificate.not_after > old
    assert pair.shops.certificate_ends() == pair.book().certificate_ends() == {"bank": made.certificate.not_after}
    assert pair.shops.list_ends() == {}
    authority = world.authority()
    authority.publish(days=30)
    book = PeerBook("shop", {"bank": by(authority)}, now=lambda: NOW)
    assert book.certificate_ends() == {"bank": by(authority).certificate.not_after}
    assert book.list_ends() == {"bank": NOW + 31 * DAY}

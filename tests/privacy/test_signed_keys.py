"""Public keys of the sealed cut, of masks and of aggregations are signed: whoever stands between two parties cannot put
keys of its own in the place of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import securevfl_crypto as crypto
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.helpers import make_parties

import securevfl as sv
from securevfl.ledger import Ledger, PrivateKey
from securevfl.privacy.signed_keys import check_public_key, sign_public_key
from securevfl.testing import link_in_memory
from securevfl.transport import Kind, Message
from securevfl.transport.memory import MemoryChannel

_Meddles = Callable[[Message], Message]


def _other_key(message: Message) -> Message:
    """A valid key of whoever stands in between, as long as the right one, under the signature of the other."""
    raw = np.asarray(message.arrays["key"])
    if raw.nbytes == 32:
        mine = X25519PrivateKey.generate().public_key().public_bytes_raw()
    else:
        scheme = next(s for s in (crypto.Paillier(2048), crypto.BFV(), crypto.CKKS()) if _reads(s, raw.tobytes()))
        mine = scheme.generate_key().public.to_bytes()
    return replace(message, arrays={**message.arrays, "key": np.frombuffer(mine, np.uint8)})


def _reads(scheme: crypto.Scheme, raw: bytes) -> bool:
    try:
        scheme.read_public(raw)
    except crypto.CryptoError:
        return False
    return True


def _own_signature(message: Message) -> Message:
    found = _other_key(message)
    return replace(found, meta={**found.meta, "signed": PrivateKey.generate().sign("a", b"key")})


def _no_signature(message: Message) -> Message:
    return replace(message, meta={name: value for name, value in message.meta.items() if name != "signed"})


def _other_setting(message: Message) -> Message:
    return replace(message, meta={**message.meta, "widest": 77})


SPLIT = sv.SplitNN(hidden=4, top=())
JOBS: dict[str, tuple[sv.Job, str]] = {
    "Paillier": (sv.Job(algorithm=SPLIT, protection=sv.Paillier(bits=2048), epochs=1, batch_size=32), "cut/public key"),
    "BFV": (sv.Job(algorithm=SPLIT, protection=sv.BFV(), epochs=1, batch_size=32), "cut/public key"),
    "CKKS": (sv.Job(algorithm=SPLIT, protection=sv.CKKS(), epochs=1, batch_size=32), "cut/public key"),
    "a passive party's": (
        sv.Job(algorithm=sv.SplitNN(hidden=4, bottom=(4,), top=()), protection=sv.BFV(), epochs=1, batch_size=32),
        "cut/passive key",
    ),
    "masks": (sv.Job(algorithm=SPLIT, protection=sv.BFV(), epochs=1, batch_size=32), "cut/seed"),
}


def _meddled(job: sv.Job, what: str, meddles: _Meddles, monkeypatch: pytest.MonkeyPatch) -> pytest.ExceptionInfo[Any]:
    send, seen = MemoryChannel.send, list[str]()

    async def replaced(channel: MemoryChannel, message: Message) -> int:
        seen.append(message.what)
        return await send(channel, meddles(message) if message.what == what else message)

    monkeypatch.setattr(MemoryChannel, "send", replaced)
    with pytest.raises(sv.ProtocolError, match=r"public key .* is not signed by .*nothing was encrypted") as caught:
        sv.simulate(job, make_parties(2, 90))
    assert what in seen
    return caught


@pytest.mark.parametrize("name", JOBS)
def test_keys_that_are_replaced_on_the_way_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, what = JOBS[name]
    caught = _meddled(job, what, _other_key, monkeypatch)
    last = [list(ledger.iter_entries())[-1] for ledger in caught.value.ledgers]
    assert any((entry.way, entry.what) == ("received", what) for entry in last)  # who got it sent nothing after it


@pytest.mark.parametrize("meddles", [_own_signature, _no_signature, _other_setting])
def test_other_signatures_and_settings_are_refused(meddles: _Meddles, monkeypatch: pytest.MonkeyPatch) -> None:
    job, what = JOBS["BFV"]
    _meddled(job, what, meddles, monkeypatch)


KEYS = {name: PrivateKey.generate() for name in ("bank", "shop", "post")}
ROLES = {"bank": "active", "shop": "passive", "post": "passive"}
PLACE: dict[str, Any] = {"run": "train", "job": "00", "attempt": 3, "view": "ab", "session": "0" * 32}


def _ledger(party: str, **place: Any) -> Ledger:
    """A party's ledger of one run that has met the two others."""
    given = PLACE | place
    roles = ROLES | given.get("roles", {})
    made = {
        name: Ledger(
            name, run=given["run"], job=given["job"], key=KEYS[name], role=roles[name], session=given["session"]
        )
        for name in KEYS
    }
    ledger = made[party]
    ledger.record_attempt(given["attempt"], given["view"])
    ledger.record_peers({name: (roles[name], made[name].introduction) for name in KEYS if name != party})
    return ledger


MESSAGE = Message(Kind.PUBLIC_KEY, "cut/public key", {"key": np.arange(40, dtype=np.uint8)}, {"widest": 4})


def _accepts(ledger: Ledger, message: Message, sender: str = "bank") -> bool:
    try:
        check_public_key(ledger, message, sender)
    except sv.ProtocolError:
        return False
    return True


def test_a_signature_is_for_one_key_in_one_place() -> None:
    sent = sign_public_key(_ledger("bank"), MESSAGE, "shop")
    assert _accepts(_ledger("shop"), sent)
    assert not _accepts(_ledger("shop", run="predict"), sent)
    assert not _accepts(_ledger("shop", job="01"), sent)
    assert not _accepts(_ledger("shop", attempt=4), sent)
    assert not _accepts(_ledger("shop", view="ac"), sent)
    assert not _accepts(_ledger("shop", session="1" * 32), sent)
    assert not _accepts(_ledger("shop", roles={"bank": "passive"}), sent)
    assert not _accepts(_ledger("shop", roles={"shop": "active"}), sent)
    assert not _accepts(_ledger("post"), sent)  # it was for the shop
    assert not _accepts(_ledger("shop"), sent, sender="post")
    assert not _accepts(_ledger("shop"), replace(sent, what="cut/seed"))
    assert not _accepts(_ledger("shop"), replace(sent, arrays={"key": np.arange(1, 41, dtype=np.uint8)}))
    assert not _accepts(_ledger("shop"), MESSAGE)


def test_a_peer_that_the_agreement_names_must_introduce_itself() -> None:
    pinned = Ledger("shop", run="train", job="00", pins={"bank": KEYS["bank"].public_key.hex})
    assert not _accepts(pinned, MESSAGE)
    assert _accepts(Ledger("shop", run="train", job="00"), MESSAGE)  # a protocol that is tried alone


def test_keys_of_secret_shares_are_signed_by_their_protocol_alone() -> None:
    from securevfl.privacy.signed_keys import SIGNED_BY_PROTOCOL
    from securevfl.shares.exchanges import KEY

    assert {KEY} == SIGNED_BY_PROTOCOL  # `tests/shares/test_keys.py` holds that it does


def test_a_link_signs_for_its_own_peer_what_goes_to_several() -> None:
    world = link_in_memory(passive=("p1", "p2"))
    roles = {"a": "active", "p1": "passive", "p2": "passive"}
    for name, site in world.items():
        others = {o: (roles[o], world[o].ledger.introduction) for o in world if o != name}
        site.ledger.record_peers(others)

    async def together() -> list[Message]:
        for name in ("p1", "p2"):
            await world["a"].links[name].hand_over(MESSAGE)
        return [await world[name].links["a"].receive(Kind.PUBLIC_KEY, MESSAGE.what, "key") for name in ("p1", "p2")]

    first, second = asyncio.run(together())
    assert first.meta["widest"] == second.meta["widest"] == 4
    assert first.meta["signed"] != second.meta["signed"]

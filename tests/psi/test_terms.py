"""The handshake: what goes into a session, and names that no encoding can carry."""

from __future__ import annotations

from typing import Any

import pytest
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import DisagreementError, MalformedError, PSIError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.terms import Terms
from securevfl_psi.wire import FrameWriter, Kind
from support.psi_ends import terms


@pytest.mark.parametrize("more", [{"name": "\ud800"}, {"peer": "b\udfff"}, {"context": "\udc80"}])
def test_names_that_no_encoding_can_carry(more: dict[str, str]) -> None:
    with pytest.raises(PSIError, match="lone surrogate"):
        Terms(**{"name": "a", "peer": "b", "role": "sender"} | more)  # type: ignore[arg-type]
    assert Terms(name="\ud7ff", peer="\ue000", role="sender").peer == "\ue000"


def test_everything_that_was_agreed_on_goes_into_the_session() -> None:
    tags = set()
    nonces = [bytes([number]) * 16 for number in range(4)]
    cases: list[dict[str, Any]] = [
        {},
        {"context": "x"},
        {"protocol": "cardinality"},
        {"rules": IdRules(casefold=True)},
        {"nonces": nonces[1:3]},
        {"nonces": nonces[::2]},
    ]
    for more in cases:
        own, other = more.pop("nonces", nonces[:2])
        bank, shop = terms("receiver", nonce=own, **more), terms("sender", nonce=other, **more)
        session, _ = bank.accept_hello(shop.encode_hello(1))
        assert session.dst == shop.accept_hello(bank.encode_hello(1))[0].dst
        tags.add(session.dst)
        with pytest.raises(MalformedError, match="repeats this party's nonce"):
            bank.accept_hello(terms("sender", nonce=own, **more).encode_hello(1))
    assert len(tags) == len(cases)


def test_only_a_hello_is_a_hello() -> None:
    bank = Endpoint(["a"], terms("receiver"))
    with pytest.raises(MalformedError, match="a POINTS came before the hello"):
        bank.feed(FrameWriter().write(Kind.POINTS, terms("sender").encode_hello(1)))


def test_parties_with_two_salts_do_not_find_nothing_in_common() -> None:
    bank = Endpoint(["ann"], terms("receiver", "unsafe_salted_hash"))
    shop = Endpoint(["ann"], terms("sender", "unsafe_salted_hash", salt=b"t" * 16))
    with pytest.raises(DisagreementError, match="another salt"):
        run_in_process(bank, shop)

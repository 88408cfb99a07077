"""Sets that are filled up: the filling equals nothing, and does not stand out."""

from __future__ import annotations

import pytest
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import PSIError
from securevfl_psi.terms import LastingKey
from securevfl_psi.wire import Kind
from support.psi_ends import Hostile, terms


def test_padding_does_not_stand_out_in_a_later_run() -> None:
    """With kept keys the points of rows come back; those of the padding have to come back, too."""
    mine, theirs = LastingKey(), LastingKey()
    seen = []
    for ids in (["ann", "bob"], ["ann", "bob"], ["ann", "bob", "cyd"]):
        bank = Endpoint(ids, terms("receiver", "pseudonyms", lasting=mine, pad_to=20))
        bad = Hostile("sender", bank, 0, lasting=theirs)
        points = bad.heard(Kind.POINTS)
        seen.append({points[i : i + 32] for i in range(0, len(points), 32)})
    assert len(seen[0]) == 20
    assert seen[0] == seen[1]
    assert len(seen[0] & seen[2]) == 19
    fresh = Endpoint(["ann"], terms("receiver", "pseudonyms", pad_to=20))
    assert not seen[0] & {Hostile("sender", fresh, 0).heard(Kind.POINTS)[:32]}


def test_salted_hashes_do_not_pretend_to_pad() -> None:
    """The receiver waited for rows that never came."""
    with pytest.raises(PSIError, match="does not pad"):
        terms("sender", "unsafe_salted_hash", pad_to=5)


def test_names_of_the_padding_change_as_names_of_rows_do() -> None:
    """A receiver that changes its key, and keeps its nonce, must not see which names stay."""
    nonce, mine = LastingKey().nonce, LastingKey()
    seen = []
    for key in (LastingKey(nonce=nonce), LastingKey(nonce=nonce)):
        bank = Endpoint(["ann"], terms("receiver", "pseudonyms", lasting=key))
        shop = Endpoint(["ann", "bob"], terms("sender", "pseudonyms", lasting=mine, pad_to=20))
        run_in_process(bank, shop)
        assert bank.result.pseudonyms is not None
        seen.append({name.tobytes() for name in bank.result.pseudonyms.peer})
    assert [len(names) for names in seen] == [20, 20]
    assert not seen[0] & seen[1]


def test_padding_gets_no_pseudonym() -> None:
    bank, shop = (Endpoint(["ann"], terms(role, "pseudonyms", pad_to=9)) for role in ("receiver", "sender"))
    run_in_process(bank, shop)
    for end in (bank, shop):
        assert end.result.pseudonyms is not None
        assert end.result.pseudonyms.own.shape == (1, 16)

"""Who decides that a party is gone: all others, the same, and nobody by itself."""

from __future__ import annotations

import itertools
import random

import pytest

from securevfl.errors import ProtocolError
from securevfl.party.leaving import Departures, LeavingWord, decode_words, encode_words

PARTIES = ("bank", "shop1", "shop2", "shop3")


def departures(me: str, **options: object) -> Departures:
    return Departures(me, [name for name in PARTIES if name != me], {"bank"}, **options)  # type: ignore[arg-type]


def word(party: str, *gone: str, alignment: str = "aa", epoch: int = 1, attempt: int = 0) -> LeavingWord:
    return LeavingWord(party, "", gone, alignment, epoch, attempt)


def told(me: str, *words: LeavingWord) -> Departures:
    found = departures(me)
    found.take_note("bank" if me != "bank" else "shop1", encode_words(words))
    return found


def test_a_party_is_gone_when_all_others_have_signed_it() -> None:
    signers = ("bank", "shop1", "shop2")
    for count in range(3):
        for some in itertools.combinations(signers, count):
            assert told("shop1", *(word(name, "shop3") for name in some)).gone == ()
    found = told("shop1", *(word(name, "shop3", epoch=epoch) for epoch, name in enumerate(signers, 4)))
    assert (found.gone, found.epoch) == (("shop3",), 4)
    assert told("shop3", *decode_words(found.note)).gone == ("shop3",)


def test_words_of_different_sets_or_alignments_decide_nothing() -> None:
    assert told("bank", word("bank", "shop2", "shop3"), word("shop1", "shop3"), word("shop2", "shop3")).gone == ()
    assert (
        told("bank", *(word(name, "shop3", alignment=f"{ord(name[-1]):x}") for name in ("bank", "shop1", "shop2"))).gone
        == ()
    )
    assert told("bank", *(word(name, "shop3", alignment="") for name in ("bank", "shop1", "shop2"))).gone == ()


def test_the_party_with_the_labels_is_never_gone_and_one_other_stays() -> None:
    every = departures("shop1")
    assert every.find_due({"bank"}) == ()
    assert every.find_due({"bank", "shop2"}) == ()
    assert every.find_due({"shop2", "shop3"}) == ("shop2", "shop3")
    assert departures("bank").find_due({"shop1", "shop2", "shop3"}) == ()
    assert told("shop1", *(word(name, "bank") for name in ("shop1", "shop2", "shop3"))).gone == ()


def test_a_later_word_names_all_earlier_ones_until_all_begin_together() -> None:
    found = departures("bank")
    found.add_own(word("bank", "shop3"))
    assert found.find_due(()) == ()
    assert found.find_due({"shop2"}) == ("shop2", "shop3")
    found.forget_undecided(1)
    assert found.find_due({"shop2"}) == ("shop2",)


def test_what_is_decided_is_never_withdrawn() -> None:
    found = told("bank", *(word(name, "shop3") for name in ("bank", "shop1", "shop2")))
    found.forget_undecided(1)
    assert found.gone == ("shop3",)
    assert found.find_due({"shop2"}) == ("shop2", "shop3")
    found.take_note("shop1", encode_words([word(name, "shop2", "shop3", attempt=1) for name in ("bank", "shop1")]))
    assert set(found.gone) == {"shop2", "shop3"}


def test_who_leaves_itself_is_named_at_once() -> None:
    found = told("bank", word("shop3", "shop3", alignment="", epoch=0))
    assert found.find_due(()) == ("shop3",)
    assert departures("shop3", known=[word("shop3", "shop3")]).has_farewell
    assert departures("shop3", known=[word("shop3", "shop3")]).find_due({"shop1"}) == ()


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\xc1", "no valid word"),
        (encode_words([word("shop1", "shop9")]), "'shop1' sent no valid word on who left: shop9 is not a party"),
        (encode_words([word("shop1", "shop3", "shop2")]), "in no order"),
        (encode_words([word("shop1", "shop1", "shop2")]), "in no order"),
        (encode_words([word("shop1", "shop2")] * 4161), "no valid word"),
    ],
)
def test_words_that_cannot_be_are_refused(payload: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        departures("bank").take_note("shop1", payload)


def test_a_word_that_its_party_did_not_sign_is_refused() -> None:
    def check(one: LeavingWord) -> None:
        raise ValueError(f"the word of {one.party!r}: not signed")

    found = departures("bank", check=check)
    with pytest.raises(ProtocolError, match="the word of 'shop2': not signed"):
        found.take_note("shop1", encode_words([word("shop2", "shop3")]))
    assert not found.words


@pytest.mark.parametrize("seed", range(200))
def test_no_two_groups_go_on_apart(seed: int) -> None:
    """Any order of absences, words, losses and attempts: whoever decided differs only by having decided more."""
    draw = random.Random(seed)
    every = {name: departures(name) for name in PARTIES}
    attempt = 0
    for _ in range(60):
        me = draw.choice(PARTIES)
        own = every[me]
        if draw.random() < 0.4:
            away = {name for name in PARTIES if name != me and draw.random() < 0.4}
            if gone := own.find_due(away):
                own.add_own(word(me, *gone, attempt=attempt))
        elif draw.random() < 0.8:
            every[draw.choice([name for name in PARTIES if name != me])].take_note(me, own.note)
        elif len({one.gone for one in every.values()}) == 1 and not own.gone:
            attempt += 1
            for one in every.values():  # all were ready for one attempt
                one.forget_undecided(attempt)
        sets = sorted((set(one.gone) for one in every.values()), key=len)
        assert all(one <= other for one, other in itertools.pairwise(sets))


def test_one_party_cannot_bring_back_a_word_that_was_withdrawn() -> None:
    """bank and shop1 sign that shop3 is gone; shop3 is back, all begin attempt 2; shop2 has kept the old words."""
    old = [word(name, "shop3") for name in ("bank", "shop1")]
    for me in PARTIES:
        found = told(me, *old)
        found.forget_undecided(2)
        found.take_note("shop2" if me != "shop2" else "bank", encode_words([*old, word("shop2", "shop3", attempt=2)]))
        assert found.gone == ()
        again = departures(me, known=old, begun=2)  # killed before the withdrawal was stored
        again.take_note("shop2" if me != "shop2" else "bank", encode_words([word("shop2", "shop3", attempt=2)]))
        assert again.gone == ()


def test_one_party_cannot_take_back_a_decision() -> None:
    found = told("bank", *(word(name, "shop3") for name in ("bank", "shop1", "shop2")))
    before = found.words
    assert not found.take_note("shop1", encode_words([word("shop1", "shop3", alignment="bb", attempt=9)]))
    assert (found.gone, found.words) == (("shop3",), before)


def test_a_party_that_signs_many_sets_does_not_fill_the_file() -> None:
    names = [f"shop{at:02}" for at in range(12)]
    found = Departures("bank", names, {"bank"})
    for count in range(1, 4):
        for some in itertools.combinations(names[1:], count):
            found.take_note("shop00", encode_words([word("shop00", *some)]))
    assert len(found.words) <= len(names)
    assert decode_words(encode_words(found.words)) == list(found.words)

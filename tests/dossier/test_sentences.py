"""What documents are made of: nothing without a source passes, and a value cannot leave its source behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from securevfl.dossier.pages import render_document
from securevfl.dossier.places import PLACES
from securevfl.dossier.sentences import (
    Document,
    Fact,
    FillIn,
    Item,
    Row,
    Section,
    Sentence,
    Source,
    Table,
    apply_answers,
    format_value,
    write_row,
    write_sentence,
)
from securevfl.dossier.word import has_word, render_word
from securevfl.dossier.words import explain_words

REPORT = Source("report", "alignment.common")
GOOD = Sentence("6 rows are common.", (REPORT,))


def _document(*items: Item, law: str = "GDPR Art. 30") -> Document:
    return Document("toy", "Toy", law, (Section("First", law, items or (GOOD,)),))


@pytest.mark.parametrize(
    "item",
    [
        Sentence("All is well.", ()),
        Sentence(" ", (REPORT,)),
        Sentence("All is well.", (Source("report", ""),)),
        Sentence("All is well.", (Source("hearsay", "somebody"),)),  # type: ignore[arg-type]
        Table(("a", "b"), (Row(("1", "2"), ()),)),
        Table(("a", "b"), (Row(("1",), (REPORT,)),)),
        Table(("a", "b"), ()),
        FillIn("key", ""),
        FillIn("", "what"),
    ],
)
@pytest.mark.parametrize("render", [render_document, render_word])
def test_what_rests_on_nothing_is_refused_by_every_renderer(render: object, item: Item) -> None:
    assert callable(render)
    with pytest.raises(ValueError, match="rest on nothing"):
        render(_document(GOOD, item))


def test_a_section_needs_items_and_a_law_and_a_warning_needs_a_source() -> None:
    for wrong in (
        replace(_document(), sections=(Section("Empty", "GDPR Art. 30", ()),)),
        _document(law=""),
        replace(_document(), warning=Sentence("Beware.", ())),
    ):
        with pytest.raises(ValueError, match="rest on nothing"):
            render_document(wrong)


def test_a_fact_brings_its_source_and_braces_of_a_table_stay() -> None:
    found = write_sentence("{n} rows of {who}.", n=Fact(6770, REPORT), who=Fact("a {n}", Source("agreement", "party")))
    assert found.text == "6,770 rows of a {n}."
    assert list(map(str, found.sources)) == ["[report alignment.common]", "[agreement party]"]
    nested = write_sentence("{n} of {who}.", n=Fact("{who}", REPORT), who=Fact("bank", REPORT))
    assert nested.text == "{who} of bank."
    with pytest.raises(ValueError, match="does not use n"):
        write_sentence("Some rows.", n=Fact(1, REPORT))
    assert write_row("bank", Fact(0.80291, REPORT)) == Row(("bank", "0.8029"), (REPORT,))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not set"), (True, "yes"), (12345, "12,345"), ("", "none"), ([], "none"), ({"a": 1}, "a 1"), ("x", "x")],
)
def test_values_are_shown_as_a_person_writes_them(value: object, text: str) -> None:
    assert format_value(value) == text


def test_answers_take_the_place_of_what_they_answer_and_empty_ones_do_not() -> None:
    document = _document(GOOD, FillIn("dpo", "the officer"), FillIn("retention", "how long"))
    filled = apply_answers(document, {"dpo": " Ada, ada@bank.example ", "retention": " "}, "fill-in.toml")
    assert [place.key for place in filled.places] == ["retention"]
    assert Sentence("the officer: Ada, ada@bank.example", (Source("answer", "fill-in.toml: dpo"),)) in filled.items
    page = render_document(filled)
    assert "1 place to fill in" in page
    assert "[answer fill-in.toml: dpo]" in page
    assert page.count('class="fill"') == 1


def test_a_page_escapes_what_a_table_or_a_person_wrote() -> None:
    page = render_document(_document(Sentence("<script>alert(1)</script>", (Source("answer", "<b>"),))))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "[answer &lt;b&gt;]" in page


def test_control_characters_and_marks_of_direction_are_shown_as_replaced() -> None:
    """DOCX cannot contain the first, and the second turn a purpose into another one."""
    document = _document(Sentence("a\x01b \u202egnitekram", (Source("answer", "x\x0b"),)), FillIn("key", "c\x02"))
    page = render_document(document)
    assert "a\ufffdb \ufffdgnitekram" in page
    assert not any(sign in page for sign in "\x01\x02\x0b\u202e")
    if has_word():
        assert render_word(document).startswith(b"PK")


def test_a_document_explains_the_words_that_it_uses() -> None:
    page = render_document(_document(Sentence("The AUC is 0.8.", (REPORT,))))
    assert "0.5 by chance" in page
    assert "Spearman" not in page
    assert explain_words(_document(Sentence("All is well.", (REPORT,)))) == []


def test_each_place_has_its_own_key() -> None:
    assert len(PLACES) > 50
    assert all(key == place.key and place.what for key, place in PLACES.items())

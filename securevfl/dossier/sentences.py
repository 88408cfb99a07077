"""What documents are made of: sentences with their sources, tables whose rows have sources, and places to fill in.

A value enters a sentence as a `Fact`, which carries its source, so that a number and what it is cited from cannot come
apart. Renderers call `require_sources` first: a sentence without a source is refused, whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

__all__ = [
    "KINDS",
    "Document",
    "Fact",
    "FillIn",
    "Item",
    "Row",
    "Section",
    "Sentence",
    "Source",
    "SourceKind",
    "Table",
    "apply_answers",
    "require_sources",
    "write_row",
    "write_sentence",
]

SourceKind = Literal[
    "agreement", "setting", "ledger", "audit", "report", "card", "attacks", "measured", "file", "answer"
]
"""What a statement can rest on; `KINDS` has what each is."""

KINDS: Mapping[SourceKind, str] = {
    "agreement": "the agreement's file, a term by its path",
    "setting": "an option of the job, as the report recorded it",
    "ledger": "a ledger whose every line was verified when this was written",
    "audit": "the verification of all ledgers here",
    "report": "metrics.json, a figure by its path; the ledgers contain its SHA-256",
    "card": "what each party could read of each other's data at worst, computed from what the messages declare",
    "attacks": "attacks.json: attacks on a run with this algorithm and protection; no ledger covers the file",
    "measured": "attacks on recorded runs of other jobs and public tables, which the program comes with",
    "file": "a file of this dossier or of the run",
    "answer": "what a person wrote into fill-in.toml",
}
"""Kind of source → what it is, for readers."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a statement comes from.

    Attributes:
        kind: of source.
        place: in it: ``"limits.expires"``, ``"bank.jsonl, 1,204 entries, head 9f3a51c2…"``.
    """

    kind: SourceKind
    place: str

    def __str__(self) -> str:
        return f"[{self.kind} {self.place}]"


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and where it is from.

    Attributes:
        value: as its source has it; None where the source has none.
        source: of it.
        text: as a sentence shows it; made from the value unless given.
    """

    value: object
    source: Source
    text: str = ""

    def __str__(self) -> str:
        return self.text or format_value(self.value)

    def as_text(self, text: str) -> Fact:
        """The same fact in other words."""
        return replace(self, text=text)


def format_value(value: object) -> str:
    """A setting or a figure as a sentence shows it: ``6,770``, ``0.8029``, ``yes``, ``a, b``."""
    if value is None or isinstance(value, bool):
        return "not set" if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(one)}" for key, one in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(format_value, value)) or "none"
    return str(value) or "none"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One or more sentences that rest on the same sources.

    Attributes:
        text: of it.
        sources: at least one.
    """

    text: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class FillIn:
    """A place that a person has to fill in.

    Attributes:
        key: in the answers file; the same key in several documents is one place.
        what: is asked.
        hint: how to find out, or a command; may be empty.
    """

    key: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        cells: as many as the table has heads.
        sources: of all its cells.
    """

    cells: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Facts side by side.

    Attributes:
        heads: of the columns, without the one for sources.
        rows: at least one.
    """

    heads: tuple[str, ...]
    rows: tuple[Row, ...]


Item = Sentence | FillIn | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document.

    Attributes:
        title: of it.
        law: the paragraph or chapter that asks for it, ``"GDPR Art. 35(7)(a)"``.
        items: in order.
    """

    title: str
    law: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a dossier.

    Attributes:
        name: of its files, without an ending.
        title: of it.
        law: what it follows.
        sections: in the order of that law.
        warning: what everybody must see first, such as that this was a simulation; may be None.
    """

    name: str
    title: str
    law: str
    sections: tuple[Section, ...]
    warning: Sentence | None = None

    @property
    def items(self) -> Iterator[Item]:
        """All items, in order."""
        for section in self.sections:
            yield from section.items

    @property
    def places(self) -> tuple[FillIn, ...]:
        """What a person has to fill in, each place once."""
        return tuple({one.key: one for one in self.items if isinstance(one, FillIn)}.values())


def write_sentence(text: str, /, *sources: Source, **facts: Fact) -> Sentence:
    """A sentence whose values are facts.

    Args:
        text: with the names of facts in braces: ``"It ends on {expires}."``
        sources: what it rests on besides.
        facts: name → fact.

    Raises:
        ValueError: `text` does not name one of the facts, whose source would then stand beside nothing.
    """
    # Not str.format: names of columns and notes of a run may contain braces.
    unused = [name for name in facts if f"{{{name}}}" not in text]
    if unused:
        raise ValueError(f"{text[:80]!r} does not use {', '.join(unused)}")
    if facts:
        # One pass, so that a value with braces is never taken for the name of another fact.
        text = re.sub("|".join(rf"\{{{name}\}}" for name in facts), lambda found: str(facts[found[0][1:-1]]), text)
    cited = dict.fromkeys([*(fact.source for fact in facts.values()), *sources])
    return Sentence(text, tuple(cited))


def write_row(*cells: Fact | str, sources: Iterable[Source] = ()) -> Row:
    """A row whose cells are facts, or words that name them."""
    cited = dict.fromkeys([*(cell.source for cell in cells if isinstance(cell, Fact)), *sources])
    return Row(tuple(map(str, cells)), tuple(cited))


def require_sources(document: Document) -> None:
    """Do nothing, unless something in the document rests on nothing.

    Raises:
        ValueError: a sentence or a row without a source or without words, a section without items or without the law
            that asks for it, a place without a question. A document's author made a mistake, not the user.
    """
    found = []
    for section in document.sections:
        if not section.law or not section.items:
            found.append(f"section {section.title!r} has no law or no items")
        found += [mistake for item in section.items if (mistake := _find_mistake(item))]
    if document.warning is not None and (mistake := _find_mistake(document.warning)):
        found.append(mistake)
    if found:
        raise ValueError(f"{document.name} has {len(found)} statements that rest on nothing: {'; '.join(found[:5])}")


def _find_mistake(item: Item) -> str:
    if isinstance(item, FillIn):
        return "" if item.key and item.what else f"place {item.key!r} asks nothing"
    if isinstance(item, Sentence):
        return "" if item.text.strip() and _are_sources(item.sources) else f"no source: {item.text[:80]!r}"
    for row in item.rows:
        if len(row.cells) != len(item.heads) or not _are_sources(row.sources):
            return f"no source, or the wrong number of cells: {row.cells[:2]!r}"
    return "" if item.rows else f"no rows below {item.heads!r}"


def _are_sources(sources: Sequence[object]) -> bool:
    known = get_args(SourceKind)
    return bool(sources) and all(isinstance(one, Source) and one.kind in known and one.place for one in sources)


def apply_answers(document: Document, answers: Mapping[str, str], file: str) -> Document:
    """The document with answers in place of what they answer.

    Args:
        document: as it was written.
        answers: key of a place → what a person wrote; empty texts are left out.
        file: the answers file, which becomes the source.
    """

    def fill(item: Item) -> Item:
        if isinstance(item, FillIn) and (text := answers.get(item.key, "").strip()):
            return Sentence(f"{item.what}: {text}", (Source("answer", f"{file}: {item.key}"),))
        return item

    filled = [replace(section, items=tuple(map(fill, section.items))) for section in document.sections]
    return replace(document, sections=tuple(filled))

"""A dossier as HTML: one self-contained page for each document and an index, in the look of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from securevfl.dossier.sentences import KINDS, Document, FillIn, Sentence, Table, require_sources
from securevfl.dossier.words import explain_words, make_printable
from securevfl.report.template import fill_template

__all__ = ["count_places", "render_document", "render_index"]


@dataclass(frozen=True)
class OtherFile:
    """A file of the dossier that is no document.

    Attributes:
        name: of the file.
        what: it contains.
    """

    name: str
    what: str


def render_document(document: Document, *, word: bool = False) -> str:
    """A document's page.

    Args:
        document: every statement of which has a source.
        word: whether the same document is beside it as DOCX.

    Raises:
        ValueError: a statement rests on nothing.
    """
    require_sources(document)
    document = make_printable(document)
    return fill_template(
        "dossier.html.j2",
        document.title,
        {},
        document=document,
        places=count_places(document.places),
        word=word,
        words=explain_words(document),
        is_sentence=_is_sentence,
        is_place=_is_place,
        is_table=_is_table,
    )


def render_index(
    title: str, documents: Sequence[Document], basis: Sequence[object], others: Sequence[OtherFile]
) -> str:
    """The page that lists all documents, what they rest on and how much is left to fill in.

    Args:
        title: what was trained.
        documents: in order.
        basis: sources of the whole.
        others: further files.
    """
    places = {place.key: place for document in documents for place in document.places}
    return fill_template(
        "dossier_index.html.j2",
        f"Dossier: {title}",
        {},
        documents=[(document, count_places(document.places)) for document in documents],
        places=count_places(tuple(places.values())),
        basis=basis,
        kinds=[(kind, KINDS[kind]) for kind in KINDS if kind in _list_kinds(documents)],
        others=others,
        warning=next((one.warning for one in documents if one.warning is not None), None),
    )


def _list_kinds(documents: Sequence[Document]) -> set[str]:
    """Kinds of source that the documents cite."""
    found: set[str] = set()
    for document in documents:
        for item in document.items:
            rows = item.rows if isinstance(item, Table) else (item,) if isinstance(item, Sentence) else ()
            found |= {source.kind for row in rows for source in row.sources}
    return found


def count_places(places: Sequence[FillIn]) -> str:
    """``12 places to fill in``."""
    if not places:
        return "nothing left to fill in"
    return f"{len(places)} place{'s' if len(places) > 1 else ''} to fill in"


def _is_sentence(item: object) -> bool:
    return isinstance(item, Sentence)


def _is_place(item: object) -> bool:
    return isinstance(item, FillIn)


def _is_table(item: object) -> bool:
    return isinstance(item, Table)

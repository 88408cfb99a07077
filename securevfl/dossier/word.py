"""A document of a dossier as DOCX, with the same sentences, sources and places as its page."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from securevfl.dossier.pages import count_places
from securevfl.dossier.sentences import Document, FillIn, Item, Sentence, Source, require_sources
from securevfl.dossier.words import explain_words, make_printable
from securevfl.errors import InputError

__all__ = ["has_word", "render_word"]

_EXTRA = "DOCX needs python-docx: pip install 'securevfl[dossier]'; or leave --docx out and take the HTML pages"
_GREY = (0x5B, 0x67, 0x73)
_YELLOW = "FDF0CD"


def has_word() -> bool:
    """Whether DOCX can be written here."""
    try:
        import docx  # noqa: F401 - asked for its presence alone
    except ImportError:
        return False
    return True


def render_word(document: Document) -> bytes:
    """The bytes of a DOCX file.

    Raises:
        ValueError: a statement rests on nothing.
        InputError: python-docx is not installed; names the extra.
    """
    require_sources(document)
    document = make_printable(document)
    if not has_word():
        raise InputError(_EXTRA)
    import docx
    from docx.shared import Pt

    file = docx.Document()
    file.styles["Normal"].font.name = "Calibri"
    file.styles["Normal"].font.size = Pt(10.5)
    file.core_properties.title = document.title
    file.core_properties.author = "securevfl"
    file.add_heading(document.title, level=0)
    lead = file.add_paragraph(f"{document.law}. ")
    lead.add_run(f"{count_places(document.places)}.").bold = True
    lead.add_run(" A draft for a person to complete, not legal advice.")
    if document.warning is not None:
        warning = file.add_paragraph()
        warning.add_run(document.warning.text).bold = True
        _add_sources(warning, document.warning.sources)
    for number, section in enumerate(document.sections, 1):
        file.add_heading(f"{number}. {section.title}", level=1)
        _add_grey(file.add_paragraph(), section.law)
        for item in section.items:
            _add_item(file, item)
    if words := explain_words(document):
        file.add_heading("Words", level=1)
    for term, meaning in words:
        paragraph = file.add_paragraph()
        paragraph.add_run(term).bold = True
        paragraph.add_run(f": {meaning}.")
    target = BytesIO()
    file.save(target)
    return target.getvalue()


def _add_item(file: Any, item: Item) -> None:
    if isinstance(item, Sentence):
        paragraph = file.add_paragraph(item.text)
        _add_sources(paragraph, item.sources)
    elif isinstance(item, FillIn):
        _add_place(file, item)
    else:
        heads = (*item.heads, "source")
        table = file.add_table(rows=1, cols=len(heads), style="Light Grid Accent 1")
        for cell, head in zip(table.rows[0].cells, heads, strict=True):
            cell.text = head
        for row in item.rows:
            cells = table.add_row().cells
            for cell, text in zip(cells, row.cells, strict=False):
                cell.text = text
            _add_sources(cells[-1].paragraphs[0], row.sources)
        file.add_paragraph()


def _add_place(file: Any, place: FillIn) -> None:
    """A yellow box: a table of one cell, which people can write into."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    cell = file.add_table(rows=1, cols=1, style="Table Grid").rows[0].cells[0]
    shade = OxmlElement("w:shd")
    for name, value in (("w:val", "clear"), ("w:color", "auto"), ("w:fill", _YELLOW)):
        shade.set(qn(name), value)
    cell._tc.get_or_add_tcPr().append(shade)
    paragraph = cell.paragraphs[0]
    paragraph.add_run("FILL IN ").bold = True
    paragraph.add_run(place.what)
    _add_grey(paragraph, " ".join(filter(None, (place.hint, f"({place.key})"))))
    file.add_paragraph()


def _add_sources(paragraph: Any, sources: Sequence[Source]) -> None:
    _add_grey(paragraph, " ".join(map(str, sources)))


def _add_grey(paragraph: Any, text: str) -> None:
    from docx.shared import Pt, RGBColor

    run = paragraph.add_run(f" {text}")
    run.font.size = Pt(8)
    run.font.color.rgb = RGBColor(*_GREY)

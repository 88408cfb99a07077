"""Write a dossier: the documents, the bill of materials, the answers file and the index."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from securevfl_net.durable import make_folder, write_atomic

from securevfl.dossier.annex_iv import write_annex_iv
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.impact_assessment import write_impact_assessment
from securevfl.dossier.materials import make_sbom
from securevfl.dossier.model_documents import write_model_card, write_model_risk
from securevfl.dossier.pages import OtherFile, count_places, render_document, render_index
from securevfl.dossier.processing_record import write_processing_record
from securevfl.dossier.sentences import Document, FillIn, apply_answers
from securevfl.dossier.word import has_word, render_word
from securevfl.errors import InputError
from securevfl.run.run_files import file_digest, sha256

__all__ = ["ANSWERS", "Dossier", "write_documents", "write_dossier"]

ANSWERS = "fill-in.toml"
"""The file in the dossier's folder that people write into: key of a place → answer."""

WRITTEN = "written.json"
"""SHA-256 of each file as it was written: a file that somebody edited since is not overwritten."""

INDEX = "index.html"
SBOM = "sbom.cdx.json"

_HEAD = """\
# Answers to the places "FILL IN" of this dossier. Write an answer between the quotes, and write the dossier again:
# every document that asks for it then has the answer, with this file as its source. An empty answer leaves the place
# open.
"""


@dataclass(frozen=True)
class Dossier:
    """What was written.

    Attributes:
        folder: of the files.
        documents: in order.
        files: names of all files, the index first.
    """

    folder: Path
    documents: tuple[Document, ...]
    files: tuple[str, ...]

    @property
    def places(self) -> tuple[FillIn, ...]:
        """What is left to fill in, each place once."""
        return tuple({place.key: place for one in self.documents for place in one.places}.values())

    def __repr__(self) -> str:
        return f"Dossier({str(self.folder)!r}, {len(self.documents)} documents, {count_places(self.places)})"


def write_documents(evidence: DossierEvidence, answers: Mapping[str, str] | None = None) -> tuple[Document, ...]:
    """All documents of some evidence, with a person's answers where there are any."""
    drafts = (
        write_impact_assessment(evidence),
        write_processing_record(evidence),
        write_annex_iv(evidence),
        write_model_risk(evidence),
        write_model_card(evidence),
    )
    return tuple(apply_answers(draft, answers or {}, ANSWERS) for draft in drafts)


def write_dossier(evidence: DossierEvidence, folder: str | Path, *, docx: bool | None = None) -> Dossier:
    """Write a dossier into a folder; answers that are there already are kept and used.

    Args:
        evidence: of a run or an agreement.
        folder: is made if it is missing; only its owner may read what is written.
        docx: whether to write DOCX too; None to do so where python-docx is installed.

    Raises:
        InputError: the folder has other files than a dossier's, or a document in it was edited, or the answers are not
            TOML, or DOCX was asked for and cannot be written. Nothing was written then.
    """
    target = Path(folder)
    before = _read_written(target)
    _refuse_edited(target, before)
    answers = _read_answers(target)
    documents = write_documents(evidence, answers)
    word = has_word() if docx is None else docx
    files: dict[str, bytes] = {}
    for document in documents:
        files[f"{document.name}.html"] = render_document(document, word=word).encode()
        if word:
            files[f"{document.name}.docx"] = render_word(document)
    files[SBOM] = (json.dumps(make_sbom(), indent=2) + "\n").encode()
    files[ANSWERS] = _format_answers(documents, write_documents(evidence), answers)
    others = [
        OtherFile(SBOM, "software bill of materials of this installation, CycloneDX 1.6"),
        OtherFile(ANSWERS, "answers to the places to fill in"),
    ]
    files[INDEX] = render_index(evidence.title, documents, evidence.basis, others).encode()
    digests = {name: sha256(content) for name, content in files.items() if name != ANSWERS}
    files[WRITTEN] = (json.dumps(digests, indent=2) + "\n").encode()
    make_folder(target, private=not target.exists())
    for name, content in files.items():
        write_atomic(target / name, content, private=True)
    for name in before.keys() - files.keys():
        (target / name).unlink(missing_ok=True)  # of an earlier dossier, such as DOCX that was not asked for again
    return Dossier(target, documents, (INDEX, *(name for name in files if name != INDEX)))


def _read_written(folder: Path) -> dict[str, str]:
    """File → SHA-256 as an earlier dossier was written into the folder.

    Raises:
        InputError: the list is damaged.
    """
    file = folder / WRITTEN
    if not file.is_file():
        return {}
    try:
        found: dict[str, str] = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InputError(f"{file} is damaged ({error}): give another --out") from None
    # Anybody may have edited the list: only names of files directly in the folder are looked at, or removed.
    return {name: digest for name, digest in found.items() if Path(name).name == name}


def _refuse_edited(folder: Path, written: Mapping[str, str]) -> None:
    """Do nothing, unless somebody edited a document: their words would be lost.

    Raises:
        InputError: somebody did; names the files.
    """
    there = [name for name in written if (folder / name).is_file()]
    edited = [name for name in there if file_digest(folder / name) != written[name]]
    if edited:
        raise InputError(
            f"{', '.join(edited)} in {folder} was edited since it was written, and would be overwritten: give another "
            f"--out, or move it away; answers belong into {folder / ANSWERS}"
        )


def _read_answers(folder: Path) -> dict[str, str]:
    """The answers in a folder of a dossier; none where there is no such folder.

    Raises:
        InputError: the folder is not one of a dossier, or the file is not one of answers.
    """
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder, --out")
    file = folder / ANSWERS
    if not file.is_file():
        if any(folder.iterdir()):
            raise InputError(f"{folder} has files and is not a dossier's folder: give another --out")
        return {}
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML ({error}): put each answer between quotes") from None
    wrong = [key for key, value in content.items() if not isinstance(value, str)]
    if wrong:
        raise InputError(f"{file}: {', '.join(wrong[:5])} is not a text: put each answer between quotes")
    return content


def _format_answers(documents: tuple[Document, ...], drafts: tuple[Document, ...], answers: Mapping[str, str]) -> bytes:
    """The answers file: each place with its question and the documents that ask it; answers of other places last."""
    asked: dict[str, tuple[FillIn, list[str]]] = {}
    for draft in drafts:
        for place in draft.places:
            asked.setdefault(place.key, (place, []))[1].append(draft.name)
    lines = [_HEAD]
    for key, (place, names) in asked.items():
        hint = f" ({place.hint})" if place.hint else ""
        lines.append(f"# {place.what}{hint}\n# in: {', '.join(names)}\n{key} = {_quote(answers.get(key, ''))}\n")
    for key in answers.keys() - asked.keys():
        lines.append(f"# no document of this dossier asks this\n{key} = {_quote(answers[key])}\n")
    return "\n".join(lines).encode()


def _quote(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

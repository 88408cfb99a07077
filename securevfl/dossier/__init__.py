"""The officer's file: documents about a run or an agreement, each sentence with its source.

- `gather_evidence`: find the files and verify the ledgers. `DossierEvidence`: what they carry.
- `write_dossier`: write the documents. Impact assessment, record of processing, AI Act Annex IV, model document, model
  card, software bill of materials; HTML, and DOCX with the extra ``dossier``.
- `sentences`: what documents are made of; a sentence without a source is refused.
"""

from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.gathering import gather_evidence
from securevfl.dossier.sentences import Document, Fact, FillIn, Section, Sentence, Source
from securevfl.dossier.writing import Dossier, write_documents, write_dossier

__all__ = [
    "Document",
    "Dossier",
    "DossierEvidence",
    "Fact",
    "FillIn",
    "Section",
    "Sentence",
    "Source",
    "gather_evidence",
    "write_documents",
    "write_dossier",
]

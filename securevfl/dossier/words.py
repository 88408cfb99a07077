"""Words of a dossier: what its technical terms mean, and which characters of foreign texts are not shown as they are.

A glossary states nothing of the job, so that it needs no source: it is in each document, for those of the words that
the document uses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace

from securevfl.dossier.sentences import Document, FillIn, Item, Row, Sentence, Source, Table

__all__ = ["WORDS", "explain_words", "make_printable"]

WORDS: Mapping[str, str] = {
    "secret shares": "random-looking parts of a number; what one party holds of them tells nothing",
    "masked": "hidden by adding a random number that the receiver does not have",
    "blinded": "an identifier turned into a point on a curve by a secret; only who has the secret can test a guess",
    "opened": "put together from its shares, so that a party reads it",
    "PSI": "private set intersection: a way to find the rows that all parties have, made to show none of the others",
    "label book": "a list of identifiers with labels, of which the label owner proves that it did not change it",
    "intersection": "the rows that all parties have",
    "logits": "scores of the model before they are turned into probabilities",
    "epoch": "one pass over the training rows",
    "rounds a step": "times in one training step that the parties wait for each other's messages",
    "active party": "the party with the labels; the others are passive and have columns alone",
    "receiver can compute": "in the worst case, from the content of the message. “Settings of the run” is the group of "
    "messages about the run itself; the column before it says which",
    "none needed": "not hidden from the receiver, because the message is about the run and not about columns or labels",
    "ledger": "a file in which a party's process signs a line for each message: size, kind and digest, not its content",
    "head": "the digest of the last line of a ledger: it fixes all lines before it",
    "digest": "a fingerprint of a file, SHA-256: another file has another one",
    "card": "the table “who could read”: for each reader the worst that it could learn, from what messages declare",
    "attack": "a program that tries to compute another party's columns or labels from what a party receives",
    "numbers of a row": "values that depend on one row and that another party gets in the clear, such as its score",
    "R²": "1 if numbers are predicted exactly, 0 if no better than their mean",
    "AUC": "how often a row of the class gets a higher score than one outside it: 1 always, 0.5 by chance",
    "gini": "2 × AUC − 1: 1 is perfect, 0 is chance",
    "KS": "the largest distance between the score distributions of the two classes: 1 is perfect, 0 is chance",
    "|Spearman|": "agreement of two orders: 1 the same order, 0 none",
    "log-loss": "mean surprise at the true class, in natural logarithms: 0 is perfect, smaller is better",
    "brier": "mean squared difference between probability and outcome: 0 is perfect, smaller is better",
    "calibration error": "mean difference between predicted probability and observed share, from 0 (none) to 1",
    "balanced accuracy": "mean of the recalls of all classes",
    "macro": "mean over classes, each class counted once",
    "precision": "share of the rows given this class that have it",
    "recall": "share of the rows of this class that were given it",
    "ε": "bound of differential privacy: a result is at most e^ε times likelier with a person's row than without it, "
    "but for a chance of δ",
    "learning with errors": "a mathematical problem on which encryption and oblivious transfer rest here; no efficient "
    "way to solve it is known",
    "Curve25519": "a standard curve of key exchange. A large quantum computer would break it, and with it recorded "
    "messages",
    "collude": "pool what they received",
    "follow the protocol": "run the unchanged program; a party that does not may learn more",
}
"""Term → meaning, in the order in which a document lists them."""

_HIDDEN = {"Cc", "Cs", "Co", "Cn"}
_TURNS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks of writing direction: a purpose with one may read otherwise than it was signed."""


def explain_words(document: Document) -> list[tuple[str, str]]:
    """Those of the words that the document uses, each with its meaning."""
    found: list[str] = []
    for item in document.items:
        if isinstance(item, Table):
            found += [*item.heads, *(cell for row in item.rows for cell in row.cells)]
        else:
            found.append(item.text if isinstance(item, Sentence) else f"{item.what} {item.hint}")
    text = "\n".join(found)
    return [(word, meaning) for word, meaning in WORDS.items() if re.search(rf"(?<!\w){re.escape(word)}", text)]


def make_printable(document: Document) -> Document:
    """The document with a replacement character for each control character and mark of direction.

    A table's column, a party's purpose or a person's answer may have them: DOCX cannot, and a page would show other
    words than were signed.
    """
    sections = tuple(replace(one, items=tuple(map(_clean_item, one.items))) for one in document.sections)
    return replace(document, sections=sections)


def _clean_item(item: Item) -> Item:
    if isinstance(item, FillIn):
        return replace(item, what=_clean(item.what), hint=_clean(item.hint))
    if isinstance(item, Sentence):
        return Sentence(_clean(item.text), _clean_sources(item.sources))
    rows = tuple(Row(tuple(map(_clean, row.cells)), _clean_sources(row.sources)) for row in item.rows)
    return Table(tuple(map(_clean, item.heads)), rows)


def _clean_sources(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    return tuple(Source(one.kind, _clean(one.place)) for one in sources)


def _clean(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown = "".join("\ufffd" if unicodedata.category(c) in _HIDDEN and c not in "\n\t" else c for c in text)
    return _TURNS.sub("\ufffd", shown)

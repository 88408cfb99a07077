"""The linker's part of a linkage: it receives encodings, compares them, and draws the identifiers of rows."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from securevfl.align.linkage import Linkage
from securevfl.errors import AlignmentError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.transport import Kind, Message, Scalar

if TYPE_CHECKING:
    from securevfl_psi.linkage import Encodings, Linked

__all__ = [
    "BLOCKS",
    "FIGURES",
    "ID",
    "IDS",
    "RECORDS",
    "WEIGHTS",
    "WITNESSED",
    "LinkageInput",
    "LinkedIdentifiers",
    "compare_encodings",
    "read_byte_array",
    "receive_encodings",
    "send_encodings",
]

RECORDS, BLOCKS, IDS, WEIGHTS = "link/records", "link/blocks", "link/ids", "link/weights"
ID = 16
"""Bytes of a row's identifier."""
FIGURES = ("pairs", "threshold", "precision", "recall", "recall_low", "recall_high", "compared")
"""Figures of a linkage that each party receives."""
WITNESSED = ("common",)
"""And where there are witnesses: the estimated number of people in both tables."""
_PART = 8192
"""Records of a message."""
_TAG = 16


@dataclass(frozen=True)
class LinkageInput:
    """One party's encodings, and its tokens of blocks and witnesses, as the linker received them."""

    encodings: Encodings = field(repr=False)
    blocks: np.ndarray | None = field(repr=False)
    witnesses: np.ndarray | None = field(default=None, repr=False)


async def compare_encodings(site: PartyContext, how: Linkage) -> list[Mapping[str, Scalar]]:
    """The coordinator's part: compare for the others; returns `FIGURES` of each pair of parties."""
    mine = {passive: await receive_encodings(site, site.links[site.active], how) for passive in site.passive}
    theirs = {passive: await receive_encodings(site, site.links[passive], how) for passive in site.passive}
    if len({len(sent.encodings) for sent in mine.values()}) > 1:
        raise ProtocolError(f"{site.active!r} sent another number of records for one passive party than for another")
    made = await LinkedIdentifiers.compare_records(site, how, mine, theirs)
    figures = {f"{name} {passive}": value for passive in site.passive for name, value in made.meta[passive].items()}
    await site.links[site.active].send(Kind.INTERSECTION, IDS, meta=figures, ids=made.ids)
    if how.weights:
        await site.links[site.active].send(Kind.STATISTIC, WEIGHTS, weights=made.weights)
    for passive in site.passive:
        await made.send_to(site.links[passive])
    return [made.meta[passive] for passive in site.passive]


@dataclass(frozen=True)
class LinkedIdentifiers:
    """The linker's matches, and the identifiers that it drew.

    Attributes:
        ids: of the active party's encoded rows, (n, 16) uint8.
        weights: of them, the probability that all their links are true, 1 for a row that is not linked, (n,) float64.
        theirs: passive party → identifiers of its encoded rows.
        meta: passive party → `FIGURES`.
    """

    ids: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    theirs: Mapping[str, np.ndarray] = field(repr=False)
    meta: Mapping[str, Mapping[str, Scalar]]

    @classmethod
    async def compare_records(
        cls, site: PartyContext, how: Linkage, mine: Mapping[str, LinkageInput], theirs: Mapping[str, LinkageInput]
    ) -> LinkedIdentifiers:
        """Compare the active party's records with each passive party's.

        Args:
            site: the linker's place.
            how: as all parties agreed.
            mine: passive party → the active party's records, encoded under the key of the two.
            theirs: passive party → its own.

        Raises:
            AlignmentError: encodings of other keys or fields, or scores that show no threshold.
        """
        size = len(next(iter(mine.values())).encodings)
        ids, weights, others = _random_order(size), np.ones(size), {}
        meta: dict[str, dict[str, Scalar]] = {}
        for passive in site.passive:
            found = await asyncio.to_thread(_link_pair, how, mine[passive], theirs[passive], (site.active, passive))
            others[passive] = _random_order(found.sizes[1])
            others[passive][found.rows_b] = ids[found.rows_a]
            weights[found.rows_a] *= np.clip(found.probabilities, 0, 1)
            recall = (found.recall, *found.recall_between)
            figures = (len(found), found.threshold, found.precision, *recall, found.compared)
            meta[passive] = dict(zip(FIGURES, figures, strict=True))
            if found.common is not None:
                meta[passive] |= dict(zip(WITNESSED, (found.common,), strict=True))
        return cls(ids, weights, others, meta)

    async def send_to(self, link: Link) -> None:
        """A passive party its identifiers."""
        await link.send(Kind.INTERSECTION, IDS, meta=self.meta[link.peer], ids=self.theirs[link.peer])


def _random_order(rows: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(ID * rows), dtype=np.uint8).reshape(rows, ID).copy()


def _link_pair(how: Linkage, a: LinkageInput, b: LinkageInput, names: tuple[str, str]) -> Linked:
    from securevfl_psi import LinkageError
    from securevfl_psi.linkage import link_records

    blocks = None if a.blocks is None or b.blocks is None else (a.blocks, b.blocks)
    seen = None if a.witnesses is None or b.witnesses is None else (a.witnesses, b.witnesses)
    threshold, precision = how.threshold, how.precision
    try:
        return link_records(
            a.encodings, b.encodings, blocks=blocks, witnesses=seen, threshold=threshold, precision=precision
        )
    except LinkageError as error:
        raise AlignmentError(f"the records of {names[0]!r} and {names[1]!r} cannot be linked: {error}") from None


async def receive_encodings(site: PartyContext, link: Link, how: Linkage) -> LinkageInput:
    """A party's encodings. Room is taken as they come, never for what is announced."""
    from securevfl_psi.linkage import Encodings

    parts: list[np.ndarray] = []
    blocks: list[np.ndarray] = []
    columns = len(how.blocks) + len(how.witnesses)
    done, rows, tag = 0, 1, b""
    while done < rows:
        message = await link.receive(Kind.ENCODED_SET, RECORDS, "words", "tag")
        told = message.meta.get("rows")
        if isinstance(told, bool) or not isinstance(told, int) or told < 1 or (done and told != rows):
            raise ProtocolError(f"{link.peer!r} announced {told!r:.20} records; one number of at least 1 was expected")
        rows = told
        if rows > site.policy.max_set_size:
            raise ProtocolError(
                f"{link.peer!r} announces {rows} records; the policy of {site.name!r} accepts "
                f"{site.policy.max_set_size}: raise max_set_size"
            )
        expected = min(_PART, rows - done)
        parts.append(read_byte_array(message, "words", (expected, how.bits // 8), link.peer))
        tag = read_byte_array(message, "tag", (_TAG,), link.peer).tobytes()
        if columns:
            more = await link.receive(Kind.ENCODED_SET, BLOCKS, "tokens")
            blocks.append(read_byte_array(more, "tokens", (expected, 8 * columns), link.peer))
        done += expected
    words = np.ascontiguousarray(np.concatenate(parts)).view("<u8").astype(np.uint64)
    tokens = np.ascontiguousarray(np.concatenate(blocks)).view("<u8").astype(np.uint64) if blocks else None
    return make_input(Encodings(words=words, tag=tag), tokens, how)


def make_input(encodings: Encodings, tokens: np.ndarray | None, how: Linkage) -> LinkageInput:
    """Content that a party sends: `tokens` are those of blocks, then those of witnesses, (n, columns)."""
    if tokens is None:
        return LinkageInput(encodings, None)
    cut = len(how.blocks)
    return LinkageInput(encodings, tokens[:, :cut] if cut else None, tokens[:, cut:] if how.witnesses else None)


async def send_encodings(link: Link, sent: LinkageInput) -> None:
    """Encodings, and tokens, some rows at a time."""
    columns = [tokens for tokens in (sent.blocks, sent.witnesses) if tokens is not None]
    words, tag = sent.encodings.words, np.frombuffer(sent.encodings.tag, dtype=np.uint8)
    rows = words.astype("<u8").view(np.uint8)
    for start in range(0, max(len(rows), 1), _PART):
        part = np.ascontiguousarray(rows[start : start + _PART])
        await link.send(Kind.ENCODED_SET, RECORDS, meta={"rows": len(rows)}, words=part, tag=tag)
        if columns:
            tokens = np.ascontiguousarray(np.hstack(columns)[start : start + _PART].astype("<u8"))
            await link.send(Kind.ENCODED_SET, BLOCKS, tokens=tokens.view(np.uint8))


def read_byte_array(message: Message, name: str, shape: tuple[int, ...], peer: str) -> np.ndarray:
    """A message's array of bytes, checked for its shape.

    Raises:
        ProtocolError: another type or shape.
    """
    array = np.asarray(message.arrays[name])
    if array.dtype != np.uint8 or array.shape != shape:
        raise ProtocolError(
            f"{peer!r} sent {message.what!r} with {name!r} as {array.dtype} {array.shape}; uint8 {shape} was expected"
        )
    return array

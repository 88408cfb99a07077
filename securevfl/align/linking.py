"""Linkage as the first step of an alignment: each party's records become keyed encodings, the linker compares them, and
each party receives a random identifier for each of its rows, equal for linked ones. Then the parties align as with a
common identifier, so the usual verification of common rows applies.

The active party and each passive one agree on a key over their own link, which a linker without data does not see.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.align.comparing import (
    BLOCKS,
    FIGURES,
    ID,
    IDS,
    RECORDS,
    WEIGHTS,
    WITNESSED,
    LinkageInput,
    LinkedIdentifiers,
    compare_encodings,
    read_byte_array,
    receive_encodings,
    send_encodings,
)
from securevfl.align.linkage import Linkage
from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, fan_out
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, Scalar
from securevfl.transport.exchange import PartyRole

__all__ = ["LinkedRows", "check_fields", "link_exchanges", "link_rows"]

_KEY = "link/key"


def link_exchanges(how: Linkage) -> tuple[Exchange, ...]:
    """Messages of a linkage."""
    both: tuple[tuple[PartyRole, PartyRole], ...] = ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE))
    outside = how.linker == "coordinator"
    to: PartyRole = COORDINATOR if outside else ACTIVE
    senders: tuple[PartyRole, ...] = (ACTIVE, PASSIVE) if outside else (PASSIVE,)
    found = [Exchange(_KEY, Kind.PUBLIC_KEY, a, b, "public key, for the key of encodings") for a, b in both]
    for sender in senders:
        found.append(Exchange(RECORDS, Kind.ENCODED_SET, sender, to, "records, encoded", "encodings", "leak"))
        if how.blocks or how.witnesses:
            what = " and ".join(n for n, of in (("blocks", how.blocks), ("witnesses", how.witnesses)) if of)
            found.append(Exchange(BLOCKS, Kind.ENCODED_SET, sender, to, f"{what} of records", "encodings", "leak"))
        words = "random identifiers of rows; how many are linked, and how well by estimate"
        found.append(Exchange(IDS, Kind.INTERSECTION, to, sender, words))
    if how.weights and outside:
        words = "how likely each row's link is true"
        found.append(Exchange(WEIGHTS, Kind.STATISTIC, COORDINATOR, ACTIVE, words, words, "note"))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class LinkedRows:
    """One party's result of a linkage.

    Attributes:
        ids: an identifier for each row of its table.
        words: what was linked, and how well by the linker's estimate; one sentence.
        weights: at the active party, where rows count by it: the probability that a row's links are true, 1 for a row
            without one, (rows,) float64.
    """

    ids: tuple[str, ...] = field(repr=False)
    words: str
    weights: np.ndarray | None = field(default=None, repr=False)


def check_fields(how: Linkage, fields: Mapping[str, Sequence[object]], name: str) -> None:
    """Refuse a table that lacks what linkage compares.

    Raises:
        InputError: fields are missing; says what to write.
    """
    missing = sorted(set(how.fields) - set(fields))
    if missing:
        raise InputError(
            f"the table of {name!r} has no linkage field {', '.join(map(repr, missing))}, which the job compares: name "
            f'its columns, link = {{{missing[0]} = "COLUMN"}} beside file and id, or PartyTable(link={{…}})'
        )


class _Own:
    """A data party's records, ready to encode."""

    def __init__(self, site: PartyContext, fields: Mapping[str, Sequence[object]], rows: int, how: Linkage) -> None:
        from securevfl_psi import LinkageError
        from securevfl_psi.arrays import secret_order
        from securevfl_psi.linkage import find_duplicates

        check_fields(how, fields, site.name)
        self.site, self.how, self.size, self.schema = site, how, rows, how.psi_schema()
        self.table = {name: fields[name] for name in sorted(how.fields)}
        self.rows = np.arange(rows)
        try:
            if how.deduplicate:
                self.rows = find_duplicates(self.table, self.schema).rows
        except LinkageError as error:
            raise InputError(f"the table of {site.name!r}: {error}") from None
        self.rows = self.rows[secret_order(len(self.rows))]  # the linker need not see how the table is sorted
        self.table = {name: [values[row] for row in self.rows.tolist()] for name, values in self.table.items()}

    async def encode_for(self, key: bytes, passive: str) -> LinkageInput:
        """Encode for the comparison of the active party with a passive one."""
        return await asyncio.to_thread(self._encode_under, key, f"{self.site.job} {passive}")

    def _encode_under(self, key: bytes, context: str) -> LinkageInput:
        from securevfl_psi import LinkageError
        from securevfl_psi.linkage import blocking_tokens, encode_records, witness_tokens

        try:
            rules, sets = self.how.block_rules(), self.how.witness_rules()
            blocks = blocking_tokens(self.table, self.schema, rules, key, context=context) if rules else None
            seen = witness_tokens(self.table, self.schema, sets, key, context=context) if sets else None
            return LinkageInput(encode_records(self.table, self.schema, key, context=context), blocks, seen)
        except LinkageError as error:
            raise InputError(f"the table of {self.site.name!r}: {error}") from None

    def expand_weights(self, weights: np.ndarray | None) -> np.ndarray | None:
        """Weights of all rows, 1 for duplicates that were left out."""
        if weights is None:
            return None
        whole = np.ones(self.size)
        whole[self.rows] = weights
        return whole

    def expand_ids(self, ids: np.ndarray) -> tuple[str, ...]:
        """Identifiers of all rows: those that came for the encoded ones, random ones for duplicates."""
        whole = np.frombuffer(secrets.token_bytes(ID * self.size), dtype=np.uint8).reshape(-1, ID).copy()
        whole[self.rows] = ids
        text = whole.tobytes().hex()
        return tuple(text[2 * ID * row : 2 * ID * (row + 1)] for row in range(self.size))


async def link_rows(
    site: PartyContext, fields: Mapping[str, Sequence[object]] | None, rows: int, how: Linkage
) -> LinkedRows:
    """This party's part in the linkage of a federation.

    Args:
        site: its place, linked with the coordinator too, where that compares.
        fields: linkage field → values of its rows; None at the coordinator.
        rows: how many there are.
        how: as all parties agreed.

    Raises:
        InputError: fields that are missing or cannot be read.
        AlignmentError: at the linker: parties with other keys or fields, or scores that show no threshold.
        ProtocolError: a peer sent what a linkage does not allow, or more records than the policy accepts.
    """
    if fields is None:
        return LinkedRows(ids=(), words=_describe_linkage(site, how, await compare_encodings(site, how)))
    own = _Own(site, fields, rows, how)
    keys = await _agree_keys(site, own.schema.tag())
    if site.role == PASSIVE:
        return await _linked_passive(own, keys[site.active])
    if how.needs_coordinator():
        return await _linked_outside(own, keys)
    return await _linked_here(own, keys)


async def _agree_keys(site: PartyContext, tag: str) -> dict[str, bytes]:
    """Peer → the key that encodings are made under: of the active party with each passive one."""
    from securevfl_psi import Circle, MalformedError, PairwiseKeys

    peers = site.passive if site.role == ACTIVE else (site.active,)
    nonce = hashlib.sha256(b"securevfl linkage v1" + site.job.encode()).digest()[:16]
    made = {}
    for peer in peers:
        passive = peer if site.role == ACTIVE else site.name
        circle = Circle(names=(site.active, passive), nonce=nonce, rules_tag=tag)
        made[peer] = PairwiseKeys(circle, site.name)

    async def send_key(link: Link) -> None:
        await link.send(Kind.PUBLIC_KEY, _KEY, key=np.frombuffer(made[link.peer].public_key, dtype=np.uint8))

    await fan_out([site.links[peer] for peer in peers], send_key)
    found = {}
    for peer in peers:
        message = await site.links[peer].receive(Kind.PUBLIC_KEY, _KEY, "key")
        try:
            found[peer] = made[peer].derive_seeds({peer: read_byte_array(message, "key", (32,), peer).tobytes()})[peer]
        except MalformedError as error:
            raise ProtocolError(str(error)) from None
    return found


async def _linked_passive(own: _Own, key: bytes) -> LinkedRows:
    site = own.site
    link = site.links[site.coordinator if own.how.needs_coordinator() else site.active]
    await send_encodings(link, await own.encode_for(key, site.name))
    ids, meta = await _receive_ids(link, len(own.rows))
    return LinkedRows(ids=own.expand_ids(ids), words=_describe_linkage(site, own.how, [meta]))


async def _linked_outside(own: _Own, keys: Mapping[str, bytes]) -> LinkedRows:
    """The active party's part if a coordinator compares."""
    site = own.site
    link = site.links[site.coordinator]
    for passive in site.passive:
        await send_encodings(link, await own.encode_for(keys[passive], passive))
    ids, meta = await _receive_ids(link, len(own.rows))
    names = FIGURES + (WITNESSED if own.how.witnesses else ())
    metas = [{name: meta.get(f"{name} {passive}", -1) for name in names} for passive in site.passive]
    weights = None
    if own.how.weights:
        message = await link.receive(Kind.STATISTIC, WEIGHTS, "weights")
        weights = np.asarray(message.arrays["weights"])
        wrong = weights.dtype != np.float64 or weights.shape != (len(own.rows),)
        if wrong or not ((weights >= 0) & (weights <= 1)).all():
            raise ProtocolError(
                f"{link.peer!r} sent weights as {weights.dtype} {weights.shape}, or some outside of 0 to 1; float64 "
                f"({len(own.rows)},) was expected"
            )
    return LinkedRows(
        ids=own.expand_ids(ids), words=_describe_linkage(site, own.how, metas), weights=own.expand_weights(weights)
    )


async def _linked_here(own: _Own, keys: Mapping[str, bytes]) -> LinkedRows:
    """The active party's part if it compares itself."""
    site, mine, theirs = own.site, {}, {}
    for passive in site.passive:
        mine[passive] = await own.encode_for(keys[passive], passive)
        theirs[passive] = await receive_encodings(site, site.links[passive], own.how)
    made = await LinkedIdentifiers.compare_records(site, own.how, mine, theirs)
    for passive in site.passive:
        await made.send_to(site.links[passive])
    metas = [made.meta[passive] for passive in site.passive]
    weights = made.weights if own.how.weights else None
    return LinkedRows(
        ids=own.expand_ids(made.ids), words=_describe_linkage(site, own.how, metas), weights=own.expand_weights(weights)
    )


def _describe_linkage(site: PartyContext, how: Linkage, metas: Sequence[Mapping[str, Scalar]]) -> str:
    """Describe the linkage."""
    parts = []
    for meta in metas:
        pairs, threshold, precision, recall, low, high = (_read_number(meta, name) for name in FIGURES[:6])
        known = f"recall between {low:.2f} and {high:.2f}, by estimate"
        if how.witnesses:
            common = _read_number(meta, WITNESSED[0])
            known = (
                f"recall about {recall:.3f} ({low:.3f} to {high:.3f}) of some {common:.0f} people in both, by witnesses"
            )
        parts.append(
            f"{pairs:.0f} pairs at similarity {threshold:.3f} or more, precision about {precision:.3f}, {known}"
        )
    by = (
        f"{site.coordinator!r}, a party without data"
        if how.needs_coordinator()
        else f"{site.active!r}, the active party"
    )
    fields = ", ".join(sorted(how.fields))
    return f"linkage by {fields}, compared by {by}: {'; '.join(parts)}"


def _read_number(meta: Mapping[str, Scalar], name: str) -> float:
    value = meta.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 62:
        raise ProtocolError(f"the linker sent {name} as {value!r:.40}; a number was expected")
    return float(value)


async def _receive_ids(link: Link, rows: int) -> tuple[np.ndarray, Mapping[str, Scalar]]:
    message = await link.receive(Kind.INTERSECTION, IDS, "ids")
    return read_byte_array(message, "ids", (rows, ID), link.peer), message.meta

"""A two-party DH-PSI of the active party with each passive one, composed by the active party.

It learns each pairwise intersection; a passive party learns the common rows of all parties and, where the active party
has a label book, those of its rows that the two of them know. Nothing more than any protocol says where there is one
passive party.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import securevfl_psi as psi
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES

from securevfl.align.agreement import (
    RULES,
    Alignment,
    announced,
    order,
    receive_rows,
    send_rows,
    verify,
)
from securevfl.errors import AlignmentError, ProtocolError
from securevfl.site import Site
from securevfl.transport import Kind, Message, Scalar

__all__ = ["PROTOCOL", "active", "passive"]

PROTOCOL = "DH-PSI, two parties at a time (X25519, RFC 9380 hash to curve), composed by the active party"
_HOW = "pairwise"


def _session(site: Site, name: str, nonce: bytes) -> psi.Session:
    return psi.Session(names=(site.active, name), nonce=nonce, rules_tag=RULES.tag())


async def active(site: Site, ids: Sequence[str], own: int, held_out: set[int], max_set_size: int) -> Alignment:
    """The active party's part; `ids` are those of the table's `own` rows and, after them, of the label book.

    Raises:
        AlignmentError, PolicyError, ProtocolError: as `align`.
    """
    matches: dict[str, psi.Matches] = {}
    nonce = secrets.token_bytes(16)
    hello: dict[str, Scalar] = {
        "job": site.job,
        "rules": RULES.tag(),
        "protocol": _HOW,
        "rows": len(ids),
        "nonce": nonce.hex(),
    }
    for name in site.passive:
        await site.links[name].send(Kind.CONTROL, "psi/hello", meta=hello)
    for name in site.passive:
        link = site.links[name]
        count = announced(await link.receive(Kind.CONTROL, "psi/hello"), site, max_set_size, _HOW)
        receiver = psi.Receiver(ids, _session(site, name, nonce), max_set_size=max_set_size)
        await receive_rows(link, "psi/blinded", "points", count, POINT_BYTES, lambda part, to=receiver: to.take(part))  # type: ignore[misc]
        await send_rows(link, "psi/blinded", "points", receiver.chunks())
        await receive_rows(link, "psi/doubled", "tokens", len(ids), TOKEN_BYTES, receiver.take_tokens)
        matches[name] = receiver.finish(count)
    common = set(range(own)).intersection(*(set(m.receiver_rows.tolist()) for m in matches.values()))
    pairwise = {name: len(m.receiver_rows) for name, m in matches.items()}
    if not common:
        sizes = ", ".join(f"{count} with {name}" for name, count in pairwise.items())
        raise AlignmentError(
            f"no row is held by all parties ({len(ids)} rows at {site.name!r}; in common: {sizes}): "
            "do all use the same identifiers, written the same way?"
        )
    site.policy.check_intersection(len(common))
    rows = order(ids, sorted(common), site.seed)
    key = secrets.token_bytes(32)
    labelled = {}
    for name in site.passive:
        place = dict(zip(matches[name].receiver_rows.tolist(), matches[name].sender_positions.tolist(), strict=True))
        if len(ids) > own:
            labelled[name] = order(ids, sorted(set(place) - common - held_out), site.seed)
        both = np.concatenate([rows, labelled[name]]) if labelled else rows
        positions = np.array([place[row] for row in both.tolist()], dtype=np.int64)
        shared = np.frombuffer(key, dtype=np.uint8)
        meta = {"common": len(rows)}
        await site.links[name].send(Kind.INTERSECTION, "psi/common", meta=meta, positions=positions, key=shared)
    return await verify(site, ids, rows, key, pairwise, labelled)


async def passive(site: Site, hello: Message, ids: Sequence[str], max_set_size: int) -> Alignment:
    """A passive party's part, after the active party's hello.

    Raises:
        AlignmentError, PolicyError, ProtocolError: as `align`.
    """
    link = site.links[site.active]
    count = announced(hello, site, max_set_size, _HOW)
    session = _session(site, site.name, nonce_of(hello, link.peer))
    meta: dict[str, Scalar] = {"job": site.job, "rules": RULES.tag(), "protocol": _HOW, "rows": len(ids)}
    await link.send(Kind.CONTROL, "psi/hello", meta=meta)
    sender = psi.Sender(ids, session, max_set_size=max_set_size)
    await send_rows(link, "psi/blinded", "points", sender.chunks())

    async def answer(part: np.ndarray) -> None:
        await send_rows(link, "psi/doubled", "tokens", [sender.double_chunk(part)])

    await receive_rows(link, "psi/blinded", "points", count, POINT_BYTES, answer)
    message = await link.receive(Kind.INTERSECTION, "psi/common", "positions", "key")
    positions, common = np.asarray(message.arrays["positions"]), message.meta.get("common")
    both = sender.rows(positions)
    key = key_of(message, link.peer)
    if isinstance(common, bool) or not isinstance(common, int) or not 0 <= common <= len(positions):
        raise ProtocolError(f"{link.peer!r} says that {common!r} of the {len(positions)} rows that it names are common")
    rows, labelled = both[:common], both[common:]
    site.policy.check_intersection(len(rows))
    known = {site.name: labelled} if len(labelled) else {}
    return await verify(site, ids, rows, key, {}, known)


def nonce_of(hello: Message, peer: str) -> bytes:
    """The session's nonce.

    Raises:
        ProtocolError: shorter than 16 bytes, or not hexadecimal.
    """
    try:
        nonce = bytes.fromhex(str(hello.meta.get("nonce")))
    except ValueError:
        nonce = b""
    if len(nonce) < 16:
        raise ProtocolError(f"{peer!r} sent a session nonce of {len(nonce)} bytes; at least 16 are needed")
    return nonce


def key_of(message: Message, peer: str) -> bytes:
    """The key of the digests.

    Raises:
        ProtocolError: not 32 bytes.
    """
    key = np.asarray(message.arrays["key"])
    if key.dtype != np.uint8 or key.shape != (32,):
        raise ProtocolError(f"{peer!r} sent a digest key of {key.size} bytes; 32 are needed")
    return key.tobytes()

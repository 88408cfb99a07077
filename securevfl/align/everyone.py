"""The intersection of all parties' sets, without any pairwise one: `securevfl_psi.multiparty`, the active party leads.

The active party learns the common rows and the sizes of all sets; a passive party learns the common rows and the active
party's size. The pairwise seeds are agreed on directly between each two parties, never through the active one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import securevfl_psi as psi
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.multiparty import RESULT_BYTES, SHARE_BYTES

from securevfl.align.agreement import RULES, Alignment, announced, order, receive_rows, send_rows, verify
from securevfl.align.pairwise import key_of, nonce_of
from securevfl.errors import AlignmentError, ProtocolError
from securevfl.site import Site
from securevfl.transport import Guard, Kind, Message, Scalar

__all__ = ["PROTOCOL", "active", "passive"]

PROTOCOL = (
    "multi-party PSI (X25519, RFC 9380 hash to curve; zero shares in an oblivious key-value store): the global "
    "intersection only"
)
_HOW = "global"
_TABLE = Guard("blinded", 128, "oblivious key-value store")


def _circle(site: Site, nonce: bytes) -> psi.Circle:
    return psi.Circle(names=(site.active, *site.passive), nonce=nonce, rules_tag=RULES.tag())


async def _seeds(site: Site, circle: psi.Circle) -> dict[str, bytes]:
    """A seed with each other party, agreed on over the link between the two."""
    keys = psi.PairwiseKeys(circle, site.name)
    for link in site.others:
        await link.send(Kind.PUBLIC_KEY, "psi/seed", key=np.frombuffer(keys.public_key, dtype=np.uint8))
    public = {}
    for link in site.others:
        public[link.peer] = key_of(await link.receive(Kind.PUBLIC_KEY, "psi/seed", "key"), link.peer)
    return keys.seeds(public)


async def active(site: Site, ids: Sequence[str], max_set_size: int) -> Alignment:
    """The active party's part.

    Raises:
        AlignmentError, PolicyError, ProtocolError: as `align`.
    """
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
    counts = {
        name: announced(await site.links[name].receive(Kind.CONTROL, "psi/hello"), site, max_set_size, _HOW)
        for name in site.passive
    }
    circle = _circle(site, nonce)
    leader = psi.multiparty.Leader(ids, circle, await _seeds(site, circle), max_set_size=max_set_size)
    for part in leader.blinded():
        for name in site.passive:
            await send_rows(site.links[name], "psi/blinded", "points", [part])
    for name in site.passive:
        link = site.links[name]
        evaluated: list[np.ndarray] = []
        slots: list[np.ndarray] = []
        await receive_rows(link, "psi/doubled", "points", len(ids), POINT_BYTES, evaluated.append)
        seed = np.asarray((await link.receive(Kind.BLINDED_SET, "psi/table", "seed")).arrays["seed"])
        await receive_rows(link, "psi/slots", "slots", psi.slots_for(counts[name]), SHARE_BYTES, slots.append)
        leader.receive(name, evaluated, seed.tobytes(), slots, counts[name])
    found = leader.intersect()
    if not len(found):
        raise AlignmentError(
            f"no row is held by all parties ({len(ids)} rows at {site.name!r}; "
            f"{', '.join(f'{count} at {name}' for name, count in counts.items())}): "
            "do all use the same identifiers, written the same way?"
        )
    site.policy.check_intersection(len(found))
    key = secrets.token_bytes(32)
    for name in site.passive:
        link = site.links[name]
        shared = np.frombuffer(key, dtype=np.uint8)
        await link.send(Kind.INTERSECTION, "psi/common", meta={"common": len(found)}, key=shared)
        for part in leader.announce(name):
            await link.send(Kind.INTERSECTION, "psi/rows", tokens=part)
    return await verify(site, ids, order(ids, sorted(found.tolist()), site.seed), key, {}, {})


async def passive(site: Site, hello: Message, ids: Sequence[str], max_set_size: int) -> Alignment:
    """A passive party's part, after the active party's hello.

    Raises:
        AlignmentError, PolicyError, ProtocolError: as `align`.
    """
    link = site.links[site.active]
    count = announced(hello, site, max_set_size, _HOW)
    circle = _circle(site, nonce_of(hello, link.peer))
    meta: dict[str, Scalar] = {"job": site.job, "rules": RULES.tag(), "protocol": _HOW, "rows": len(ids)}
    await link.send(Kind.CONTROL, "psi/hello", meta=meta)
    party = psi.multiparty.Party(ids, site.name, circle, await _seeds(site, circle), max_set_size=max_set_size)
    blinded: list[np.ndarray] = []
    await receive_rows(link, "psi/blinded", "points", count, POINT_BYTES, blinded.append)
    await send_rows(link, "psi/doubled", "points", party.evaluate(blinded, count))
    table = party.table()
    seed = np.frombuffer(table.seed, dtype=np.uint8)
    await link.send(Kind.BLINDED_SET, "psi/table", guard=_TABLE, seed=seed)
    await send_rows(link, "psi/slots", "slots", psi.split(table.slots), _TABLE)
    message = await link.receive(Kind.INTERSECTION, "psi/common", "key")
    key, common = key_of(message, link.peer), message.meta.get("common")
    if isinstance(common, bool) or not isinstance(common, int) or not 0 <= common <= len(ids):
        raise ProtocolError(f"{link.peer!r} says that {common!r} rows are common; this party has {len(ids)}")
    tokens: list[np.ndarray] = []
    await receive_rows(link, "psi/rows", "tokens", common, RESULT_BYTES, tokens.append, Kind.INTERSECTION)
    found = party.rows(tokens, common)
    site.policy.check_intersection(len(found))
    return await verify(site, ids, order(ids, sorted(found.tolist()), site.seed), key, {}, {})

"""Alignment: the parties find their common rows, agree on an order, and verify that they agree.

The active party runs a two-party DH-PSI with each passive party and composes the results: a row is common if
every passive party holds it. So the active party learns each pairwise intersection; a passive party learns the
common rows of all parties and nothing else. Then every party sends every other a keyed digest of its own
identifiers in the agreed order; only an alignment that all found equal can be trained on.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import securevfl_psi as psi

from securevfl.errors import AlignmentError, InputError, ProtocolError
from securevfl.party import Site
from securevfl.transport import Array, Guard, Kind, Message, Scalar

__all__ = ["PROTOCOL", "Alignment", "align", "join"]

PROTOCOL = "DH-PSI, two parties at a time (X25519, RFC 9380 hash to curve), composed by the active party"
_BLINDED = Guard("blinded", 128, "Curve25519")


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """What one party knows after alignment.

    Attributes:
        rows: the party's own row numbers of the common rows, in the order that all agreed on, (n,) int64.
        digest: the keyed digest of the identifiers in that order, which all parties found equal, hexadecimal.
        verified_by: names of the peers whose digest was compared and found equal: all of them.
        pairwise: passive party → size of its intersection with the active party; empty at a passive party.
        labelled: rows that one passive party and the active party know of, and not all parties: passive party → the
            active party's numbers of them (its table's rows first, its label book's after; none that it keeps for
            validation or test), in an order that both share and verified; at a passive party its own row numbers, under
            its own name. Empty unless the active party has a label book.
    """

    rows: np.ndarray
    digest: str
    verified_by: tuple[str, ...]
    pairwise: dict[str, int]
    labelled: Mapping[str, np.ndarray] = field(default_factory=dict)

    def require_verified(self, site: Site) -> None:
        """Refuse rows that were not verified with every peer of `site`.

        Raises:
            AlignmentError: whose digest is missing.
        """
        missing = sorted(set(site.links) - set(self.verified_by))
        if missing:
            raise AlignmentError(
                f"the common rows were not verified with {', '.join(missing)}; align again before training"
            )


async def align(
    site: Site,
    ids: Sequence[str],
    *,
    book: Sequence[str] = (),
    held_out: Sequence[int] | np.ndarray = (),
    max_set_size: int = 1 << 24,
) -> Alignment:
    """Run this party's part of the alignment.

    Args:
        site: the party's place.
        ids: its identifiers, normalised, one per row, none twice.
        book: at the active party, identifiers of rows of which it knows the label only.
        held_out: at the active party, its own rows kept for validation and test: their labels are nobody's to train on.
        max_set_size: largest set that a peer may announce, in rows.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: fewer common rows than the party's policy allows.
        InputError: identifiers that are empty, null or doubled.
        ProtocolError: a peer sent what the protocol does not allow.
    """
    try:
        normal = psi.normalise([*ids, *book], _RULES)
        if site.role == "active":
            return await _active(site, normal, len(ids), {int(row) for row in held_out}, max_set_size)
        return await _passive(site, normal, max_set_size)
    except psi.IdentifierError as error:
        raise InputError(f"{site.name!r}: {error}") from error
    except psi.PSIError as error:
        raise ProtocolError(str(error)) from error


_RULES = psi.IdRules()


def _session(site: Site, passive: str, nonce: bytes) -> psi.Session:
    return psi.Session(names=(site.active, passive), nonce=nonce, rules_tag=_RULES.tag())


async def _active(site: Site, ids: list[str], own: int, held_out: set[int], max_set_size: int) -> Alignment:
    """`ids` are those of the table's own rows and, after them, of the label book."""
    if not site.passive:
        return Alignment(rows=_order(ids, range(own), site.seed), digest="", verified_by=(), pairwise={})
    matches: dict[str, psi.Matches] = {}
    nonce = secrets.token_bytes(16)
    for name in site.passive:
        hello: dict[str, Scalar] = {"job": site.job, "rules": _RULES.tag(), "rows": len(ids), "nonce": nonce.hex()}
        site.links[name].send(Kind.CONTROL, "psi/hello", meta=hello)
    for name in site.passive:
        link = site.links[name]
        count = _announced(await link.receive(Kind.CONTROL, "psi/hello"), site, max_set_size)
        theirs = _points(await link.receive(Kind.BLINDED_SET, "psi/blinded", "points"), "points", count)
        receiver = psi.Receiver(ids, _session(site, name, nonce), max_set_size=max_set_size)
        link.send(Kind.BLINDED_SET, "psi/blinded", guard=_BLINDED, points=receiver.blinded())
        doubled = _points(await link.receive(Kind.BLINDED_SET, "psi/doubled", "tokens"), "tokens", len(ids))
        matches[name] = receiver.intersect(theirs, doubled)
    common = set(range(own)).intersection(*(set(m.receiver_rows.tolist()) for m in matches.values()))
    pairwise = {name: len(m.receiver_rows) for name, m in matches.items()}
    if not common:
        sizes = ", ".join(f"{count} with {name}" for name, count in pairwise.items())
        raise AlignmentError(
            f"no row is held by all parties ({len(ids)} rows at {site.name!r}; in common: {sizes}): "
            "do all use the same identifiers, written the same way?"
        )
    site.policy.check_intersection(len(common))
    rows = _order(ids, sorted(common), site.seed)
    key = secrets.token_bytes(32)
    labelled = {}
    for name in site.passive:
        place = dict(zip(matches[name].receiver_rows.tolist(), matches[name].sender_positions.tolist(), strict=True))
        if len(ids) > own:
            labelled[name] = _order(ids, sorted(set(place) - common - held_out), site.seed)
        both = np.concatenate([rows, labelled[name]]) if labelled else rows
        positions = np.array([place[row] for row in both.tolist()], dtype=np.int64)
        shared = np.frombuffer(key, dtype=np.uint8)
        meta = {"common": len(rows)}
        site.links[name].send(Kind.INTERSECTION, "psi/common", meta=meta, positions=positions, key=shared)
    return await _verify(site, ids, rows, key, pairwise, labelled)


async def _passive(site: Site, ids: list[str], max_set_size: int) -> Alignment:
    link = site.links[site.active]
    hello = await link.receive(Kind.CONTROL, "psi/hello")
    count = _announced(hello, site, max_set_size)
    try:
        nonce = bytes.fromhex(str(hello.meta.get("nonce")))
    except ValueError:
        nonce = b""
    if len(nonce) < 16:
        raise ProtocolError(f"{link.peer!r} sent a session nonce of {len(nonce)} bytes; at least 16 are needed")
    link.send(Kind.CONTROL, "psi/hello", meta={"job": site.job, "rules": _RULES.tag(), "rows": len(ids)})
    sender = psi.Sender(ids, _session(site, site.name, nonce), max_set_size=max_set_size)
    link.send(Kind.BLINDED_SET, "psi/blinded", guard=_BLINDED, points=sender.blinded())
    theirs = _points(await link.receive(Kind.BLINDED_SET, "psi/blinded", "points"), "points", count)
    link.send(Kind.BLINDED_SET, "psi/doubled", guard=_BLINDED, tokens=sender.double(theirs))
    message = await link.receive(Kind.INTERSECTION, "psi/common", "positions", "key")
    positions, common = np.asarray(message.arrays["positions"]), message.meta.get("common")
    both = sender.rows(positions)
    key = np.asarray(message.arrays["key"])
    if key.dtype != np.uint8 or key.shape != (32,):
        raise ProtocolError(f"{link.peer!r} sent a digest key of {key.size} bytes; 32 are needed")
    if isinstance(common, bool) or not isinstance(common, int) or not 0 <= common <= len(positions):
        raise ProtocolError(f"{link.peer!r} says that {common!r} of the {len(positions)} rows that it names are common")
    rows, labelled = both[:common], both[common:]
    site.policy.check_intersection(len(rows))
    known = {site.name: labelled} if len(labelled) else {}
    return await _verify(site, ids, rows, key.tobytes(), {}, known)


async def _verify(
    site: Site,
    ids: list[str],
    rows: np.ndarray,
    key: bytes,
    pairwise: dict[str, int],
    labelled: Mapping[str, np.ndarray],
) -> Alignment:
    """All send all the keyed digest of their own identifiers in the common order, and compare; active and passive party
    that of the labelled rows, too."""
    digest = psi.order_digest([ids[row] for row in rows.tolist()], key, site.job)
    both: dict[str, bytes] = {}
    for link in site.others:
        passive = link.peer if site.role == "active" else site.name
        more = labelled.get(passive, rows[:0]) if site.active in (site.name, link.peer) else rows[:0]
        pairs = psi.order_digest([ids[row] for row in more.tolist()], key, site.job + " labelled") if len(more) else b""
        both[link.peer] = digest + pairs
        link.send(
            Kind.STATISTIC,
            "psi/digest",
            meta={"rows": len(rows)},
            guard=Guard("masked", 128, "HMAC-SHA-256"),
            digest=np.frombuffer(both[link.peer], dtype=np.uint8),
        )
    for link in site.others:
        message = await link.receive(Kind.STATISTIC, "psi/digest", "digest")
        if not psi.digests_equal(np.asarray(message.arrays["digest"]).tobytes(), both[link.peer]):
            raise AlignmentError(
                f"{site.name!r} ({len(rows)} rows) and {link.peer!r} ({message.meta.get('rows')} rows) do not "
                "have the same "
                "common rows in the same order; nothing was trained. Do both normalise identifiers alike?"
            )
    peers = tuple(link.peer for link in site.others)
    return Alignment(rows=rows, digest=digest.hex(), verified_by=peers, pairwise=pairwise, labelled=labelled)


def join(
    active: str,
    ids: Mapping[str, Sequence[str]],
    seed: int,
    book: Sequence[str] = (),
    held_out: Sequence[int] | np.ndarray = (),
) -> dict[str, Alignment]:
    """The alignment of all parties, by a join in the clear: for experiments in one process, where a run of the
    protocol would show nothing. Rows and order are those of `align`.

    Args:
        active: name of the active party.
        ids: party → its identifiers.
        seed: the job's.
        book: identifiers of which the active party knows the label only.
        held_out: rows of the active party's that validate and test.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty, null or doubled.
    """
    try:
        normal = {name: psi.normalise(own, _RULES) for name, own in ids.items()}
        known = psi.normalise([*ids[active], *book], _RULES)
    except psi.IdentifierError as error:
        raise InputError(str(error)) from error
    places = {name: {text: row for row, text in enumerate(own)} for name, own in normal.items()}
    passive = sorted(set(ids) - {active})
    common = {row for row, text in enumerate(normal[active]) if all(text in places[name] for name in passive)}
    if not common:
        raise AlignmentError(f"no row is held by all of {', '.join(sorted(ids))}")
    rows = _order(known, sorted(common), seed)
    labelled = {}
    out = common | {int(row) for row in held_out}
    for name in passive if book else ():
        both = [row for row, text in enumerate(known) if row not in out and text in places[name]]
        labelled[name] = _order(known, both, seed)
    found = {}
    for name in ids:
        mine = labelled if name == active else {}
        if name in labelled:
            mine = {name: np.array([places[name][known[row]] for row in labelled[name].tolist()], dtype=np.int64)}
        found[name] = Alignment(
            rows=np.array([places[name][known[row]] for row in rows.tolist()], dtype=np.int64),
            digest="",
            verified_by=tuple(sorted(set(ids) - {name})),
            pairwise={},
            labelled=mine,
        )
    return found


def _order(ids: Sequence[str], rows: Sequence[int], seed: int) -> np.ndarray:
    """A common order that does not show how any party sorts its table: by a hash of seed and identifier."""
    prefix = f"securevfl order {seed} ".encode()
    keys = [hashlib.sha256(prefix + ids[row].encode()).digest() for row in rows]
    return np.array([row for _, row in sorted(zip(keys, rows, strict=True))], dtype=np.int64).reshape(-1)


def _announced(message: Message, site: Site, max_set_size: int) -> int:
    """The size of the peer's set, after the check that it runs the same job by the same rules."""
    meta = message.meta
    for key, mine in (("job", site.job), ("rules", _RULES.tag())):
        if meta.get(key) != mine:
            raise ProtocolError(
                f"a peer of {site.name!r} runs with {key} {meta.get(key)!r}, not {mine!r}: use one job file"
            )
    count = meta.get("rows")
    if not isinstance(count, int) or not 0 <= count <= max_set_size:
        raise ProtocolError(f"a peer of {site.name!r} announces {count!r} rows; at most {max_set_size} are accepted")
    return count


def _points(message: Message, name: str, count: int) -> np.ndarray:
    array: Array = message.arrays[name]
    points = np.asarray(array)
    if len(points) != count:
        raise ProtocolError(f"{message.what!r} holds {len(points)} points; {count} were announced")
    return points

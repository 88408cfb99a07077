"""What every way to align has: the result, an order that all share, chunks on links, and the proof that all agree."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import securevfl_psi as psi
from securevfl_psi.chunks import require_chunk

from securevfl.errors import AlignmentError, ProtocolError
from securevfl.privacy import Link
from securevfl.site import Site
from securevfl.transport import Array, Guard, Kind, Message

__all__ = ["RULES", "Alignment", "announced", "order", "receive_rows", "send_rows", "verify"]

RULES = psi.IdRules()
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


async def send_rows(link: Link, what: str, name: str, chunks: Iterable[np.ndarray], guard: Guard = _BLINDED) -> None:
    """Chunks of a blinded set, each as a message."""
    for part in chunks:
        arrays: dict[str, Array] = {name: part}
        await link.send(Kind.BLINDED_SET, what, guard=guard, meta={}, **arrays)


async def receive_rows(
    link: Link,
    what: str,
    name: str,
    count: int,
    width: int,
    take: Callable[[np.ndarray], object],
    kind: Kind = Kind.BLINDED_SET,
) -> None:
    """Hands chunks of rows, each of `width` bytes, to `take` as they come, until all that were announced are there.

    Raises:
        PSIError: a chunk of another type, shape or number of rows than `send_rows` sends, or more rows than announced.
    """
    done = 0
    while done < count:
        part = np.asarray((await link.receive(kind, what, name)).arrays[name])
        require_chunk(part, width, done, count, repr(what))
        done += len(part)
        done_with = take(part)
        if isinstance(done_with, Awaitable):
            await done_with


async def verify(
    site: Site,
    ids: Sequence[str],
    rows: np.ndarray,
    key: bytes,
    pairwise: dict[str, int],
    labelled: Mapping[str, np.ndarray],
) -> Alignment:
    """All send all the keyed digest of their own identifiers in the common order, and compare; active and passive party
    that of the labelled rows, too."""
    digest = psi.order_digest(ids, key, site.job, rows)
    both: dict[str, bytes] = {}
    for link in site.others:
        passive = link.peer if site.role == "active" else site.name
        more = labelled.get(passive, rows[:0]) if site.active in (site.name, link.peer) else rows[:0]
        pairs = psi.order_digest(ids, key, site.job + " labelled", more) if len(more) else b""
        both[link.peer] = digest + pairs
        await link.send(
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
                f"{site.name!r} ({len(rows)} rows) and {link.peer!r} ({message.meta.get('rows')!r:.20} rows) do not "
                "have the same "
                "common rows in the same order; nothing was trained. Do both normalise identifiers alike?"
            )
    peers = tuple(link.peer for link in site.others)
    return Alignment(rows=rows, digest=digest.hex(), verified_by=peers, pairwise=pairwise, labelled=labelled)


def order(ids: Sequence[str], rows: Sequence[int], seed: int) -> np.ndarray:
    """A common order that does not show how any party sorts its table: by a hash of seed and identifier."""
    prefix = f"securevfl order {seed} ".encode()
    keys = [hashlib.sha256(prefix + ids[row].encode()).digest() for row in rows]
    return np.array([row for _, row in sorted(zip(keys, rows, strict=True))], dtype=np.int64).reshape(-1)


def announced(message: Message, site: Site, max_set_size: int, how: str) -> int:
    """The size of the peer's set, after the check that it runs the same job by the same rules."""
    meta = message.meta
    for key, mine in (("job", site.job), ("rules", RULES.tag()), ("protocol", how)):
        if meta.get(key) != mine:
            raise ProtocolError(
                f"a peer of {site.name!r} runs with {key} {meta.get(key)!r}, not {mine!r}: use one job file"
            )
    count = meta.get("rows")
    if not isinstance(count, int) or not 0 <= count <= max_set_size:
        raise ProtocolError(
            f"a peer of {site.name!r} announces {count!r} rows; at most {max_set_size} are accepted: "
            "the policy's max_set_size"
        )
    return count

"""Ends of two-party protocols for tests: honest ones, and a peer that sends what it likes."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.group import Scalar, hash_to_group
from securevfl_psi.oblivious import OTClient
from securevfl_psi.oblivious.base import TRANSFERS, Chooser, Giver
from securevfl_psi.terms import RequestedProtocol, Terms
from securevfl_psi.wire import HEADER_BYTES, TAG_BYTES, FrameWriter, Kind

BANK, SHOP = ["ann", "bob", "eve"], ["eve", "zoe", "ann", "kim"]


def terms(side: str, protocol: RequestedProtocol = "dh", **more: Any) -> Terms:
    names = ("bank", "shop") if side == "receiver" else ("shop", "bank")
    values: dict[str, Any] = {"name": names[0], "peer": names[1], "role": side, "protocol": protocol}
    values |= {"min_intersection": 0, "salt": b"s" * 16}
    return Terms(**values | more)


def ends(
    mine: list[str], theirs: list[str], protocol: RequestedProtocol = "dh", **more: Any
) -> tuple[Endpoint, Endpoint]:
    return Endpoint(mine, terms("receiver", protocol, **more)), Endpoint(theirs, terms("sender", protocol, **more))


def until(end: Endpoint, peer: Endpoint, kind: Kind) -> bytes:
    """Runs both ends until `end` is about to send a frame of this kind; returns it."""
    for _ in range(100):
        frame = end.next_frame()
        if frame is not None:
            if frame[5] == kind:
                return frame
            peer.feed(frame)
        back = peer.next_frame()
        if back is not None:
            end.feed(back)
    raise AssertionError(f"no {kind.name} came")


def points(count: int) -> bytes:
    return Scalar().multiply(hash_to_group([secrets.token_bytes(8) for _ in range(count)], b"x" * 45)).tobytes()


def replaced(frame: bytes, payload: bytes) -> bytes:
    """The frame with another payload."""
    return frame[:12] + len(payload).to_bytes(4, "big") + frame[16:HEADER_BYTES] + payload


class Hostile:
    """Sends what it likes, in frames that are numbered and tagged as they should be."""

    def __init__(self, side: str, target: Endpoint, rows: int, **more: Any) -> None:
        self.target, self._writer = target, FrameWriter()
        own = terms(side, target.terms.protocol, **more)
        self.session, _ = own.accept_hello((target.next_frame() or b"")[HEADER_BYTES:])
        self.send(Kind.HELLO, own.encode_hello(rows))
        self._writer.tag = hashlib.sha512(self.session.dst + side.encode()).digest()[:TAG_BYTES]

    def send(self, kind: Kind, payload: bytes) -> None:
        self.target.feed(self._writer.write(kind, payload))

    def heard(self, kind: Kind) -> bytes:
        """The payload of the next frame of this kind."""
        while frame := self.target.next_frame():
            if frame[5] == kind:
                return frame[HEADER_BYTES:]
        raise AssertionError(f"no {kind.name}")

    def begin_transfer(self, side: str) -> None:
        """What comes in `ot` before a set, as it should be."""
        if side == "receiver":
            self.send(Kind.TRANSFERS, Giver(self.session.dst).message)
            self.send(Kind.SEED, bytes(32))
            return
        message = self.heard(Kind.TRANSFERS)
        self.send(Kind.TRANSFERS, Chooser(self.session.dst, np.zeros(TRANSFERS, np.uint8), message).answer)
        self.heard(Kind.ROWS)
        self.send(Kind.SEED, bytes(32))

    def transfer(self, ids: list[str], peer_size: int) -> OTClient:
        """As the client of `ot`, all until the server makes its tokens."""
        client = OTClient(ids, self.session, peer_size)
        self.send(Kind.TRANSFERS, client.first_message)
        self.send(Kind.SEED, client.seed)
        client.take_keys(self.heard(Kind.TRANSFERS))
        for rows in client.encode_rows():
            self.send(Kind.ROWS, rows.tobytes())
        self.send(Kind.SUMS, client.answer_challenge(self.heard(Kind.SEED)))
        return client

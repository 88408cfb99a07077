"""Status of a party's run: a small file, written about once a second, which `securevfl status` reads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securevfl_net.durable import is_held
from securevfl_net.link_state import LinkState

from securevfl.errors import InputError
from securevfl.party_context import Observer
from securevfl.run.events import BoundsLeft, RunEvents
from securevfl.transport import Scalar

__all__ = ["Status", "read_status"]

FORMAT = 1
_LAST = 8


class Status(RunEvents, Observer):
    """Receives events of a party's run and its program, and describes both.

    Args:
        party: whose.
        role: its part in the job.
        title: of the job.
        agreement: SHA-256 of the proposal, hexadecimal.

    Attributes:
        stage: ``"connecting"``, then the program's phase: ``"consent"``, ``"alignment"``, ``"setup"``, ``"training"``,
            ``"test"``, ``"heads"``; ``"parked"``, ``"finished"``, ``"done"``, ``"ended"``.
    """

    accounting = True

    def __init__(self, party: str, role: str, title: str, agreement: str) -> None:
        self.party = party
        self.role = role
        self.title = title
        self.agreement = agreement
        self.stage = "connecting"
        self.epoch_now = self.steps_done = self.steps_all = self.attempt = 0
        self.epsilon: dict[str, float] = {}
        self.waits: dict[str, str] = {}
        self.last: list[str] = []
        self.cause = ""
        self.certificates: dict[str, float] = {}
        self.phase_since = time.time()
        self.since = time.time()

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        self.last = [*self.last, f"{time.strftime('%H:%M:%S')} {words}"][-_LAST:]
        if what in ("parked", "finished", "done", "ended"):
            self.phase(what)
        if what == "attempt":
            self.attempt, self.waits = int(values["attempt"]), {}
            self.steps_done = self.steps_all = 0
        if what == "waits":
            self.waits = {peer: str(value) for peer, value in values.items()}
        if what == "ended":
            self.cause = words

    def bounds_changed(self, left: BoundsLeft) -> None:
        self.certificates = dict(left.certificates)

    def phase(self, name: str) -> None:
        self.stage, self.phase_since = name, time.time()

    def step(self, epoch: int, done: int, total: int) -> None:
        self.epoch_now, self.steps_done, self.steps_all = epoch, done, total

    def epsilon_spent(self, party: str, epsilon: Mapping[str, float]) -> None:
        self.epsilon = dict(epsilon)

    def file_content(self, links: Mapping[str, LinkState]) -> dict[str, object]:
        """Content of the file.

        Args:
            links: the state of each connection.
        """
        return {
            "format": FORMAT,
            "written": time.time(),
            "pid": os.getpid(),
            "party": self.party,
            "role": self.role,
            "job": self.title,
            "agreement": self.agreement,
            "started": self.since,
            "phase": self.stage,
            "phase since": self.phase_since,
            "attempt": self.attempt,
            "epoch": self.epoch_now,
            "step": self.steps_done,
            "steps": self.steps_all,
            "epsilon": self.epsilon,
            "waits": self.waits,
            "certificates": self.certificates,
            "cause": self.cause,
            "last": self.last,
            "peers": {
                peer: {
                    "connected": link.connected,
                    "since": link.since,
                    "incarnation": "" if link.incarnation is None else str(link.incarnation),
                    "connections": link.connections,
                    "sent": link.sent,
                    "received": link.received,
                    "round trip": link.round_trip,
                    "silent": link.silent,
                    "blocked": link.blocked,
                    "steps": link.beat.steps,
                    "awaits": link.beat.awaits,
                    "awaited step": link.beat.step,
                }
                for peer, link in sorted(links.items())
            },
        }


def read_status(state: Path) -> dict[str, Any]:
    """The latest status in a state folder, with ``"alive"``: whether its process exists.

    Raises:
        InputError: no party ran there, or the file cannot be read.
    """
    path = state / "status.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{path} is not there: name the state folder of a party that was started; its process writes the file once "
            "it has read its table"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): start the party again, which rewrites it") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path} was written by another version: start the party again, which rewrites it")
    found["alive"] = found.get("phase") not in ("done", "ended") and is_held(state)
    return found

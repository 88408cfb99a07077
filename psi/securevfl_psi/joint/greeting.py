"""The first frame between two parties of a joint run: each party's plan and its share of the session's nonce."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from securevfl_psi.errors import DisagreementError, MalformedError, SetSizeError
from securevfl_psi.speed import Speed
from securevfl_psi.terms import parse_nonce
from securevfl_psi.wire import VERSION

__all__ = ["Greeting", "Plan"]

Plan = str
PLANS = (
    "joint, two at a time",
    "joint, global only",
    "joint, two at a time, by transfer",
    "joint, two at a time, dh or transfer",
    "joint, two at a time, salted hashes",
    "joint, two at a time, unbalanced",
)
"""Two-party intersections that the active party composes; the multi-party protocol, which reveals no pairwise
intersection; and two-party intersections by protocols other than `dh`."""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """One party's greeting to another.

    Attributes:
        name: of the party.
        plan: one of `PLANS`.
        rules: tag of the normalisation.
        context: the purpose of the run, such as a job's digest.
        labelled: whether the active party has identifiers for which it has only the label.
        nonce: 16 fresh bytes.
        rows: size of the party's set; None between two passive parties, which do not learn each other's.
        speed: of the party's machine, where ``auto`` weighs it.
    """

    name: str
    plan: Plan
    rules: str
    context: str
    labelled: bool
    nonce: bytes
    rows: int | None
    speed: Speed | None = None

    def to_bytes(self) -> bytes:
        """JSON."""
        fields = self._agreed_fields() | {"name": self.name, "nonce": self.nonce.hex(), "rows": self.rows}
        if self.speed is not None:
            fields["speed"] = self.speed.to_json()
        return json.dumps(fields, sort_keys=True).encode()

    def _agreed_fields(self) -> dict[str, object]:
        return {
            "plan": self.plan,
            "version": VERSION,
            "rules": self.rules,
            "context": self.context,
            "labelled": self.labelled,
        }

    @classmethod
    def from_bytes(cls, data: bytes, peer: str, expected: Mapping[str, object], *, most: int | None) -> Greeting:
        """Decode and check what the peer's `to_bytes` returned.

        Args:
            data: the peer's message.
            peer: its name.
            expected: required values, by attribute name.
            most: most rows that it may announce; None if it announces no number.

        Raises:
            MalformedError: not a greeting.
            DisagreementError: the peer has other parameters.
            SetSizeError: the peer announces too many rows.
        """
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise MalformedError(f"the greeting of {peer!r} is not JSON, or nested too deeply") from None
        if not isinstance(fields, dict):
            raise MalformedError(f"the greeting of {peer!r} is not a JSON object")
        for key, mine in ({"name": peer, "version": VERSION} | dict(expected)).items():
            if fields.get(key) != mine and key == "rules":
                raise DisagreementError(
                    f"{peer!r} runs with rules {str(fields.get(key))[:80]!r} for identifiers, not {mine!r}: make them "
                    "of the same columns in the same order at each party, and normalise them alike"
                )
            if fields.get(key) != mine:
                raise DisagreementError(
                    f"{peer!r} runs with {key} {str(fields.get(key))[:80]!r}, not {mine!r}: use one job and one release"
                )
        plan, labelled, rows = fields.get("plan"), fields.get("labelled"), fields.get("rows")
        if plan not in PLANS or not isinstance(labelled, bool):
            raise MalformedError(f"{peer!r} plans {str(plan)[:80]!r}; expected one of {', '.join(PLANS)}")
        if most is None:
            rows = None
        elif isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise MalformedError(f"{peer!r} announces {str(rows)[:40]!r} rows; expected a whole number")
        elif rows > most:
            raise SetSizeError(f"{peer!r} announces {rows} rows; at most {most} are accepted: raise max_set_size")
        return cls(
            name=peer,
            plan=plan,
            rules=str(fields.get("rules")),
            context=str(fields.get("context")),
            labelled=labelled,
            nonce=parse_nonce(fields.get("nonce")),
            rows=rows,
            speed=Speed.from_json(fields["speed"], repr(peer)) if "speed" in fields else None,
        )

"""What a party of a linkage runs, and its view of a finished one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from securevfl_psi.errors import InputError
from securevfl_psi.linkage import Schema
from securevfl_psi.linkage.blocking import BlockKey

from securevfl_psi_cli.summary import format_bytes, format_count

__all__ = ["LinkPlan", "Linking", "require_linker"]


@dataclass(frozen=True, kw_only=True)
class LinkPlan:
    """What a party runs.

    Attributes:
        name: of this party.
        linker: of the one that compares.
        names: of all, sorted.
        context: what the run is for; all must give the same.
        schema: what is compared; None at a linker without records.
        rules: blocks.
        witnesses: two sets of fields for an estimate of recall, or none.
        deduplicate: whether to leave out rows of one person.
        threshold, precision: at the linker, see `securevfl_psi.linkage.link_records`.
        max_set_size: most records of another party.
    """

    name: str
    linker: str
    names: tuple[str, ...]
    context: str
    schema: Schema | None = None
    rules: tuple[Mapping[str, BlockKey], ...] = ()
    witnesses: tuple[Mapping[str, BlockKey], ...] = ()
    deduplicate: bool = True
    threshold: float | None = None
    precision: float | None = None
    max_set_size: int = 1 << 24

    @property
    def record_parties(self) -> tuple[str, ...]:
        """The two with records."""
        return self.names if len(self.names) == 2 else tuple(name for name in self.names if name != self.linker)

    @property
    def agreed_rules(self) -> str:
        """Rules that both parties with records have to have alike; empty at a linker without records."""
        if self.schema is None:
            return ""
        rules, sets = ([sorted(rule.items()) for rule in some] for some in (self.rules, self.witnesses))
        return f"{self.schema.tag()} {rules!r} {sets!r}"


@dataclass(frozen=True, kw_only=True)
class Linking:
    """One party's view of a finished linkage.

    Attributes:
        name, linker: this party and the one that compared.
        parties: the two with records.
        rows: records of this party; 0 at a linker without any.
        duplicates: rows of them that were left out.
        pairs: linked pairs.
        threshold: least similarity of them.
        precision: estimated share of them that is true.
        recall: estimated share of the true pairs that is found: of all with witnesses; else of those that similarities
            show, which is too high.
        recall_range: bounds of the share of all true pairs that is found.
        common: with witnesses, the estimated number of people in both tables; else None.
        sent, received: bytes of messages, with all others together.
        seconds: from the connections to the end.
        links: rows of this party that are linked, and their names: in an order that both share.
        out: the file that was written, or None.
    """

    name: str
    linker: str
    parties: tuple[str, ...]
    rows: int
    duplicates: int
    pairs: int
    threshold: float
    precision: float
    recall: float
    recall_range: tuple[float, float]
    sent: int
    received: int
    seconds: float
    common: float | None = None
    links: list[tuple[int, str]] = field(default_factory=list, repr=False)
    out: str | None = None

    def as_json(self) -> str:
        """All fields but the links as one JSON object."""
        fields = {name: value for name, value in asdict(self).items() if name != "links"}
        return json.dumps(fields | {"seconds": round(self.seconds, 3)}, indent=2)

    def _format_recall(self) -> str:
        low, high = self.recall_range
        if self.common is None:
            return f"recall between {low:.2f} and {high:.2f}"
        return f"recall {self.recall:.3f} ({low:.3f} to {high:.3f}) of about {self.common:.0f} people in both tables"

    def format_title(self) -> str:
        """The result in one line."""
        return f"{format_count(self.pairs, 'pair')} of records of {' and '.join(self.parties)} are linked"

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        inside = self.linker in self.parties
        learned = "encodings of all records, and could test guesses on them: it has the key"
        if not inside:
            learned = "keyed encodings of all records, and which are alike; known attacks read names from these"
        left_out = [("left out", f"{format_count(self.duplicates, 'row')} of people who stand here twice")]
        left_out = left_out if self.duplicates else []
        return [
            ("estimated", f"precision {self.precision:.3f}, {self._format_recall()}"),
            ("threshold", f"similarity {self.threshold:.3f}"),
            (f"{self.linker} learned", learned),
            *left_out,
            ("moved", f"{format_bytes(self.sent)} sent, {format_bytes(self.received)} received"),
            ("took", f"{self.seconds:.2f} s"),
            ("channel", "TLS 1.3, certificates of both ends pinned, one connection between each two parties"),
            *([("written", self.out)] if self.out else []),
        ]


def require_linker(plan: LinkPlan, accepted: bool) -> None:
    """Refuse a linker with the key that nobody asked for.

    Raises:
        InputError: the linker is a party with records, and that was not accepted; or none of those that take part.
    """
    if plan.linker not in plan.names:
        raise InputError(f"--linker {plan.linker!r}; it is this party or a --peer of it: {', '.join(plan.names)}")
    if plan.linker in plan.record_parties and not accepted:
        raise InputError(
            f"--linker {plan.linker} has records too, and so the key: it could test any guess on the other "
            "party's records. Name a third party, or accept that with --the-linker-may-test-guesses"
        )

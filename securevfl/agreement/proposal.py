"""A proposal: everything that the parties of a job have to agree on, in one file whose canonical bytes they sign.

It contains the purpose, the job with its algorithm and protection, the parties with their keys, certificates and
columns, the limits on time and attempts, and the software versions. It omits what each party decides for itself: its
policy, device, pool and addresses.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from securevfl.agreement.canonical import decode_tree, encode_tree, from_plain, text_problem, to_plain
from securevfl.agreement.cards import PartyCard
from securevfl.agreement.versions import Versions
from securevfl.align import Align, Linkage
from securevfl.config import Config, Mistaken, take_all
from securevfl.cut import Protection
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.party import Job, JobTerms, Leaving, too_few_epochs, wrong_parties
from securevfl.party.candidates import describe_unfit_choice
from securevfl.party.eligibility import check_continuing
from securevfl.party.leaving import LEAVES_FEWEST
from securevfl.party.report_options import ReportOptions
from securevfl.privacy import Policy
from securevfl.training import Algorithm
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE

__all__ = ["TOLERANCE", "AgreedLimits", "Proposal", "ServingTerms"]

TOLERANCE = timedelta(minutes=5)
"""Tolerated difference between clocks: an agreement counts as expired only this long after its end."""

_HEADER = "# securevfl agreement, version 1"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_ID = re.compile("[0-9a-f]{32}")
_RUN = re.compile("[0-9a-f]{64}")
_CONFUSED = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "_": "-"})
"""Letters that look like another one → that one; `_find_lookalikes` adds the pairs ``rn`` and ``vv``."""
_DECIMALS = ("job", "algorithm", "protection", "link")
"""Tables with decimals, which the canonical form writes as texts. Elsewhere, a text such as "5.0" stays a text."""

Seconds = Annotated[int, Meta(ge=1, le=10 * 366 * 86400)]


class AgreedLimits(Config):
    """How long and how often an agreement may be used.

    Attributes:
        expires: when it ends, in UTC: ``"2026-12-31T00:00:00Z"``. See `TOLERANCE`.
        attempts: the most attempts that may begin. An attempt begins once every party is ready for it.
        seconds: the most seconds that a party may spend in all attempts together; its state folder keeps the count.
        reconnect: seconds that an attempt waits for a lost connection before the party parks it.
        gather: seconds that a party's process waits for its peers between attempts before it exits; it can be started
            again.
        leaving: what happens if a party with features alone leaves for good. ``"end"``: the others wait for it, and do
            not go on without it. ``"go-on"``: they go on once all of them have signed that it is gone.
        leaving_after: seconds after which a party signs that an absent one is gone; only with ``"go-on"``.
    """

    expires: Annotated[str, Meta(max_length=20)]
    attempts: Annotated[int, Meta(ge=1, le=10_000)] = 20
    seconds: Seconds = 7 * 86400
    reconnect: Seconds = 120
    gather: Seconds = 86400
    leaving: Leaving = "end"
    leaving_after: Seconds | None = None

    @classmethod
    def section_path(cls) -> str:
        return "limits"

    def problems(self) -> list[str]:
        found = super().problems()
        if self._parse_time() is None:
            found.append(
                f'expires is {self.expires[:40]!a}; a time in UTC was expected, such as "2026-12-31T00:00:00Z"'
            )
        return found + self._leaving_problems()

    def _leaving_problems(self) -> list[str]:
        after = self.leaving_after
        if self.leaving == "end":
            return [] if after is None else ["leaving_after is for leaving = 'go-on': leave it out"]
        if after is None:
            return ["leaving is 'go-on', and leaving_after says nothing: give the time after which a party is gone"]
        if not self.reconnect <= after < self.gather:
            return [
                f"leaving_after is {after} s; from reconnect ({self.reconnect} s) to less than gather ({self.gather} "
                "s) was expected (--leaving-after): before, an attempt still waits for the connection, and after, no "
                "process does"
            ]
        return []

    @property
    def leaving_patience(self) -> float:
        """Seconds after which a party signs that an absent one is gone; infinite where the job does not go on."""
        return math.inf if self.leaving_after is None else float(self.leaving_after)

    def _parse_time(self) -> datetime | None:
        try:
            time = datetime.strptime(self.expires, _TIME).replace(tzinfo=UTC)
        except ValueError:
            return None
        return time if time.strftime(_TIME) == self.expires else None

    @property
    def expiry_time(self) -> datetime:
        """`expires` as a time."""
        time = self._parse_time()
        if time is None:
            raise InputError(f'expires is {self.expires!r}; a time in UTC was expected, such as "2026-12-31T00:00:00Z"')
        return time

    def is_over(self, now: datetime) -> bool:
        """Whether the agreement has expired, with `TOLERANCE` for differing clocks."""
        return now > self.expiry_time + TOLERANCE


class ServingTerms(Config):
    """How the trained model may be used for scoring. Each party's own serving policy applies in addition.

    Attributes:
        asks: the label owners that may request scores. No other party may.
        min_batch: the fewest rows in one request.
        rows_per_day: most rows of all requests in a day; None for no limit.
        scores_per_record: how often one row may be scored in a day; None for no limit.
        reasons: whether an answer comes with reasons: what each of the asking party's own columns adds, and what the
            others add together. Both follow from the score and from what that party has.
    """

    asks: Annotated[tuple[str, ...], Meta(min_length=1, max_length=60)]
    min_batch: Annotated[int, Meta(ge=1, le=2048)] = 1
    rows_per_day: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    scores_per_record: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    reasons: bool = False

    @classmethod
    def section_path(cls) -> str:
        return "serving"


class Proposal(Config, dict=True):
    """A proposal. Two parties have the same one if their `digest` is the same.

    Attributes:
        id: 128 random bits, hexadecimal, so that two agreements on the same job have different digests.
        purpose: why the parties train this model, in their own words.
        limits: how long and how often the agreement may be used.
        versions: of the software that all parties must run.
        job: options of the job, without any party's device.
        algorithm: what is trained.
        protection: how the messages between parties are protected.
        align: how common rows are found.
        link: how records without a common identifier are linked before that.
        party: the parties' cards, by name.
        serving: how the model may be used for scoring; None if the agreement covers only training.
        start: the run whose model training goes on from, as ``model.run`` beside each part names it: the digest of the
            agreement that it was trained under; empty to train from the beginning.
    """

    id: str
    purpose: Annotated[str, Meta(min_length=1, max_length=2000)]
    limits: AgreedLimits
    versions: Versions
    job: JobTerms
    algorithm: Algorithm
    protection: Protection
    align: Align = msgspec.field(default_factory=Align)
    link: Linkage | None = None
    party: Annotated[tuple[PartyCard, ...], Meta(min_length=2, max_length=60)]
    serving: ServingTerms | None = None
    start: str = ""

    @classmethod
    def section_path(cls) -> str:
        return "agreement"

    def problems(self) -> list[str]:
        found = super().problems()
        if _ID.fullmatch(self.id) is None:
            found.append(f"id is {self.id[:40]!a}; 32 hexadecimal digits were expected")
        rule = text_problem(self.purpose)
        found += [f"an agreement cannot contain this purpose: {rule}"] if rule else []
        found += self._about_parties()
        found += wrong_parties(self.algorithm, self.owner_names, self.passive_names, self.protection)
        found += too_few_epochs(self.algorithm, self.job.epochs)
        found += self._about_leaving()
        for name in self.serving.asks if self.serving is not None else ():
            if name not in self.owner_names:
                found.append(
                    f"serving.asks names {name[:40]!a}, who owns no labels; owners: {', '.join(self.owner_names)}"
                )
        if self.serving is not None and len(self.owner_names) > 1:
            found.append(
                f"serving lets {', '.join(self.serving.asks)} request scores, but a model of several label owners "
                f"({', '.join(self.owner_names)}) cannot be served yet: leave serving (--asks) out; each owner scores "
                "its own rows during training"
            )
        if self.serving is not None and self.algorithm.describes:
            found.append(
                f"serving lets {', '.join(self.serving.asks)} request scores, and statistics leave no model to ask: "
                "leave serving (--asks) out"
            )
        if self.serving is not None and self.link is not None and self.link.needs_coordinator():
            found.append(
                "serving lets parties request scores, but here a coordinator links the records, and it has no part of "
                "the model: leave serving (--asks) out, or set [link] linker = 'active', which shows the active party "
                "more of the records"
            )
        if not found:  # the job would only repeat problems of its parts
            try:
                self.job_of()
            except (InputError, PolicyError) as error:
                found.append(str(error))
        if not found and self.start:
            found += self._about_start()
        if not found and self.algorithm.chooses:
            found += describe_unfit_choice(self.job_of(), self.owner_names, self.passive_names)
        return found

    def _about_start(self) -> list[str]:
        """Why the job could not go on from an earlier model."""
        if _RUN.fullmatch(self.start) is None:
            return [f"start is {self.start[:70]!a}; the 64 hexadecimal digits of model.run were expected"]
        if self.link is not None or len(self.owner_names) > 1:
            return ["start is for jobs of one label owner whose records have a common identifier: leave it out"]
        try:
            check_continuing(self.job_of())
        except InputError as error:
            return [f"start: {error}"]
        return []

    def _about_leaving(self) -> list[str]:
        """Why the job could not go on without a party."""
        if self.limits.leaving == "end":
            return []
        found = []
        if len(self.passive_names) <= LEAVES_FEWEST:
            found.append(
                "leaving is 'go-on', and without its only party with features alone nothing is left of the job: leave "
                "it out"
            )
        if self.coordinator_name or len(self.owner_names) > 1:
            found.append(
                "leaving is 'go-on', which is for jobs of one party with labels and no coordinator: set leaving = 'end'"
            )
        return found

    def _about_parties(self) -> list[str]:
        names = [card.name for card in self.party]
        found = []
        if names != sorted(set(names)):
            found.append(f"the parties are {', '.join(names)[:200]}; list each once, in alphabetical order")
        lookalikes = _find_lookalikes(names)
        if lookalikes:
            found.append(
                f"{lookalikes[0]!r} and {lookalikes[1]!r} look alike, so people would confuse them: rename one"
            )
        for what, values in (
            ("signing key", [card.signing_key for card in self.party]),
            ("certificate", [text for card in self.party for text in card.certificates]),
        ):
            if len(set(values)) < len(values):
                found.append(f"two parties have the same {what}; each must create its own")
        if not self.owner_names:
            found.append("no party is active; at least one must own the labels")
        coordinators = [card.name for card in self.party if card.role == COORDINATOR]
        asked = self.protection.coordinator_among([card.name for card in self.party if card.role != COORDINATOR])
        links = self.link is not None and self.link.needs_coordinator()
        needed = self.algorithm.many_owners or bool(asked) or links
        if len(coordinators) != int(needed):
            who = self.protection.title if asked and not self.algorithm.many_owners else self.algorithm.title
            who = "linkage by a coordinator ([link] linker)" if links else who
            need = "one coordinator" if needed else "no coordinator"
            found.append(f"{who} needs {need}; the agreement has {', '.join(coordinators) or 'none'}")
        tables = [card.table for card in self.party if card.table is not None]
        if len({table.identifiers for table in tables}) > 1 and self.link is None:
            rules = "; ".join(f"{card.name} {card.table.identifiers}" for card in self.party if card.table is not None)
            found.append(
                "the parties make identifiers by different rules, so no row would be found in common "
                f"({rules}): give id = […] the same number of columns in the same order at every party, and use the "
                "same release of securevfl"
            )
        labelled = [table for table in tables if table.label is not None]
        if (
            len({table.class_count for table in labelled}) > 1
            or len({t.classes for t in labelled if t.shows_names}) > 1
        ):
            found.append(
                "the label owners have different classes: give every owner classes = […] with all of them, in the "
                "same order"
            )
        return found

    @property
    def party_names(self) -> tuple[str, ...]:
        """Names of all parties, in order."""
        return tuple(card.name for card in self.party)

    @property
    def public_keys(self) -> dict[str, str]:
        """Party → its public signing key, hexadecimal."""
        return {card.name: card.public_key.hex for card in self.party}

    @property
    def owner_names(self) -> tuple[str, ...]:
        """Parties with labels, in order."""
        return tuple(card.name for card in self.party if card.role == ACTIVE)

    @property
    def passive_names(self) -> tuple[str, ...]:
        """Parties with features and no labels, in order."""
        return tuple(card.name for card in self.party if card.role == PASSIVE)

    @property
    def coordinator_name(self) -> str:
        """The party without a table; empty if there is none."""
        return next((card.name for card in self.party if card.role == COORDINATOR), "")

    @property
    def class_count(self) -> int:
        """Most classes of a label in the job; 1 for a number."""
        return max(
            card.table.class_count for name in self.owner_names if (card := self.card_of(name)).table is not None
        )

    def has_book(self, name: str) -> bool:
        """Whether a party's table comes with a label book."""
        table = self.card_of(name).table
        return table is not None and table.book

    def card_of(self, name: str) -> PartyCard:
        """A party's card.

        Raises:
            UnknownNameError: the proposal names no such party.
        """
        for card in self.party:
            if card.name == name:
                return card
        raise UnknownNameError("party of the agreement", name, self.party_names)

    def job_of(
        self,
        *,
        device: str = "cpu",
        pool: str = "local",
        policies: Mapping[str, Policy] | None = None,
        report: ReportOptions | None = None,
    ) -> Job:
        """The job, as one party runs it.

        Args:
            device: where this party trains; the agreement does not name one.
            pool: where this party encrypts and multiplies; likewise.
            policies: this party's name → its policy.
            report: what this party's own report decides with.

        Raises:
            InputError, PolicyError: the device does not exist, or parts of the job cannot be combined.
        """
        options = {name: getattr(self.job, name) for name in JobTerms.__struct_fields__}
        return Job(
            **options,
            algorithm=self.algorithm,
            protection=self.protection,
            align=self.align,
            link=self.link,
            leaving=self.limits.leaving,
            device=device,
            pool=pool,
            policies=dict(policies or {}),
            report=report or ReportOptions(),
        )

    @cached_property
    def signed_bytes(self) -> bytes:
        """The canonical bytes, which the parties sign."""
        return encode_tree(self.to_tree(), _HEADER)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `signed_bytes`, hexadecimal: what sessions, approvals and ledgers call the agreement."""
        return hashlib.sha256(self.signed_bytes).hexdigest()

    def to_tree(self) -> dict[str, Any]:
        """The content as plain values, in canonical order."""
        plain: dict[str, Any] = to_plain(self.describe())
        if self.serving is not None and not self.serving.reasons:
            del plain["serving"]["reasons"]  # agreements of before there were reasons keep their bytes
        if not self.start:
            del plain["start"]  # likewise
        return plain

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """A proposal from its bytes.

        Under an older protocol than this installation's newest, options may be missing that did not exist then: they
        have their default, which keeps what that protocol does, and the digest is that of the bytes as signed.

        Raises:
            InputError: the bytes are not the canonical form of their content: unknown or missing keys, values out of
                range, another order or spelling; one message lists as many mistakes as possible.
        """
        content = decode_tree(raw, _HEADER, "an agreement")
        values = {key: from_plain(value) if key in _DECIMALS else value for key, value in content.items()}
        found: list[str] = []
        listed = values.get("party")
        if isinstance(listed, list):
            values["party"] = [card for i, one in enumerate(listed) if (card := _read_card(one, i, found)) is not None]
        taken, mistakes = take_all(cls, values, "", plain=True)
        # Malformed cards are no longer in the list, so its length would be reported as a second mistake.
        found += [text for text in mistakes if not (found and text.startswith("party has"))]
        if found:
            raise Mistaken("the agreement", found)
        proposal = cls(**taken)
        if later := proposal.versions.later_options:
            as_signed = encode_tree(_drop_later_options(proposal.to_tree(), content, later), _HEADER)
            if as_signed == raw:
                proposal.__dict__["signed_bytes"] = raw  # what `cached_property` would compute lists later options
                return proposal
        if proposal.signed_bytes != raw:
            raise InputError(
                "the agreement's content is valid, but not in the canonical form that the parties sign: line "
                f"{_first_difference(proposal.signed_bytes, raw)} differs; use the file exactly as `securevfl propose` "
                "wrote it"
            )
        return proposal


def _drop_later_options(tree: Any, signed: object, later: frozenset[str], path: str = "") -> Any:
    """The tree without the later options that the signed content lacks. It was read from that content, so they are at
    their defaults.
    """
    if isinstance(tree, dict) and isinstance(signed, dict):
        return {
            key: _drop_later_options(value, signed.get(key), later, f"{path}{key}.")
            for key, value in tree.items()
            if key in signed or f"{path}{key}" not in later
        }
    if isinstance(tree, list) and isinstance(signed, list) and len(tree) == len(signed):
        return [_drop_later_options(one, other, later, path) for one, other in zip(tree, signed, strict=True)]
    return tree


def _find_lookalikes(names: Sequence[str]) -> tuple[str, str] | None:
    """Find two names that a reader could confuse, such as ``bank1`` and ``bankl``; None if there are none."""
    seen: dict[str, str] = {}
    for name in sorted(set(names)):
        shape = name.replace("rn", "m").replace("vv", "w").translate(_CONFUSED)
        if shape in seen:
            return seen[shape], name
        seen[shape] = name
    return None


def _read_card(tree: object, place: int, found: list[str]) -> PartyCard | None:
    """Read the card at a position of the list. If it is malformed, add its mistakes to `found` and return None."""
    try:
        return PartyCard.of_tree(tree, f"party[{place}]")
    except Mistaken as error:
        found += error.at_path(f"party[{place}]")
    return None


def _first_difference(expected: bytes, found: bytes) -> int:
    """The number of the first line that differs, from 1."""
    one, other = expected.split(b"\n"), found.split(b"\n")
    pairs = enumerate(zip(one, other, strict=False), 1)
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)) + 1)

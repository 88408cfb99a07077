"""Draft a party's own file from its table and the cards of the others, and say what does not fit before anybody
proposes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from securevfl_net.identity.certificate import format_time

from securevfl.agreement.cards import PartyCard, TableSchema
from securevfl.align.result import RULES
from securevfl.data.table import explain_bad_name
from securevfl.errors import InputError
from securevfl.jobfile.column_words import has_id_name
from securevfl.jobfile.draft_tables import DraftTable, find_labels, guess_label, guess_own_ids, read_draft_table
from securevfl.jobfile.drafting import Draft, describe_table, format_table
from securevfl.jobfile.fill_in import FILL_IN
from securevfl.jobfile.joining import counts_rows
from securevfl.jobfile.named_columns import assign_columns
from securevfl.jobfile.toml_text import quote_text
from securevfl.transport import ACTIVE

__all__ = ["PartyDraft", "draft_party"]

_MOST_IDS = 16
_SEALED = ("bfv", "ckks", "paillier", "shares")
"""Protections under which no column is sent in the clear."""
_SHOWN = 5


@dataclass(frozen=True)
class PartyDraft(Draft):
    """A drafted party file.

    Attributes:
        party: whose it is.
        notes: what to know before it is used: columns that both have, what the card says of the peers.
    """

    party: str = ""
    notes: tuple[str, ...] = ()


def draft_party(
    path: str | Path,
    cards: Sequence[PartyCard],
    folder: Path,
    *,
    now: datetime,
    name: str = "",
    id: Sequence[str] = (),
    label: Sequence[str] = (),
) -> PartyDraft:
    """Draft a party's own file that matches the other parties' cards: as many identifier columns as theirs, a label
    only if none of them has one, and a policy that accepts only protections under which no column is sent.

    Args:
        path: the party's table.
        cards: of the other parties.
        folder: where the file will be.
        now: the time, in UTC.
        name: the party's; by default the table's.
        id: the identifier columns, in the order of the peers'; guessed unless given.
        label: the label's columns; guessed unless given, where no card has a label.

    Raises:
        InputError: what can never fit: one name for two parties, labels at two, certificates that have ended, rules for
            identifiers of another release, or another number of identifier columns.
    """
    one = read_draft_table(Path(path), 0)
    one.name = name or one.name
    _refuse_misfits(one.name, cards, now)
    owner = next((card for card in cards if card.role == ACTIVE), None)
    if owner is not None and owner.table is not None and label:
        raise InputError(
            f"--label {label[0]}: {owner.name!r} has the label already ({owner.table.label!r}), and one party has "
            "labels: leave --label out"
        )
    missing = _choose_ids(one, _count_id_columns(cards), tuple(id))
    if owner is None:
        find_labels([one], tuple(label)) if label else guess_label([one])
        missing += [one.offered] if one.offered else []
    schemas = [card.table for card in cards if card.table is not None]
    one.barred = {
        schema.label: "called as a peer's label is"
        for schema in schemas
        if schema.label is not None and schema.label in one.columns and schema.label not in one.ids
    }
    text = _format_file(one, cards, folder)
    if owner is not None:
        missing += [f"where {card.name} listens, host:port, in [peer.{card.name}]" for card in cards]
    return PartyDraft(
        text=text,
        found=(describe_table(one),),
        missing=tuple(missing),
        party=one.name,
        notes=tuple(_describe_fit(one, cards)),
    )


def _refuse_misfits(name: str, cards: Sequence[PartyCard], now: datetime) -> None:
    """Raise if the parties can never agree."""
    found = [rule] if (rule := explain_bad_name(name)) else []
    names = [name, *(card.name for card in cards)]
    doubled = next((one for one in names if names.count(one) > 1), None)
    if doubled is not None:
        found.append(f"two parties are called {doubled!r}: give this one another name with --name")
    owners = [card.name for card in cards if card.role == ACTIVE]
    if len(owners) > 1:
        found.append(f"{' and '.join(owners)} both have labels; one party has: ask one of them for a card without")
    for card in cards:
        ends = [one.not_after for one in card.tls_certificates]
        if ends and max(ends) <= now:
            found.append(
                f"the certificate in the card of {card.name!r} ended at {format_time(max(ends))}, and it is "
                f"{format_time(now)}: ask {card.name} for a new card (securevfl certs rotate {card.name}, then "
                "securevfl card)"
            )
    counts = {card.name: _read_id_columns(card.table) for card in cards if card.table is not None}
    for card in cards:
        if card.table is not None and not counts[card.name]:
            found.append(
                f"{card.name!r} normalises identifiers by {card.table.identifiers!r}, this release by {RULES.tag()!r}: "
                "the same people would not be found; install the same release"
            )
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} at {name!r}" for name, count in counts.items())
        found.append(f"identifiers have different numbers of columns: {shown}; agree on one")
    if found:
        raise InputError("; ".join(found))


def _read_id_columns(schema: TableSchema) -> int:
    """How many columns make an identifier by a card; 0 if its rules are of another release."""
    tags = {replace(RULES, columns=count).tag(): count for count in range(1, _MOST_IDS + 1)}
    return tags.get(schema.identifiers, 0)


def _count_id_columns(cards: Sequence[PartyCard]) -> int:
    return max((_read_id_columns(card.table) for card in cards if card.table is not None), default=1)


def _choose_ids(one: DraftTable, count: int, given: tuple[str, ...]) -> list[str]:
    """Set the identifier's columns, or return what to ask the user."""
    if given:
        named = assign_columns(given, {one.name: one.columns}, "--id", everywhere=True)[one.name]
        if len(named) != count:
            raise InputError(
                f"--id names {len(named)} {'column' if len(named) == 1 else 'columns'} ({', '.join(named)}), and the "
                f"identifiers of the cards are of {count}: name as many, in the same order"
            )
        one.ids = named
        return []
    likely = guess_own_ids(one, count)
    if likely and (len(likely) == 1 or _leads(one, likely)):
        one.ids, one.id_reason = (likely[0],), "different in every row; the peers' identifiers are of one column, too"
        return []
    if count > 1:
        one.doubt = f"the peers' identifiers are of {count} columns: name as many, in their order"
    elif likely:
        one.doubt = f"perhaps {' or '.join(map(repr, likely[:_SHOWN]))}: each is different in every row"
    else:
        one.doubt = "no column is different in every row; drop duplicate rows"
    return [f"the identifier of {one.name!r}: {one.doubt}; name it with {' '.join(['--id COLUMN'] * count)}"]


def _leads(one: DraftTable, likely: Sequence[str]) -> bool:
    """Whether only the first of several candidates is called as identifiers are, and counts no rows."""
    named = [name for name in likely if has_id_name(name)]
    return len(named) == 1 and not counts_rows(one.table, named[0])


def _describe_fit(one: DraftTable, cards: Sequence[PartyCard]) -> list[str]:
    """What to know about the others' cards."""
    found = []
    for card in cards:
        if card.table is None:
            found.append(f"{card.name} computes and has no table")
            continue
        what = f"has the label {card.table.label!r}" if card.role == ACTIVE else "has no label"
        found.append(
            f"{card.name} {what}, {card.table.columns} columns, and identifiers of {_read_id_columns(card.table)} "
            f"{'column' if _read_id_columns(card.table) == 1 else 'columns'}, compared so: {RULES.describe()}"
        )
        shown = [names for names in (card.table.numbers, card.table.categories) if isinstance(names, tuple)]
        both = sorted({name for names in shown for name in names} & set(one.columns) - set(one.ids))
        if both:
            more = ", …" if len(both) > _SHOWN else ""
            found.append(
                f"columns that {card.name} has by the same names: {', '.join(both[:_SHOWN])}{more}; if they have the "
                "same content, drop them here: the model gains nothing from them"
            )
    return found + [f"column {name!r} is left out: it is {why}" for name, why in one.barred.items()]


def _format_file(one: DraftTable, cards: Sequence[PartyCard], folder: Path) -> str:
    name, active = one.name, bool(one.label or one.offered)
    lines = [
        "# Drafted by `securevfl init --card` from a table and the others' cards. It stays here: no peer sees it.",
        f"#   securevfl keys {name}           makes the signing key",
        f"#   securevfl certs new {name}      makes the certificate",
        f"#   securevfl check {name}.toml     lists what is wrong",
        f"#   securevfl card {name}.toml      writes the card that the proposer needs",
        f"party = {quote_text(name)}",
        *(['listen = "0.0.0.0:7443"   # where the others dial; the port must be open to them'] * active),
        "",
        "[data]",
        *format_table(one, folder),
        "",
        "[keys]",
        *(f'{key} = "{path.format(name)}"' for key, path in _KEYS.items()),
        "",
    ]
    lines += [
        "[policy]",
        f"protections = [{', '.join(map(quote_text, _SEALED))}]   # a job without one of these is refused",
        "",
    ]
    for card in cards:
        dialled = f'dial = "{FILL_IN}"   # where {card.name} listens, "host:port"'
        lines += [
            f"[peer.{card.name}]",
            "listen = true" if active else dialled,
            f'# signed_by = "{card.public_key.fingerprint}"   # by its card: have {card.name} read it to you',
            "",
        ]
    return "\n".join(lines)


_KEYS = {"signing": "keys/{}.key", "certificate": "certs/{}.crt", "key": "certs/{}.key"}
"""Where `securevfl keys` and `securevfl certs` put them."""

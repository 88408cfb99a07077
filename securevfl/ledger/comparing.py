"""Compare verified chains: a party's chains with each other, with its peers' chains and with known keys.

Every check compares signed lines from two places that agree after an honest run, and names the place that differs. If
two parties' signed heads contradict each other and nothing decides between them, it names both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from securevfl.errors import AuditError
from securevfl.ledger.keys import PublicSigningKey
from securevfl.ledger.lines import AGREEMENT, Entry, word_bytes
from securevfl.ledger.reading import Flaw, Located, raise_flaws
from securevfl.ledger.readmission import excused_attempts
from securevfl.ledger.verifying import LedgerChain, chains_of

__all__ = ["describe_missing", "find_pin_mismatches", "verify_chains", "verify_files"]

DONE = "done"


def verify_files(
    files: Mapping[str, Iterable[Located]], pins: Mapping[str, str] | None = None, *, from_first: bool = True
) -> list[LedgerChain]:
    """Verify the chains in these files and compare them. A chain without a closing line is not an error here; see
    `incomplete`.

    Args:
        files: name → its lines.
        pins: party → fingerprint of the key that must have signed its chains.
        from_first: whether each party's first chain must be included.

    Raises:
        AuditError: something does not verify or agree; lists every flaw with file, line and party.
    """
    chains: list[LedgerChain] = []
    flaws: list[Flaw] = []
    for where, lines in files.items():
        found, loose = chains_of(lines, where)
        flaws += [*loose, *(flaw for chain in found for flaw in chain.flaws)]
        chains += found
    known = pins or {}
    raise_flaws([*flaws, *find_pin_mismatches(chains, known)] if flaws else _compare_chains(chains, known, from_first))
    return chains


def verify_chains(lines: Iterable[Located], where: str = "ledger") -> list[LedgerChain]:
    """Verify complete chains, of one or several parties and runs, and compare them.

    Raises:
        AuditError: something does not verify or agree, or a chain has no closing line.
    """
    chains = verify_files({where: lines}, from_first=False)
    cut = [
        Flaw(chain.file, chain.last, chain.party, f"the chain of run {chain.run!r} was cut off: no closing line")
        for chain in chains
        if not chain.is_closed
    ]
    raise_flaws(cut)
    return chains


def _compare_chains(chains: Sequence[LedgerChain], pins: Mapping[str, str], from_first: bool) -> Iterator[Flaw]:
    """Yield a flaw for each disagreement among chains that verify separately."""
    by_name: dict[tuple[str, str], LedgerChain] = {}
    for chain in chains:
        first = by_name.setdefault((chain.run, chain.party), chain)
        if first is not chain and _repeats(first, chain, chains):
            by_name[chain.run, chain.party] = chain
        elif first is not chain:
            yield _chain_flaw(
                chain, f"a second chain of run {chain.run!r}; the first begins at {first.file}:{first.first}"
            )
    yield from find_pin_mismatches(chains, pins)
    yield from _check_own_chains(chains, from_first)
    yield from _check_jobs(by_name)
    excused = _find_excused(chains)
    for chain in chains:
        if chain.attempt in excused.get(chain.party, ()) and not chain.is_closed:
            chain.lost_end = True
    parties = {chain.party for chain in chains}
    for chain in by_name.values():
        yield from _find_removed(chain, by_name, {one for one in parties if chain.attempt not in excused.get(one, ())})
        yield from _check_rosters(chain, by_name)
        yield from _check_heads(chain, by_name, excused)
    for chain in by_name.values():
        for peer in sorted({entry.peer for entry in chain.entries}):
            other = by_name.get((chain.run, peer))
            if other is not None:
                yield from _compare_messages(chain, other)


def _find_excused(chains: Sequence[LedgerChain]) -> dict[str, range]:
    """Party → attempts of which its ledger may lack lines: its folder was restored, and all its peers signed that they
    admit it again.
    """
    found = {}
    for party in {chain.party for chain in chains}:
        own = [chain for chain in chains if chain.party == party]
        notes = [note for chain in own for note in chain.notes]
        # Peers' ledgers count too: the party's own could leave out the peers that did not admit it.
        others = [chain for chain in chains if chain.party != party and _has_met(chain, party)]
        keys = {name: peer.key for chain in own for name, peer in chain.peers.items()}
        keys |= {chain.party: chain.opening.key for chain in others}
        attempts = excused_attempts(
            party,
            notes,
            {name: PublicSigningKey.from_hex(key) for name, key in keys.items()},
            _find_agreements(others or own),
        )
        if attempts is not None:
            found[party] = range(attempts[0], attempts[1] + 1)
    return found


def _has_met(chain: LedgerChain, party: str) -> bool:
    return party in chain.peers or any(entry.peer == party for entry in chain.entries)


def _find_agreements(chains: Sequence[LedgerChain]) -> set[str]:
    """The agreements that the chains of each of their parties name; a party whose chains name none is left out."""
    named: dict[str, set[str]] = {}
    for chain in chains:
        for note in chain.notes:
            if note.note == AGREEMENT:
                named.setdefault(chain.party, set()).add(str(note.values.get("agreement")))
    return set.intersection(*named.values()) if named else set()


def _repeats(first: LedgerChain, chain: LedgerChain, chains: Sequence[LedgerChain]) -> bool:
    """Return True for a second chain that binds a party's own results: its process was killed, or it took part in
    another attempt, after the first. Such chains have no messages, and peers never attest them.
    """
    own = any(other.party == chain.party and other.attempt for other in chains)
    return own and not any((first.entries, chain.entries, first.attempt, chain.attempt))


def _chain_flaw(chain: LedgerChain, text: str, line: int = 0) -> Flaw:
    return Flaw(chain.file, line or chain.first, chain.party, text)


def _check_own_chains(chains: Sequence[LedgerChain], from_first: bool) -> Iterator[Flaw]:
    """Check one party's chains: one key, in order, none missing."""
    parties: dict[str, list[LedgerChain]] = {}
    for chain in chains:
        parties.setdefault(chain.party, []).append(chain)
    for own in parties.values():
        first = own[0]
        for before, chain in zip([None, *own], own, strict=False):
            if chain.opening.key != first.opening.key:
                yield _chain_flaw(
                    chain,
                    f"run {chain.run!r} is signed with {chain.key.fingerprint}, run {first.run!r} (line {first.first}) "
                    f"with {first.key.fingerprint}: a party has one key",
                )
            expected = "" if before is None else before.head
            if chain.opening.after != expected and (before is not None or from_first):
                says = (
                    f"names {chain.opening.after[:16]}… as the line before it"
                    if chain.opening.after
                    else "claims to be the party's first"
                )
                there = f"ends with {expected[:16]}… (line {before.last})" if before else "is missing"
                yield _chain_flaw(
                    chain, f"run {chain.run!r} {says}; the run before it {there}: a run was removed or added"
                )
            if before is not None and chain.opening.time < before.opening.time:
                yield _chain_flaw(
                    chain, f"run {chain.run!r} began before run {before.run!r}, which precedes it in the file"
                )
            if before is not None and before.attempt and chain.attempt and chain.attempt <= before.attempt:
                yield _chain_flaw(chain, f"attempt {chain.attempt} comes after attempt {before.attempt}")
            if chain.between_attempts and chain.entries:
                yield _chain_flaw(chain, f"run {chain.run!r} belongs to no attempt but contains messages")
            if chain.run not in chain.opening.runs:
                yield _chain_flaw(chain, f"run {chain.run!r} is not among the runs that its opening line expects")
            elif chain.run not in first.opening.runs and not chain.attempt and not chain.between_attempts:
                yield _chain_flaw(
                    chain,
                    f"run {chain.run!r} is not among the runs that the party expected when run {first.run!r} began",
                )


def _check_jobs(by_name: Mapping[tuple[str, str], LedgerChain]) -> Iterator[Flaw]:
    first: dict[str, LedgerChain] = {}
    for (run, _), chain in by_name.items():
        known = first.setdefault(run, chain)
        if known.opening.job != chain.opening.job:
            yield _chain_flaw(
                chain,
                f"run {run!r}: {known.party!r} ran job {known.opening.job[:16]}… ({known.file}:{known.first}), "
                f"{chain.party!r} ran job {chain.opening.job[:16]}…",
            )


def _find_removed(
    chain: LedgerChain, by_name: Mapping[tuple[str, str], LedgerChain], parties: Collection[str]
) -> Iterator[Flaw]:
    """Find parties whose ledgers lack an attempt from which this party received messages, and peers with another view
    of the attempt. A party writes the attempt line to disk before it sends anything, so an honest ledger has it.
    """
    if not chain.attempt:
        return
    for name in sorted(parties):
        if (chain.run, name) in by_name:
            continue
        got = _messages_with(chain, "received", name)
        if got:
            yield _chain_flaw(
                chain,
                f"received a message from {name!r} in attempt {chain.attempt}, but {name!r}'s ledger has no "
                "chain of it: it was removed",
                got[0][0],
            )
    for (run, _), peer in by_name.items():
        # Without an attempt line the party was stopped before it sent anything of the attempt.
        if run == chain.run and peer.view != chain.view and (peer.attempt or peer.entries):
            there = f"{peer.party!r} ({peer.file}:{peer.first}) recorded view {peer.view[:16]}…"
            yield _chain_flaw(chain, f"attempt {chain.attempt} has view {chain.view[:16]}…, {there}")


def _check_rosters(chain: LedgerChain, by_name: Mapping[tuple[str, str], LedgerChain]) -> Iterator[Flaw]:
    """Check that the keys, sessions and roles that a party received match its peers' chains."""
    for name, peer in chain.peers.items():
        other = by_name.get((chain.run, name))
        if other is None:
            continue
        heard = f"{chain.party!r} received when the run began ({chain.file}:{chain.peers_at})"
        mine = other.opening
        if peer.key != mine.key:
            told = PublicSigningKey.from_hex(peer.key).fingerprint if len(peer.key) == 64 else peer.key
            yield _chain_flaw(other, f"the chain is signed with {other.key.fingerprint}; {heard} {told}")
        elif peer.session != mine.session:
            yield _chain_flaw(
                other,
                f"the chain has session {mine.session[:16]}…; {heard} {peer.session[:16]}…: another run's chain",
            )
        elif peer.role != mine.role:
            yield _chain_flaw(other, f"the chain's role is {mine.role!r}; {heard} {peer.role!r}")


def _check_heads(
    chain: LedgerChain, by_name: Mapping[tuple[str, str], LedgerChain], excused: Mapping[str, range]
) -> Iterator[Flaw]:
    """Check that the peers' signed heads in the party's lines match the peers' chains."""
    if chain.outcome == DONE:
        for name in chain.peers.keys() - chain.words.keys():
            yield _chain_flaw(chain, f"the closing line lacks {name!r}'s signed head of its ledger", chain.last)
    every = [(at, name, word, False) for at, name, word in chain.settled]
    every += [(chain.last, name, word, True) for name, word in chain.words.items()]
    for at, name, word, last in every:
        known = chain.peers.get(name)
        if known is None:
            yield _chain_flaw(chain, f"the line contains a signed head of {name!r}, which is not one of its peers", at)
            continue
        content = word_bytes(name, chain.run, known.session, chain.opening.job, word.head, word.messages)
        try:
            PublicSigningKey.from_hex(known.key).verify(*content, word.signature)
        except AuditError as error:
            yield _chain_flaw(chain, f"{name!r}'s signed head does not verify: {error}", at)
            continue
        other = by_name.get((chain.run, name))
        given = (word.head, word.messages)
        if other is None or other.opening.key != known.key:
            continue
        # A chain from a back-up ends before the head, and is never closed.
        ends_before = other.lost_end and other.head_sent is None and word.messages >= len(other.entries)
        if ends_before and other.attempt in excused.get(name, ()):
            continue
        # The head is synced before it is sent, and the line which records that it was sent may be lost.
        cut = other.lost_end and other.head_sent is None and given == (other.head, len(other.entries))
        if (given != other.head_sent and not cut) if last else given not in other.marks:
            held = f"{chain.party!r} recorded its signed head ({chain.file}:{at}):"
            ends = (
                "the chain ends before it sent the head, or has another line there"
                if other.head_sent is None or not last
                else f"after {other.head_sent[1]} messages the chain was at {other.head_sent[0][:16]}…"
            )
            text = f"{held} {word.head[:16]}… after {word.messages} messages; {ends}: it was rewritten"
            yield _chain_flaw(other, f"{text} or cut off afterwards", other.last)


def _compare_messages(chain: LedgerChain, other: LedgerChain) -> Iterator[Flaw]:
    """Check that what `other` received is what `chain` sent, in the same order.

    A sender records a message before it leaves, so its ledger contains everything that arrived, however the run ended.
    """
    sent, got = _messages_with(chain, "sent", other.party), _messages_with(other, "received", chain.party)
    for (at, mine), (there, theirs) in zip(sent, got, strict=False):
        if _message_fields(mine) != _message_fields(theirs):
            fields = ", ".join(
                f"{name} {a!r:.60} and {b!r:.60}"
                for name, a, b in zip(_FIELDS, _message_fields(mine), _message_fields(theirs), strict=True)
                if a != b
            )
            yield _chain_flaw(
                chain,
                f"message {mine.what!r} to {other.party!r}, whose ledger ({other.file}:{there}) records a "
                f"different message; they differ in {fields}",
                at,
            )
            return
    if len(got) > len(sent) and not chain.lost_end:
        at, extra = got[len(sent)]
        yield _chain_flaw(
            other,
            f"received {extra.what!r} from {chain.party!r}, whose ledger ({chain.file}:{chain.last}) has {len(sent)} "
            f"messages sent to {other.party!r} and not {len(got)}",
            at,
        )
    # A sent message may be lost with a failed run; only two successful ends make a missing receipt a flaw.
    elif len(sent) > len(got) and chain.outcome == other.outcome == DONE:
        at, extra = sent[len(got)]
        yield _chain_flaw(
            chain,
            f"sent {extra.what!r} to {other.party!r}, whose ledger ({other.file}:{other.last}) has {len(got)} messages "
            f"received from {chain.party!r} and not {len(sent)}",
            at,
        )


def _messages_with(chain: LedgerChain, way: str, peer: str) -> list[tuple[int, Entry]]:
    """Return the chain's messages to or from one peer, each with its line number."""
    return [(at, e) for at, e in zip(chain.at, chain.entries, strict=True) if (e.way, e.peer) == (way, peer)]


_FIELDS = ("kind", "what", "shapes", "bytes", "digest", "cipher", "bits", "key", "noise")


def _message_fields(entry: Entry) -> tuple[object, ...]:
    return tuple(getattr(entry, name) for name in _FIELDS)


def find_pin_mismatches(chains: Sequence[LedgerChain], pins: Mapping[str, str]) -> Iterator[Flaw]:
    """Yield a flaw for each chain that is not signed with its pinned key.

    Args:
        chains: of a folder.
        pins: party → fingerprint.
    """
    for chain in chains:
        pin = pins.get(chain.party)
        if pin is not None and chain.key.fingerprint != pin:
            yield _chain_flaw(chain, f"the chain is signed with {chain.key.fingerprint}; {pin} was pinned")


def describe_missing(chains: Sequence[LedgerChain], left: Collection[str] = ()) -> list[str]:
    """Describe what is missing: closing lines, or runs that opening lines expect.

    Args:
        chains: of all parties.
        left: parties that left the job for good, as all others signed: nothing needs to follow their last line.

    A killed process leaves such ledgers, and so does somebody who truncates or deletes files; ledgers cannot
    distinguish the two.
    """
    found = [
        f"{chain.file}:{chain.last}: {chain.party!r}'s chain of run {chain.run!r} ends here without a closing line"
        + (", in the middle of the next line" if chain.torn else "")
        + (f"; signed up to line {chain.signed}" if chain.signed < chain.last else "")
        for chain in chains
        if not chain.is_closed and not chain.broke_off and chain.party not in left
    ]
    found += [
        f"{chain.file}:{chain.last}: a part of a line follows {chain.party!r}'s closing line: its process was stopped "
        "when it began another chain, or the rest was removed"
        for chain in chains
        if chain.is_closed and chain.torn
    ]
    found += _describe_lost_ends(chains)
    found += [
        f"{party!r}'s state folder was restored from a back-up, and its peers admitted it again: its ledger may lack "
        f"lines of attempts {attempts[0]} to {attempts[-1]}, which it counts as whole runs"
        for party, attempts in sorted(_find_excused(chains).items())
        if attempts
    ]
    found += [
        f"{chain.file}:{chain.last}: {chain.party!r}'s run {chain.run!r} ended with {chain.outcome!r:.60} after "
        "it sent its peers its signed head, and they succeeded: it failed at the very end, or the line was "
        "written later"
        for chain in chains
        if chain.is_closed
        and chain.outcome != DONE
        and _is_believed(chain, chains)
        # A peer that lost its connection at the very end begins another attempt, which is no gap.
        and not any(later.party == chain.party and 0 < chain.attempt < later.attempt for later in chains)
    ]
    parties: dict[str, dict[str, LedgerChain]] = {}
    for chain in chains:
        parties.setdefault(chain.party, {})[chain.run] = chain
    every: dict[str, list[LedgerChain]] = {}
    for chain in chains:
        every.setdefault(chain.run, []).append(chain)
    for party, own in parties.items():
        # A last attempt that did not succeed is followed by another one, and not by what the party expected.
        last = ([chain for chain in own.values() if not chain.between_attempts] or list(own.values()))[-1]
        over = not last.between_attempts and (not last.attempt or last.outcome == DONE)
        missing = [run for run in last.opening.runs if run not in own and over]
        ended = all(chain.outcome != DONE for chain in every[last.run])
        if missing and not (ended and not any(run in every for run in missing)):
            names = ", ".join(map(repr, missing))
            found.append(f"{last.file}:{last.last}: {party!r}'s ledger also expects run {names}, which is missing")
    return found


def _describe_lost_ends(chains: Sequence[LedgerChain]) -> Iterator[str]:
    """Messages that peers received, and that lie beyond the end of a chain which may have lost its last lines."""
    for chain in chains:
        for other in chains if chain.lost_end else ():
            if other.run != chain.run or other.party == chain.party:
                continue
            lost = len(_messages_with(other, "received", chain.party)) - len(_messages_with(chain, "sent", other.party))
            if lost > 0:
                yield (
                    f"{chain.file}:{chain.last}: {chain.party!r}'s chain of run {chain.run!r} ends here; "
                    f"{other.party!r} received {lost:,} more of its messages: the machine stopped before they were on "
                    "its disk, or lines were removed"
                )


def _is_believed(chain: LedgerChain, chains: Sequence[LedgerChain]) -> bool:
    """Return True if a peer that succeeded recorded the party's signed head of this chain."""
    return any(
        other.run == chain.run and other.outcome == DONE and chain.party in other.words
        for other in chains
        if other is not chain
    )

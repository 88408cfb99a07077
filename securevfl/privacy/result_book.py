"""The result book: how many numbers about each of its rows a party has answered, for each asker, for ever.

An *asker* is an organisation, a *number* one real value that depends on a row. The book is one file a party, for all
jobs, predictions and models that are served. Each batch is written and synced before anything of it leaves, so a
process that dies at any moment has counted at least what left. People appear as keyed digests; the key is in a file
beside the book, and without it the book names nobody.

Several processes of a party may share a book. Whoever counts holds a file lock from reading to writing, so two
processes cannot both pass a bound. Each line carries a keyed digest of itself and of all lines before it: a changed,
moved or removed line is found when the book is read. An older copy of the whole file is intact; only the running number
that peers keep shows it (see `securevfl.party.running_numbers`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from securevfl_net.durable import append_data, append_synced, lock_file, make_folder, sync_file, write_atomic

from securevfl.errors import InputError
from securevfl.ledger import PrivateKey
from securevfl.privacy import result_lines as lines
from securevfl.privacy.people_digests import PeopleIndex, digest_people, digest_people_singly
from securevfl.privacy.result_lines import Grant

__all__ = ["Grant", "ResultBook"]

_KEY_BYTES = 32
_RUNS = 64
"""Runs that a process can go on with after another one has compacted the file."""
_LARGE = 64 << 20
"""Bytes above which the file is replaced by one count a person and asker."""


@dataclass(repr=False)
class _Run:
    """A run of this book: who asks, and its people as positions in the book."""

    asker: str
    people: np.ndarray


@dataclass(repr=False)
class _Content:
    """What the file says, as far as it was read."""

    organisations: dict[str, str]
    end: int = 0
    chain: bytes = b""
    number: int = 0
    digests: lines.Digests = lines.NEWEST
    places: PeopleIndex = field(default_factory=PeopleIndex)
    lists: dict[str, np.ndarray] = field(default_factory=dict)
    runs: dict[str, _Run] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    losses: dict[str, np.ndarray] = field(default_factory=dict)
    noised: dict[str, np.ndarray] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)

    def name_asker(self, asker: str) -> str:
        """The organisation that a line's asker belongs to."""
        return self.organisations.get(asker, asker)

    def counts_of(self, asker: str) -> np.ndarray:
        """Numbers of each person in the book for this asker."""
        found = self.counts.get(asker)
        if found is None or len(found) < len(self.places):
            more = np.zeros(max(len(self.places) * 5 // 4, 16), np.int64)
            if found is not None:
                more[: len(found)] = found
            found = self.counts[asker] = more
        return found

    def losses_of(self, asker: str) -> np.ndarray:
        """Σ 1/σ² of each person's noisy releases for this asker."""
        found = self.losses.get(asker)
        if found is None or len(found) < len(self.places):
            more = np.zeros(max(len(self.places) * 5 // 4, 16))
            if found is not None:
                more[: len(found)] = found
            found = self.losses[asker] = more
        return found

    def _take_noise(self, line: lines.Noised) -> None:
        run = self.runs[line.run]
        rows = lines.unpack_rows(line.rows) if line.rows else self.noised[line.run]
        self.noised[line.run] = rows
        # A person with several rows pays for each.
        np.add.at(self.losses_of(run.asker), run.people[rows], line.loss)

    def take(self, line: lines.Line, digests: np.ndarray | None = None) -> None:
        """Take one line in.

        Args:
            line: the line.
            digests: of a line of people, where they are known.

        Raises:
            ValueError: it contradicts the lines before it, or itself.
            KeyError, IndexError: it names a run, a list or a row that no earlier line has.
        """
        if isinstance(line, lines.People):
            people = lines.unpack_people(line.digests) if digests is None else digests
            self.lists[line.people] = self.places.place(people)
        elif isinstance(line, lines.Begun):
            self.runs[line.run] = _Run(self.name_asker(line.asker), self.lists[line.people])
        elif isinstance(line, lines.Answered):
            run, rows = self.runs[line.run], lines.unpack_rows(line.rows)
            people = run.people[rows]
            np.add.at(self.counts_of(run.asker), people, line.numbers)
            self.running[run.asker] = self.running.get(run.asker, 0) + len(rows) * line.numbers
        elif isinstance(line, lines.Noised):
            self._take_noise(line)
        elif isinstance(line, lines.Total):
            people, numbers = self.lists[line.people], lines.unpack_counts(line.numbers)
            if len(people) != len(numbers):
                raise ValueError(f"{len(numbers)} counts of {len(people)} people")
            asker = self.name_asker(line.asker)
            np.add.at(self.counts_of(asker), people, numbers)
            self.running[asker] = self.running.get(asker, 0) + line.running
            if line.losses:
                losses = lines.unpack_losses(line.losses)
                if len(people) != len(losses):
                    raise ValueError(f"{len(losses)} losses of {len(people)} people")
                np.add.at(self.losses_of(asker), people, losses)
        elif isinstance(line, lines.Metrics):
            asker = self.name_asker(line.asker)
            self.metrics[asker] = self.metrics.get(asker, 0) + line.sets
        elif isinstance(line, Grant):
            self.grants[line.grant] = line
        elif self.number:
            raise ValueError("a second first line")
        else:
            self.digests = line.digests


class ResultBook:
    """One party's book. Without a path nothing is kept, and each run counts separately.

    Args:
        path: of the file; it, its key and its lock are made when the first row is counted.
        party: whose it is; a book of another party is refused.
        key: the party's signing key: signs grants, and only grants that it signed count. Without it every grant counts.

        organisations: party → its organisation: numbers that were counted for the party's name before its organisation
            was entered belong to the organisation.

    Raises:
        InputError: the file is damaged, or another party's, so that what was answered is unknown.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        party: str = "",
        key: PrivateKey | None = None,
        organisations: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.party = party
        self._signing = key
        self._organisations = dict(organisations or {})
        self._secret: bytes | None = None
        self._read = _Content(self._organisations)
        self._mine: dict[str, tuple[str, str, np.ndarray]] = {}
        self._verified: dict[Grant, bool] = {}
        self._digested: tuple[Sequence[str], str, np.ndarray] | None = None
        self._held = 0
        self._counted: dict[str, int] = {}
        self._identity: tuple[int, int] | None = None
        self._compact_above = _LARGE
        if path is not None and path.exists():
            with self.locked():
                pass

    # Reading.

    @property
    def version(self) -> object:
        """Changes with each line that is written. Call it while the book is locked."""
        return self._identity, self._read.number

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the book during the block: no other process counts, and what others counted before has been read.

        Raises:
            InputError: the file is damaged, or cannot be locked.
        """
        if self.path is None or self._held:
            yield
            return
        if self._identity is None:
            make_folder(self.path.parent)
        with lock_file(self.path.with_suffix(".lock")):
            self._held += 1
            try:
                self._read_file(self.path)
                yield
            finally:
                self._held -= 1

    def count_opened(self, names: Sequence[str], asker: str) -> np.ndarray:
        """How many numbers about each of these rows the asker was answered so far, (n,) int64."""
        if self.path is None or not len(names):
            return np.zeros(len(names), np.int64)
        with self.locked():
            if asker not in self._read.counts:
                return np.zeros(len(names), np.int64)
            at, counts = self._find_people(names), self._read.counts_of(asker)
            return np.where(at < 0, 0, counts[at])

    def noise_spent(self, names: Sequence[str], asker: str) -> np.ndarray:
        """Σ 1/σ² of the noisy releases of each of these rows for the asker so far, (n,) float64, σ being the noise
        multiplier of each. ε of all of them follows from it; see `securevfl.privacy.epsilon_budget`."""
        if self.path is None or not len(names):
            return np.zeros(len(names))
        with self.locked():
            if asker not in self._read.losses:
                return np.zeros(len(names))
            at, losses = self._find_people(names), self._read.losses_of(asker)
            return np.where(at < 0, 0.0, losses[at])

    def running(self, asker: str) -> int:
        """Numbers ever counted for an asker, over all rows. It never falls."""
        with self.locked():
            return self._read.running.get(asker, 0)

    def metric_sets(self, asker: str) -> int:
        """Sets of metrics that were opened to an asker, over all jobs."""
        with self.locked():
            return self._read.metrics.get(asker, 0)

    @property
    def askers(self) -> list[str]:
        """The organisations that numbers were counted for, sorted."""
        with self.locked():
            return sorted(self._read.running)

    def count_people(self, asker: str) -> np.ndarray:
        """How many numbers the asker was answered about each person that it was asked about, (people,) int64."""
        with self.locked():
            counts = self._read.counts_of(asker) if asker in self._read.counts else np.zeros(0, np.int64)
            return counts[counts > 0]

    # Counting.

    def begin_run(self, names: Sequence[str], asker: str) -> str:
        """Record the people of a run and who asks; `add` then counts its rows by position.

        Returns:
            The run's identifier, for `add`: that of the last run of the same people and asker, if this process began
            one.
        """
        if self.path is None:
            return os.urandom(8).hex()
        with self.locked():
            digests = self.digest_names(names)
            people = lines.name_people(digests)
            for run, (who, listed, known) in self._mine.items():
                if listed == people:
                    digests = known  # one copy in memory
                    if who == asker:
                        self._need_run(run)
                        return run
            run = os.urandom(8).hex()
            self._mine[run] = (asker, people, digests)
            if len(self._mine) > _RUNS:
                del self._mine[next(iter(self._mine))]
            self._begin(run)
        return run

    def add(self, run: str, places: np.ndarray, numbers: int, *, synced: bool = True) -> None:
        """Count `numbers` for each of these rows (n,), given by position. The line is on disk when this returns.

        Args:
            run: of `begin_run`.
            places: positions.
            numbers: of each.
            synced: False leaves the line to a later `sync`, before which nothing of these rows may leave.

        Raises:
            OSError: the line could not be written; nothing may leave then.
        """
        if self.path is None or not len(places):
            return
        with self.locked():
            self._need_run(run)
            self._append(lines.Answered(run=run, rows=lines.pack_rows(places), numbers=numbers), synced=synced)
            if self._read.end > self._compact_above:
                self._compact(self.path)

    def sync(self) -> None:
        """Return once all lines are on the disk; another thread may call it.

        Raises:
            OSError: the disk failed: nothing may leave.
        """
        if self.path is not None and self.path.exists():
            sync_file(self.path)

    def add_metrics(self, asker: str) -> None:
        """Count one set of metrics for an asker. The line is on disk when this returns.

        Raises:
            OSError: the line could not be written; nothing may be opened then.
        """
        if self.path is not None:
            with self.locked():
                self._append(lines.Metrics(asker=asker, sets=1))

    def add_noise(self, run: str, places: np.ndarray, loss: float) -> None:
        """Count noisy releases of these rows (n,), given by position. The line is on disk when this returns.

        Args:
            run: of `begin_run`.
            places: positions, each once.
            loss: Σ 1/σ² of the releases of each of these rows.

        Raises:
            OSError: the line could not be written; nothing may leave then.
        """
        if self.path is None or not len(places):
            return
        with self.locked():
            self._need_run(run)
            again = np.array_equal(self._read.noised.get(run, np.empty(0)), places)
            rows = "" if again else lines.pack_rows(places)
            self._append(lines.Noised(run=run, rows=rows, loss=float(loss)))

    def _find_people(self, names: Sequence[str]) -> np.ndarray:
        """Positions of these people in the book, −1 for new ones."""
        return self._read.places.find(self.digest_names(names))

    def _need_run(self, run: str) -> None:
        """Begin a run again if another process has compacted the file since; the ones used last are kept in memory."""
        if run in self._mine:
            self._mine[run] = self._mine.pop(run)
        if run not in self._read.runs:
            self._begin(run)

    def _begin(self, run: str) -> None:
        if run not in self._mine:
            raise InputError(f"run {run} began before {_RUNS} others, and is no longer in {self.path}: begin it again")
        asker, people, digests = self._mine[run]
        known = people in self._read.lists
        listed = [] if known else [lines.People(people=people, digests=lines.pack_people(digests))]
        self._append(*listed, lines.Begun(run=run, asker=asker, people=people), digests=digests)

    # Grants.

    def add_grant(self, asker: str, *, results: int, reason: str, until: int, by: str) -> Grant:
        """Write down that a person allows an asker `results` more numbers of each row.

        Args:
            asker: the organisation.
            results: how many.
            reason: why, for the record.
            until: when it ends, seconds since 1970, UTC.
            by: the person.

        Raises:
            InputError: no such number, no reason, or a book that is not kept.
        """
        if self.path is None:
            raise InputError("a grant needs a book that is kept in a file")
        if not 1 <= results <= lines.MOST:
            raise InputError(f"a grant of {results} numbers of each row: give 1 to {lines.MOST}")
        for what, text in (("asker", asker), ("reason", reason), ("by", by)):
            if not text.strip() or not text.isprintable() or len(text) > 1000:
                raise InputError(f"a grant needs {what}, one line of text of up to 1000 characters: {text!r:.80}")
        grant = Grant(
            grant=os.urandom(8).hex(), asker=asker, results=results, reason=reason, until=until, by=by, signature=""
        )
        if self._signing is not None:
            grant = grant.signed_by(self._signing, self.party)
        with self.locked():
            self._append(grant)
        return grant

    def grants(self, asker: str) -> list[Grant]:
        """The grants that count for an asker, expired ones too, in the order in which they were given."""
        with self.locked():
            mine = [grant for grant in self._read.grants.values() if self._read.name_asker(grant.asker) == asker]
        key = self._signing
        if key is None:
            return mine
        for grant in mine:
            if grant not in self._verified:
                self._verified[grant] = grant.is_signed(key.public_key, self.party)
        return [grant for grant in mine if self._verified[grant]]

    @property
    def grantees(self) -> list[str]:
        """The organisations that some line grants more, sorted."""
        with self.locked():
            return sorted({self._read.name_asker(grant.asker) for grant in self._read.grants.values()})

    def granted(self, asker: str, now: float) -> int:
        """Numbers of each row that grants add to the bound for an asker at `now`, seconds since 1970, UTC."""
        return sum(grant.results for grant in self.grants(asker) if now < grant.until)

    # The file.

    def digest_names(self, names: Sequence[str]) -> np.ndarray:
        """Digests of these people, uint8 (n, 12). Those of the last names are kept: a run asks again for each batch.
        Without a file the key is zeros, and the digests tell only which names are equal.
        """
        kind = self._read.digests
        if self._digested is None or self._digested[0] is not names or self._digested[1] != kind:
            digest = digest_people if kind == lines.NEWEST else digest_people_singly
            self._digested = (names, kind, digest(names, self._read_secret()))
        return self._digested[2]

    def _read_secret(self) -> bytes:
        if self._secret is not None or self.path is None:
            return self._secret or bytes(_KEY_BYTES)
        path = self.path.with_suffix(".key")
        if not path.exists():
            if self.path.exists() and self.path.stat().st_size:
                raise InputError(f"{path} is missing: without this key {self.path} cannot be read; restore it")
            make_folder(path.parent)
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        secret = path.read_bytes()
        if len(secret) != _KEY_BYTES:
            raise InputError(f"{path} has {len(secret)} bytes instead of {_KEY_BYTES}: restore it")
        self._secret = secret
        return secret

    def _seal(self, chain: bytes, body: bytes) -> bytes:
        """The keyed digest that a line carries: of it, and of the digest before it."""
        return hmac.digest(self._read_secret(), b"line" + chain + body, "sha256")[: lines.CHAIN]

    def _append(self, *several: lines.Line, digests: np.ndarray | None = None, synced: bool = True) -> None:
        """Write lines at the end, and take them in. Call it while the book is locked.

        Args:
            several: the lines.
            digests: of the line of people among them.
            synced: whether they are on the disk when this returns.
        """
        if self.path is None:
            return
        first = () if self._read.number else (lines.First(party=self.party, digests=self._read.digests),)
        written, chain = [], self._read.chain
        for line in (*first, *several):
            body = lines.encode(line)
            chain = self._seal(chain, body)
            written.append((line, chain, chain.hex().encode() + b" " + body + b"\n"))
        (append_synced if synced else append_data)(self.path, b"".join(raw for _, _, raw in written))
        for line, seal, raw in written:
            self._advance(line, seal, len(raw), digests)
        if self._identity is None:
            about = self.path.stat()
            self._identity = (about.st_dev, about.st_ino)

    def _advance(self, line: lines.Line, chain: bytes, length: int, digests: np.ndarray | None = None) -> None:
        self._read.take(line, digests)
        self._read.chain = chain
        self._read.number += 1
        self._read.end += length

    def _read_file(self, path: Path) -> None:
        """Read what other processes wrote since. The book is locked, so what follows the last complete line was cut
        off as it was written: the numbers that it announces did not leave."""
        if not path.exists():
            if self._read.number or self._counted:
                raise InputError(f"{path} is gone: what was answered of which row is unknown; restore the file")
            return
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if self._identity not in (None, (about.st_dev, about.st_ino)) or about.st_size < self._read.end:
                self._read_again()
            if about.st_size == self._read.end and not self._counted:
                self._identity = (about.st_dev, about.st_ino)
                return
            file.seek(self._read.end)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        for raw in whole.splitlines(keepends=True):
            self._read_line(path, raw)
        if whole != data:
            with path.open("r+b") as file:
                file.truncate(self._read.end)
                os.fsync(file.fileno())
        self._refuse_older(path)
        self._identity = (about.st_dev, about.st_ino)

    def _read_again(self) -> None:
        """Forget what was read, but for what the book had counted: another process compacted the file, which lowers
        no number, or somebody put another file in its place."""
        for asker, number in self._read.running.items():
            self._counted[asker] = max(number, self._counted.get(asker, 0))
        self._read = _Content(self._organisations)
        self._identity = None

    def _refuse_older(self, path: Path) -> None:
        """Refuse an older copy of the book that was put in its place while this process has it open: rows would be
        answered again that were answered before."""
        for asker, number in self._counted.items():
            found = self._read.running.get(asker, 0)
            if found < number:
                self._read_again()
                raise InputError(
                    f"{path} is older than it was: this process saw {number:,} numbers counted for {asker!r}, and the "
                    f"file has {found:,}; put the newest copy back in its place, so that no row is answered again "
                    "without being counted"
                )
        self._counted.clear()

    def _read_line(self, path: Path, raw: bytes) -> None:
        where = f"line {self._read.number + 1} of {path}"
        seal, _, body = raw.rstrip(b"\n").partition(b" ")
        chain = self._seal(self._read.chain, body)
        if not hmac.compare_digest(seal, chain.hex().encode()):
            raise InputError(
                f"{where} is damaged, or a line before it was changed or removed: what was answered of which row is "
                "unknown; restore the file"
            )
        try:
            line = lines.decode(body)
            self._advance(line, chain, len(raw))
        except lines.DAMAGED as error:
            raise InputError(
                f"{where} is damaged ({error}): what was answered of which row is unknown; restore the file"
            ) from None
        if isinstance(line, lines.First) and self.party and line.party not in ("", self.party):
            raise InputError(
                f"{path} is the book of {line.party!r}, not of {self.party!r}: each party needs a book that nobody "
                "else counts in"
            )

    def _compact(self, path: Path) -> None:
        """Replace the file by one count a person and asker. The chain begins again, with the old one's end in the
        first line. Call it while the book is locked.
        """
        old, self._read = self._read, _Content(self._organisations)
        made: list[bytes] = []

        def put(line: lines.Line) -> None:
            body = lines.encode(line)
            chain = self._seal(self._read.chain, body)
            made.append(chain.hex().encode() + b" " + body + b"\n")
            self._advance(line, chain, len(made[-1]))

        put(lines.First(party=self.party, after=old.chain.hex(), digests=old.digests))
        everyone = old.places.to_array()
        people = lines.name_people(everyone)
        put(lines.People(people=people, digests=lines.pack_people(everyone)))
        for asker in sorted(old.running.keys() | old.losses.keys()):
            counts, running = old.counts_of(asker)[: len(old.places)], old.running.get(asker, 0)
            losses = lines.pack_losses(old.losses_of(asker)[: len(old.places)]) if asker in old.losses else ""
            numbers = lines.pack_counts(counts)
            put(lines.Total(asker=asker, people=people, numbers=numbers, running=running, losses=losses))
        for asker, sets in old.metrics.items():
            put(lines.Metrics(asker=asker, sets=sets))
        for grant in old.grants.values():
            put(grant)
        write_atomic(path, b"".join(made), private=True)
        about = path.stat()
        self._identity = (about.st_dev, about.st_ino)
        self._compact_above = max(_LARGE, 2 * self._read.end)

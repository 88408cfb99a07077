"""A cell whose job trains on shares: what each computing party received of each row, and every attack on that, beside
what final predictions alone tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from securevfl_crypto.replicated import Dealt

from securevfl.attacks import Estimate, Known, PartyView, Transcript, label_inference
from securevfl.attacks.feature_inference import LEARNERS
from securevfl.attacks.learners import fit_classifier
from securevfl.attacks.measure import draw_known, r_squared, score_ranking
from securevfl.experiments.recorder import Recorder
from securevfl.transport import Message

__all__ = ["CHI_SQUARE", "LEAST", "Attacked", "Sights", "Sorting", "Wiretap", "of_all", "shares_of", "sights", "uneven"]

_WIDTH = 16
"""Of all hidden layers in the matrix: so many masked values of a row stand side by side in a message."""
_MOST = 12
"""Messages of a step that attacks are given, the first ones: the products with the rows are among them."""
_KNOWN_LABELS, _KNOWN_RECORDS = 40, 72
LEAST, CHI_SQUARE = 5, 478.0
"""Words an octet's value has to have to be counted; chi-square of 255 degrees exceeds it once in 10^12 (Laurent and
Massart 2000, lemma 1)."""
_NONE = np.arange(0)
_FEW, _DRAWS = 3, 60
"""Draws of columns of chance that every attack is compared with, and those that get more than these few."""


class Wiretap(Recorder):
    """A recorder that keeps what computing parties receive, and the rows that it is about.

    Attributes:
        groups: dealing party → rows of each of its messages with shares, batch by batch; none for rows that are scored.
        heard_by: computing party → its messages in order.
        pending: party → rows of each batch that it began, and dealt no shares of yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, list[list[np.ndarray]]] = defaultdict(list)
        self.heard_by: dict[str, list[tuple[str, Message]]] = defaultdict(list)
        self.pending: dict[str, list[np.ndarray]] = defaultdict(list)
        self._sent: dict[tuple[str, str], int] = defaultdict(int)

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        super().batch_begun(party, owner, epoch, rows)
        self.pending[party].append(np.array(rows))

    def message_passed(self, party: str, peer: str, way: Literal["sent", "received"], message: Message) -> None:
        super().message_passed(party, peer, way, message)
        if not message.what.startswith("shares/"):
            return
        if way == "received":
            self.heard_by[party].append((peer, message))
        elif message.what == "shares/input":
            if self._sent[party, peer] == len(self.groups[party]):
                self.groups[party].append(self.pending.pop(party, []))
            self._sent[party, peer] += 1


@dataclass(frozen=True)
class Attacked:
    """All attacks of one party on one thing.

    Attributes:
        about: ``"labels"``, ``"features"``, ``"attribute"``, or features by final ``"predictions"`` alone.
        attacker: a computing party.
        victim: whose data it is.
        tried: attack → AUC or R², what the same attacker gets without what it received, standard error.
    """

    about: Literal["labels", "features", "attribute", "predictions"]
    attacker: str
    victim: str
    tried: Mapping[str, tuple[float, float, float]]


@dataclass
class Sights:
    """What one computing party has of single rows.

    Attributes:
        of: data party, or ``"labels"``, or ``"rounds"`` → row → what it received of it, one array a look.
        opened: words that were opened to it, not tied to single rows.
    """

    of: dict[str, dict[int, list[np.ndarray]]]
    opened: int = 0

    def stacked(self, about: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows that were seen, (n,), and their looks, (n, looks, width), as often each as the one seen least often."""
        found = self.of.get(about, {})
        kept = np.array([row for row in rows.tolist() if row in found], dtype=np.int64)
        if not len(kept):
            return kept, np.empty((0, 0, 0))
        least = min(len(found[row]) for row in kept.tolist())
        return kept, np.stack([np.stack(found[row][-least:]) for row in kept.tolist()])


def shares_of(message: Message, number: int, rows: int, width: int) -> np.ndarray:
    """Both summands that a message carries, their sum, and their lowest octets: (rows, 4 width), float64."""
    parts = tuple(np.asarray(message.arrays[f"{number}{side}"]) for side in "ab")
    one = Dealt((rows, width), parts).share()  # type: ignore[arg-type]
    words = [one.mine, one.next, one.mine + one.next]
    real = [word.view(np.int64) / 2.0**63 for word in words]
    return np.hstack([*real, (words[2] & np.uint64(0xFF)) / 256.0])


def sights(tap: Wiretap, party: str, owner: str, widths: Mapping[str, int], split: Mapping[str, np.ndarray]) -> Sights:
    """Sort what a computing party received by the rows that it is about.

    Args:
        tap: heard all parties.
        party: whose.
        owner: the label owner.
        widths: data party → width of what it deals.
        split: ``"valid"`` and ``"test"`` → their rows; ``"learned"`` → those whose targets are dealt once, in order.
    """
    found = Sights(defaultdict(lambda: defaultdict(list)))
    dealt: dict[str, int] = defaultdict(int)
    lengths = _lengths(tap)
    under_way: list[np.ndarray] = []
    rounds: list[np.ndarray] = []
    for peer, message in tap.heard_by[party]:
        if message.what == "shares/input":
            _by_row(found, under_way, rounds)
            rounds = []
            batches, length = tap.groups[peer][dealt[peer]], lengths.get((peer, dealt[peer]), 0)
            dealt[peer] += 1
            under_way = batches
            learned = split.get("learned", np.arange(0))
            if peer == owner and not batches and length == len(learned) and not found.of.get("labels"):
                for row, value in zip(learned.tolist(), shares_of(message, 0, length, 1), strict=True):
                    found.of["labels"][row].append(value)
                continue
            scored = next((rows for name, rows in split.items() if name != "learned" and len(rows) == length), _NONE)
            rows = np.concatenate(batches) if batches else scored
            if not len(rows):
                continue
            width = widths[peer]
            for row, value in zip(rows.tolist(), shares_of(message, 0, len(rows), width), strict=True):
                found.of[peer][row].append(value)
            if peer == owner and "1a" in message.arrays:
                for row, value in zip(rows.tolist(), shares_of(message, 1, len(rows), 1), strict=True):
                    found.of["labels"][row].append(value)
        elif message.what == "shares/round":
            rounds.append(np.asarray(message.arrays["1"]) if "1" in message.arrays else np.empty(0, np.uint64))
        elif message.what.startswith("shares/open"):
            found.opened += sum(np.asarray(a).size for a in message.arrays.values() if a.dtype == np.uint64)
    _by_row(found, under_way, rounds)
    return found


def widths_of(tap: Wiretap) -> dict[str, int]:
    """Data party → width of what it deals, as the messages with words show."""
    return {
        peer: array.shape[1]
        for heard in tap.heard_by.values()
        for peer, message in heard
        if message.what == "shares/input"
        for name in ("0a", "0b")
        if (array := np.asarray(message.arrays[name])).dtype == np.uint64
        and len(tap.groups[peer])
        and array.shape != (1, 1)
    }


def _lengths(tap: Wiretap) -> dict[tuple[str, int], int]:
    """Dealing party and number of its message → rows in it, as whoever gets words of it sees."""
    found = {}
    for heard in tap.heard_by.values():
        count: dict[str, int] = defaultdict(int)
        for peer, message in heard:
            if message.what == "shares/input":
                words = [a for a in map(np.asarray, message.arrays.values()) if a.dtype == np.uint64 and a.ndim == 2]
                if words:
                    found[peer, count[peer]] = len(words[0])
                count[peer] += 1
    return found


def _by_row(found: Sights, batches: Sequence[np.ndarray], rounds: Sequence[np.ndarray]) -> None:
    """The masked values of each step, tied to the rows of its batch: every step has as many messages."""
    if not batches or len(rounds) % len(batches):
        return
    each = len(rounds) // len(batches)
    for number, rows in enumerate(batches):
        block = len(rows) * _WIDTH
        columns = [
            _real(words).reshape(-1, len(rows), _WIDTH).transpose(1, 0, 2).reshape(len(rows), -1)
            for words in rounds[number * each : (number + 1) * each]
            if words.size and words.size % block == 0
        ]
        if columns:
            for row, value in zip(rows.tolist(), np.hstack(columns[:_MOST])[:, : 6 * _WIDTH], strict=True):
                found.of["rounds"][row].append(value)


def uneven(tap: Wiretap, party: str) -> float:
    """How far the words that a party received are from uniform, octet by octet: the largest chi-square, over a value
    that uniform ones exceed once in 10^12. Above 1 they are not uniform. Words in one place of every step are counted
    together, so that a few rows in the clear show there, and are not lost among everything else.
    """
    counts: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros((8, 256)))
    for place, words in _places(tap, party):
        for octet, found in enumerate(words.view(np.uint8).reshape(-1, 8).T):
            counts[place][octet] += np.bincount(found, minlength=256)
    worst = 0.0
    for found in counts.values():
        wanted = found.sum(axis=1, keepdims=True) / 256
        if wanted.min() >= LEAST:
            worst = max(worst, float(((found - wanted) ** 2 / wanted).sum(axis=1).max()) / CHI_SQUARE)
    return worst


def _places(tap: Wiretap, party: str) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    """What was sent, and its place in a step; words."""
    dealt: dict[str, int] = defaultdict(int)
    steps, rounds = 0, list[np.ndarray]()
    for peer, message in [*tap.heard_by[party], ("", None)]:
        if message is not None and message.what == "shares/round":
            found = np.asarray(message.arrays.get("1", np.empty(0)))
            rounds.append(found if found.dtype == np.uint64 else np.empty(0, np.uint64))
        elif message is None or message.what == "shares/input":
            each = len(rounds) // steps if steps and len(rounds) % steps == 0 else 0
            for number, words in enumerate(rounds):
                yield ("round", number % each if each else -1), np.ascontiguousarray(words)
            rounds = []
        if message is not None and message.what == "shares/input":
            batches = tap.groups[peer]
            steps, dealt[peer] = len(batches[dealt[peer]]), dealt[peer] + 1
            for name, array in message.arrays.items():
                if np.asarray(array).dtype == np.uint64:
                    yield (f"{peer} {name}", 0), np.ascontiguousarray(array)


Tried = dict[str, tuple[float, float, float]]
"""Attack → AUC or R², what the same attacker gets without what it received, standard error."""


def _real(words: np.ndarray) -> np.ndarray:
    """Between -1 and 1; octets between 0 and 1."""
    found: np.ndarray = words.view(np.int64) / 2.0**63 if words.dtype == np.uint64 else words / 256.0
    return found


def _columns(seen: Sights, about: str, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, rows and columns that an attack is given: the last look, and the mean of all of them."""
    for kind, name in ((about, "shares dealt"), ("rounds", "masked values")):
        kept, looks = seen.stacked(kind, rows)
        if len(kept) < _KNOWN_RECORDS + 20:
            continue
        yield f"{name}, last look", kept, looks[:, -1]
        if looks.shape[1] > 1:
            yield f"{name}, mean of {looks.shape[1]} looks", kept, looks.mean(axis=1)


def _explained(learner: str, rows: np.ndarray, columns: np.ndarray, known: Known, x: np.ndarray) -> float:
    rest = LEARNERS[learner](rows, columns, known).exclude_rows(known.rows)
    return r_squared(rest.values, x[rest.rows])


def features_of(
    view: PartyView, seen: Sights, victim: str, x: np.ndarray, scores: np.ndarray | None, seed: int
) -> Tried:
    """Every attack of a computing party on another's columns. The baseline has its own columns, and of test rows the
    final predictions that it was told, and columns of chance in place of what it received; chance where an attack uses
    neither.

    Args:
        view: the attacker's.
        seen: what it received.
        victim: whose columns.
        x: the true ones.
        scores: final predictions of the test rows, where they were opened to it.
        seed: of the known records.
    """
    tried: Tried = {}
    for which, rows in (("trained", view.train), ("validation", view.valid), ("test", view.test)):
        for name, kept, columns in _columns(seen, victim, rows):
            known = draw_known(kept, x, _KNOWN_RECORDS, seed)
            for learner in ("linear", "ridge", "perceptron"):
                value = _explained(learner, kept, columns, known, x)
                tried[f"features: {learner}, {name}, {which} rows"] = value, 0.0, 0.0
            own = view.own_columns(kept) if which != "test" else _predicted(view, kept, scores)
            if not own.shape[1]:
                continue  # a party without data: what it received is all that it has
            value = _explained("ridge", kept, np.hstack([columns, own]), known, x)
            without, error = _by_chance(value, kept, columns.shape[1], own, known, x, seed)
            tried[f"features: ridge with own columns, {name}, {which} rows"] = value, without, error
    return tried


def _by_chance(
    value: float, rows: np.ndarray, width: int, own: np.ndarray, known: Known, x: np.ndarray, seed: int
) -> tuple[float, float]:
    """What the same attacker gets with columns of chance in place of those that it received, and the deviation of that
    over draws. They are no burden alone: beside own columns they shrink all weights, which can help.

    An attack that gets no more than without any, or than with the first of these draws, is not looked at closer.
    """
    draw = np.random.default_rng([seed, 13])
    alone = _explained("ridge", rows, own, known, x)

    def blind(count: int) -> list[float]:
        chance = (np.hstack([draw.uniform(-1, 1, (len(rows), width)), own]) for _ in range(count))
        return [_explained("ridge", rows, columns, known, x) for columns in chance]

    first = blind(_FEW)
    if value <= max(alone, *first):
        return max(alone, *first), 0.0
    found = blind(_DRAWS)  # of their own: the first ones were picked by what they are compared with
    return max(alone, float(np.mean(found))), float(np.std(found, ddof=1))


def predictions_of(view: PartyView, x: np.ndarray, scores: np.ndarray, seed: int) -> Tried:
    """What final predictions alone tell of another's columns, beside the attacker's own: the baseline of `features_of`,
    over own columns."""
    rows = view.test
    known = draw_known(rows, x, _KNOWN_RECORDS, seed)
    learners = ("ridge", "perceptron")
    without = max(_explained(learner, rows, view.x[rows], known, x) for learner in learners)
    return {
        f"features: {learner} with own columns, final predictions": (
            _explained(learner, rows, _predicted(view, rows, scores), known, x),
            without,
            0.0,
        )
        for learner in learners
    }


def _predicted(view: PartyView, rows: np.ndarray, scores: np.ndarray | None) -> np.ndarray:
    """Own columns of test rows, and their final predictions where the party was told them."""
    if scores is None:
        return view.x[rows]
    place = {row: i for i, row in enumerate(view.test.tolist())}
    told = scores[[place[row] for row in rows.tolist()]]
    if view.numeric:
        return np.hstack([view.x[rows], told])
    odds = np.log(np.maximum(told, 1e-12))
    return np.hstack([view.x[rows], odds[:, 1:] - odds[:, :1]])


def attribute_of(view: PartyView, seen: Sights, victim: str, bits: np.ndarray, seed: int) -> Tried:
    """A yes-or-no attribute of training rows, with 72 known ones and with none; with own columns where the attacker is
    the active party, as elsewhere in the gate."""
    tried: Tried = {}
    for name, kept, columns in _columns(seen, victim, view.train):
        known = draw_known(kept, bits, _KNOWN_RECORDS, seed)
        given = {"learned from 72": (columns, 0.5)}
        if view.active:
            own = view.own_columns(kept)
            alone = score_ranking(fit_classifier(kept, own, known, 2).exclude_rows(known.rows), bits, 2)[0]
            given["learned from 72 with own columns"] = np.hstack([columns, own]), max(0.5, alone)
        for what, (held, without) in given.items():
            value, error = score_ranking(fit_classifier(kept, held, known, 2).exclude_rows(known.rows), bits, 2)
            tried[f"attribute: {what}, {name}"] = value, without, error
        along = label_inference.project_on_first_singular(columns - columns.mean(axis=0))
        value, error = score_ranking(Estimate(kept, along, either_way=True), bits, 2)
        tried[f"attribute: spectral, {name}"] = value, 0.5, error
    return tried


def labels_of(view: PartyView, seen: Sights, y: np.ndarray, seed: int) -> Tried:
    """Labels of training rows, with 40 known and with none; of a number, whether it is above its median."""
    tried: Tried = {}
    if view.numeric:
        view, y = replace(view, classes=2), (y > np.median(y[view.train])).astype(np.int64)
    for name, kept, columns in _columns(seen, "labels", view.train):
        known = draw_known(kept, y, _KNOWN_LABELS, seed)
        centred = columns - columns.mean(axis=0)
        estimates = {
            "norm": Estimate(kept, np.linalg.norm(columns, axis=1), either_way=True),
            "direction": Estimate(kept, centred @ centred[np.linalg.norm(centred, axis=1).argmax()], either_way=True),
            "spectral": Estimate(kept, label_inference.project_on_first_singular(centred), either_way=True),
            "learned from 40": fit_classifier(kept, columns, known, view.classes),
        }
        for attack, estimate in estimates.items():
            value, error = score_ranking(estimate.exclude_rows(known.rows), y, view.classes)
            tried[f"labels: {attack}, {name}"] = value, 0.5, error
    return tried


def _view_of(transcript: Transcript, party: str, owner: str) -> PartyView:
    """What a computing party has; without columns of its own, what everybody knows of rows."""
    if (party, owner) in transcript.views:
        return transcript.view(party, owner)
    known = transcript.view(owner, owner)
    return replace(known, party=party, x=known.x[:, :0], y=None, observations={}, steps={}, scores=None)


Sorting = Callable[[Wiretap, str, PartyView], Sights]
"""Recorder, computing party, its view → what it received, by row."""


def sort_batches(owner: str) -> Sorting:
    """How to sort what computing parties receive of a network, batch by batch."""

    def sort(tap: Wiretap, party: str, view: PartyView) -> Sights:
        learned = np.concatenate([np.unique(view.train), view.valid])
        return sights(tap, party, owner, widths_of(tap), {"valid": view.valid, "test": view.test, "learned": learned})

    return sort


def of_all(
    tap: Wiretap,
    transcript: Transcript,
    owner: str,
    computing: Iterable[str],
    scores: np.ndarray,
    bits: Mapping[str, np.ndarray],
    seed: int,
    sort: Sorting | None = None,
) -> Iterator[Attacked]:
    """Every attack of every computing party: labels, features, an attribute, and what predictions allow."""
    truth, sort = transcript.truth(owner), sort or sort_batches(owner)
    for party in computing:
        view = _view_of(transcript, party, owner)
        seen = sort(tap, party, view)
        told = scores if party == owner else None
        if party != owner:
            yield Attacked("labels", party, owner, labels_of(view, seen, truth.y, seed))
        for victim in truth.x:
            if victim == party:
                continue
            yield Attacked("features", party, victim, features_of(view, seen, victim, truth.x[victim], told, seed))
            if told is not None:
                yield Attacked("predictions", party, victim, predictions_of(view, truth.x[victim], told, seed))
            yield Attacked("attribute", party, victim, attribute_of(view, seen, victim, bits[victim], seed))

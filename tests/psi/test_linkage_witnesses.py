"""How many pairs there are, from pairs that two sets of fields witness, and which share of them a threshold finds."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
from securevfl_psi.linkage import (
    BlockKey,
    Candidates,
    Code,
    Date,
    Encodings,
    FamilyErrors,
    Field,
    FieldKind,
    LinkageError,
    Linked,
    Schema,
    Text,
    Whole,
    WitnessEstimate,
    assign_greedy,
    blocking_tokens,
    encode_records,
    estimate_by_witnesses,
    estimate_matches,
    link_records,
    link_tables,
    similar_pairs,
    simulate_families,
    witness_tokens,
)

KEY = bytes(32)
NAMES = {name: Text() for name in ("given_name", "surname", "street", "suburb")}
KINDS: dict[str, FieldKind] = {**NAMES, "phone": Code(), "postcode": Code(), "date_of_birth": Date()}
SCHEMA = Schema(fields=tuple(Field(name=name, kind=kind) for name, kind in KINDS.items()))
RULES: tuple[dict[str, BlockKey], ...] = (
    {"surname": Whole(), "date_of_birth": Whole()},
    {"given_name": Whole(), "phone": Whole()},
)


@dataclasses.dataclass(frozen=True)
class Simulated:
    candidates: Candidates
    taken: np.ndarray
    encodings: tuple[Encodings, Encodings]
    tokens: tuple[np.ndarray, np.ndarray]
    right: np.ndarray
    common: int

    def at(self, threshold: float) -> tuple[float, float]:
        """True precision and recall."""
        above = self.candidates.scores[self.taken] >= threshold
        found = int(self.right[above].sum())
        return found / max(int(above.sum()), 1), found / self.common


@cache
def simulated(common: float, seed: int, rows: int = 1200, typo: float = 0.12) -> Simulated:
    files = simulate_families(rows, common=common, together=0.8, seed=seed, errors=FamilyErrors(typo=typo))
    keep = [np.flatnonzero([any(v) for v in zip(*t.values(), strict=True)]) for t in files.tables]
    tables = [{n: [c[i] for i in k] for n, c in t.items()} for t, k in zip(files.tables, keep, strict=True)]
    people = [who[k] for who, k in zip(files.people, keep, strict=True)]
    a, b = (encode_records(table, SCHEMA, KEY) for table in tables)
    one, other = (witness_tokens(table, SCHEMA, RULES, KEY) for table in tables)
    candidates = similar_pairs(a, b)
    taken = assign_greedy(candidates)
    right = people[0][candidates.rows_a[taken]] == people[1][candidates.rows_b[taken]]
    return Simulated(candidates, taken, (a, b), (one, other), right, len(np.intersect1d(people[0], people[1])))


def by_witnesses(files: Simulated) -> WitnessEstimate:
    return estimate_by_witnesses(files.candidates, files.taken, files.encodings, files.tokens)


@pytest.mark.parametrize(("common", "typo"), [(0.8, 0.12), (0.5, 0.25), (0.1, 0.12)])
def test_recall_is_what_witnesses_say_also_where_few_records_are_in_common(common: float, typo: float) -> None:
    """True recall is within 0.08 of the estimate at any threshold worth asking for, and so is the number of people."""
    files = simulated(common, seed=3, typo=typo)
    found = by_witnesses(files)
    assert found.common == pytest.approx(files.common, rel=0.2)
    for threshold in (0.65, 0.7, 0.75, 0.8, 0.85):
        assert found.recall(threshold) == pytest.approx(files.at(threshold)[1], abs=0.08)


def test_scores_alone_do_not_know_what_witnesses_know() -> None:
    """A tenth in common: without witnesses, recall is told as above 0.9, and is not; its bounds hold."""
    files = simulated(0.1, seed=5, rows=2000)
    alone, found = estimate_matches(files.candidates, files.taken, files.encodings), by_witnesses(files)
    f1 = []
    for one in (alone, found):
        precision, recall = files.at(one.choose_threshold())
        f1.append(2 * precision * recall / (precision + recall))
    threshold = alone.choose_threshold()
    truth = files.at(threshold)[1]
    assert abs(found.recall(threshold) - truth) < abs(alone.recall(threshold) - truth)
    assert alone.recall_between(threshold)[0] <= truth <= alone.recall_between(threshold)[1]
    assert f1[1] >= f1[0] - 0.02  # since decoys are counted, the threshold alone is as good
    (low, high), (least, most) = found.confidence_ranges(found.choose_threshold())
    assert low < found.precision(found.choose_threshold()) + 0.05
    assert 0 <= least < found.recall(found.choose_threshold()) < most <= 1
    assert high <= 1
    assert found.common_range[0] < files.common < found.common_range[1] * 1.1


def test_the_number_of_pairs_is_chapmans() -> None:
    """12 and 15 pairs, 9 of them twice; a token that comes twice in a file, and 0, are no witnesses."""
    size = 30
    pairs = Candidates(np.arange(size), np.arange(size), np.ones(size), (size, size), 0.0, size * size)
    tokens = np.zeros((size, 2), dtype=np.uint64)
    tokens[:12, 0] = np.arange(1, 13)
    tokens[3:18, 1] = np.arange(1, 16)
    tokens[20:22, 0] = 99
    words = np.random.default_rng(0).integers(0, 2**63, size=(size, 16)).astype(np.uint64)
    encodings = Encodings(words=words, tag=bytes(16)), Encodings(words=words, tag=bytes(16))
    found = estimate_by_witnesses(pairs, np.arange(size), encodings, (tokens, tokens))
    assert found.witnessed == (12, 15, 9)
    assert found.matches == found.common == pytest.approx(13 * 16 / 10 - 1)
    again = estimate_by_witnesses(pairs, np.arange(size), encodings, (tokens, tokens))
    assert again.common_range == found.common_range  # it can be repeated
    short = tokens.copy()
    short[3:6] = 0
    with pytest.raises(LinkageError, match="6 of these are found by both; at least 7"):
        estimate_by_witnesses(pairs, np.arange(size), encodings, (short, short))
    with pytest.raises(LinkageError, match="tokens are of 1 rules"):
        estimate_by_witnesses(pairs, np.arange(size), encodings, (tokens[:, :1], tokens[:, :1]))


def test_pairs_that_were_not_compared_are_not_found() -> None:
    """Blocks that let half of the pairs through halve recall; witnesses see it."""
    files = simulated(0.5, seed=3)
    a, b = files.encodings
    half = tuple((np.arange(len(one)) % 2 + 1).astype(np.uint64)[:, None] for one in (a, b))
    found = link_records(a, b, blocks=half, witnesses=files.tokens, threshold=0.7)  # type: ignore[arg-type]
    whole = link_records(a, b, witnesses=files.tokens, threshold=0.7)
    assert found.recall == pytest.approx(whole.recall / 2, abs=0.1)
    assert found.common == whole.common


def test_rules_share_no_field_and_their_tokens_are_not_those_of_blocks() -> None:
    table: dict[str, list[str | None]] = {
        **{name: ["a", "b"] for name in NAMES},
        "phone": ["1", None],
        "postcode": ["1", "2"],
        "date_of_birth": ["1970-01-01", "1980-01-01"],
    }
    tokens = witness_tokens(table, SCHEMA, RULES, KEY)
    assert tokens[1, 1] == 0  # without a phone
    assert not np.isin(tokens[tokens > 0], blocking_tokens(table, SCHEMA, RULES, KEY)).any()
    with pytest.raises(LinkageError, match="which share surname: two are needed"):
        witness_tokens(table, SCHEMA, ({"surname": Whole()}, {"surname": Whole(), "phone": Whole()}), KEY)
    more: dict[str, BlockKey] = {"suburb": Whole()}
    for rules in (RULES[:1], (*RULES, more), ({}, RULES[0])):
        with pytest.raises(LinkageError, match="two are needed"):
            witness_tokens(table, SCHEMA, rules, KEY)
    with pytest.raises(LinkageError, match="fields of the schema"):
        witness_tokens(table, SCHEMA, ({"income": Whole()}, {"phone": Whole()}), KEY)


def test_tables_are_linked_with_witnesses_and_say_so() -> None:
    files = simulate_families(600, common=0.5, seed=2)
    found = link_tables(*files.tables, SCHEMA, witnesses=RULES)
    assert found.witnessed is not None
    assert found.ranges is not None
    assert f"{found.witnessed[0]} and {found.witnessed[1]} witnessed pairs" in found.describe()
    alone: Linked = link_tables(*files.tables, SCHEMA)
    assert alone.ranges is None
    assert "recall between" in alone.describe()


def test_files_that_are_alike_and_blocks_that_never_meet() -> None:
    """All scores are 1: the threshold is one that they reach. Where nothing was compared, that is said."""
    table = {name: [f"{name} {row} {chr(97 + row % 26) * 3}" for row in range(40)] for name in NAMES}
    table |= {"phone": [str(1000 + 7 * row) for row in range(40)], "postcode": ["1"] * 40}
    table |= {"date_of_birth": [f"19{40 + row}-01-02" for row in range(40)]}
    encodings, tokens = encode_records(table, SCHEMA, KEY), witness_tokens(table, SCHEMA, RULES, KEY)
    found = link_records(encodings, encodings, witnesses=(tokens, tokens))
    assert found.threshold == 1
    assert len(found) == 40
    assert found.common == 40
    assert found.ranges is not None
    assert found.ranges[0][0] <= found.precision <= found.ranges[0][1]
    apart = np.arange(1, 41, dtype=np.uint64)[:, None]
    with pytest.raises(LinkageError, match="no pair was compared"):
        link_records(encodings, encodings, blocks=(apart, apart + np.uint64(100)), witnesses=(tokens, tokens))

"""A run of the three computing parties behind one mask, on integers: truncations, comparisons and curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from slow_curve import require, unhex
from slow_shares import mask_message, reduce_modulo, split_bits

__all__ = ["COMPUTE"]

Fields = Mapping[str, Any]
WORD, M = 1 << 64, 67


class _Stream:
    """Draws under one key, each from the next place."""

    def __init__(self, key: str) -> None:
        self._key, self._use = unhex(key), 0

    def draw_octets(self, count: int) -> bytes:
        start = (self._use << 64).to_bytes(16, "big")
        self._use += 1
        return Cipher(algorithms.AES(self._key), modes.CTR(start)).encryptor().update(bytes(count))

    def draw_words(self, *counts: int) -> list[list[int]]:
        raw = self.draw_octets(8 * sum(counts))
        words = [int.from_bytes(raw[k : k + 8], "little") for k in range(0, len(raw), 8)]
        return [words[sum(counts[:k]) : sum(counts[: k + 1])] for k in range(len(counts))]

    def draw_rows(self, count: int, modulus: int) -> list[list[int]]:
        found = reduce_modulo(self.draw_octets(2 * 64 * count + 64), modulus)
        return [found[64 * k : 64 * k + 64] for k in range(count)]


def _format_words(words: list[int]) -> list[str]:
    return [f"{word % WORD:016x}" for word in words]


def _signed(word: int) -> int:
    return (word + WORD // 2) % WORD - WORD // 2


class _Run:
    """The sizes of a run, and what both sides of each message know."""

    def __init__(self, group: Fields, test: Fields) -> None:
        self.summands = [[int(word, 16) for word in part] for part in test["summands"]]
        self.count, self.shift, self.thresholds = len(self.summands[0]), test["shift"], test["thresholds"]
        self.slopes, self.gates, self.start = test["slopes"], test["gates"], test["start"]
        self.rows = self.count * len(self.thresholds)
        self.has_value = not self.thresholds or bool(self.slopes)
        self.outputs = (bool(self.slopes) + bool(self.gates) or len(self.thresholds)) if self.thresholds else 1
        dealt = 2 * self.count if self.has_value else 0
        results, answers = self.count * self.outputs, self.rows * (3 if self.has_value else 1)
        zero, one, two = (_Stream(group[f"key{k}"]) for k in range(3))
        (self.mask,) = _Stream(group["own2"]).draw_words(self.count)
        self.zeros0, self.dealt0, self.answers0, self.results0 = zero.draw_words(self.count, dealt, answers, results)
        self.zeros2, self.results2 = two.draw_words(self.count, results)
        if self.thresholds:
            self.bits0 = zero.draw_rows(self.count, M)
            self.turns = one.draw_octets(self.rows)
            self.factors, self.noughts = one.draw_rows(self.rows, M - 1), one.draw_rows(self.rows, M)

    def open_words(self) -> tuple[list[list[int]], list[int]]:
        """The summands of c that the parties send, and c."""
        sent = [
            [word + zero for word, zero in zip(self.summands[0], self.zeros0, strict=True)],
            [word + zero for word, zero in zip(self.summands[1], self.zeros2, strict=True)],
            [
                word - first - second + r
                for word, first, second, r in zip(self.summands[2], self.zeros0, self.zeros2, self.mask, strict=True)
            ],
        ]
        return sent, [(sum(words) + (1 << 62)) % WORD for words in zip(*sent, strict=True)]

    def compare(self, c: list[int]) -> tuple[list[list[int]], list[list[list[int]]], list[int]]:
        """Party 1's shares of bits, both parties' masked rows, and party 2's answer in the clear."""
        bits1, sent, found = [], [[], []], []
        for i, share in enumerate(self.bits0):
            x = split_bits(2 * (self.mask[i] % (1 << 62)))
            bits1.append([(bit - part) % M for bit, part in zip(x, share, strict=True)])
        for row in range(self.rows):
            i = row % self.count
            opened = (c[i] - (self.thresholds[row // self.count] << self.shift)) % WORD
            y = split_bits(2 * (opened % (1 << 62)) + 1)
            y[63] = 0
            given = {
                "turn": self.turns[row],
                "factors": bytes(self.factors[row]).hex(),
                "zeros": bytes(self.noughts[row]).hex(),
            }
            for index, share in enumerate((self.bits0[i], bits1[i])):
                sent[index].append(mask_message(share, y, given, first=not index))
            hits = sum((a + b) % M == 0 for a, b in zip(sent[0][row], sent[1][row], strict=True))
            found.append(hits ^ (self.mask[i] >> 62 & 1))
        words = list(found)
        if self.has_value:
            for factor in (lambda r: r >> self.shift, lambda r: r >> 63):
                words += [bit * factor(self.mask[row % self.count]) for row, bit in enumerate(found)]
        return bits1, sent, words

    def result_summands(self, c: list[int], dealt: list[int], answers: list[int], *, first: bool) -> list[int]:
        """One party's summands of all results, before they are masked."""
        public = [(word >> self.shift) - (1 << (62 - self.shift)) for word in c]
        wraps = [(1 - (word >> 63)) << (64 - self.shift) if self.shift else 0 for word in c]
        n = self.count
        values = []
        if self.has_value:
            high, top = dealt[:n], dealt[n:]
            values = [(public[i] if first else 0) - high[i] + wraps[i] * top[i] for i in range(n)]
        if not self.thresholds:
            return values
        totals, gates, bits = [self.start if first else 0] * n, [0] * n, []
        for row in range(self.rows):
            i, k = row % n, row // n
            opened = (c[i] - (self.thresholds[k] << self.shift)) % WORD
            flipped = (opened >> 62 & 1) ^ (self.turns[row] >> 6 & 1)
            sign = 1 - 2 * flipped
            bit = sign * answers[row] + (flipped if first else 0)
            bits.append(bit)
            if self.slopes:
                high, top = answers[self.rows + row], answers[2 * self.rows + row]
                product = flipped * values[i] + sign * (public[i] * answers[row] - high + wraps[i] * top)
                totals[i] += self.slopes[k] * (product - self.thresholds[k] * bit)
            if self.gates:
                gates[i] += self.gates[k] * bit
        if not self.slopes and not self.gates:
            return bits
        return (totals if self.slopes else []) + (gates if self.gates else [])

    def check_results(self, results: list[int]) -> None:
        """Require that the results are those of the values, whose last bits are rounded up or down."""
        for i, parts in enumerate(zip(*self.summands, strict=True)):
            z = _signed(sum(parts))
            found = [_signed(results[i + self.count * k]) for k in range(self.outputs)]
            if not self.thresholds:
                require(found[0] - (z >> self.shift) in (0, 1), "the truncation is off by more than one")
                continue
            above = [int(z >= threshold << self.shift) for threshold in self.thresholds]
            if not self.slopes and not self.gates:
                require(found == above, "the comparisons are wrong")
            if self.slopes:
                right = [
                    self.start
                    + sum(
                        slope * bit * ((z >> self.shift) + up - threshold)
                        for slope, bit, threshold in zip(self.slopes, above, self.thresholds, strict=True)
                    )
                    for up in (0, 1)
                ]
                require(found[0] in right, "the curve's value is wrong")
            if self.gates:
                gate = sum(factor * bit for factor, bit in zip(self.gates, above, strict=True))
                require(found[-1] == gate, "the curve's gate is wrong")


def _run_masked(group: Fields, test: Fields) -> dict[str, Any]:
    run = _Run(group, test)
    sent, c = run.open_words()
    out: dict[str, Any] = {"openings": [_format_words(words) for words in sent]}
    dealt1: list[int] = []
    if run.has_value:
        words = [r >> run.shift for r in run.mask] + [r >> 63 for r in run.mask]
        dealt1 = [word - own for word, own in zip(words, run.dealt0, strict=True)]
        out["dealtWords"] = _format_words(dealt1)
    answers1: list[int] = []
    if run.thresholds:
        bits1, rows, words = run.compare(c)
        answers1 = [word - own for word, own in zip(words, run.answers0, strict=True)]
        out["dealtBits"] = [bytes(row).hex() for row in bits1]
        out["rows"] = [[bytes(row).hex() for row in part] for part in rows]
        out["answers"] = _format_words(answers1)
    mine = [
        [word - own for word, own in zip(run.result_summands(c, *given, first=not k), masks, strict=True)]
        for k, (given, masks) in enumerate(
            (((run.dealt0, run.answers0), run.results0), ((dealt1, answers1), run.results2))
        )
    ]
    middle = [a + b for a, b in zip(*mine, strict=True)]
    shares = [run.results0, middle, run.results2]
    run.check_results([sum(words) % WORD for words in zip(*shares, strict=True)])
    return out | {
        "results": [_format_words(words) for words in mine],
        "shares": [_format_words(words) for words in shares],
    }


COMPUTE = {"MaskedRun": _run_masked}

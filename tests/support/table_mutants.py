"""Tables with random mistakes, as people and programs make them: of a CSV text, and of the bytes of any file."""

from __future__ import annotations

import random

__all__ = ["changed_bytes", "changed_csv"]

_VALUES = (
    *(
        "",
        " ",
        "NA",
        "NULL",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-1e-999",
        "0x10",
        "1,5",
        "1.234,5",
        "1 000",
        "１２",
    ),
    *("true", "false", "yes", "J", "2020-02-30", "30.02.2020", "1970-01-01T00:00:00Z", "99999999999999999999999"),
    *(
        '"',
        '""',
        '"a',
        'a"b',
        "a;b",
        "a\tb",
        "=1+1",
        "\u200b",
        "\ufeff",
        "e\u0301",
        "é",
        "💳",
        "\x00",
        "\r",
        "x" * 5000,
    ),
    *("9" * 400, "-0", "+1", ".5", "5.", "1e5", "€ 5", "5 %", "<script>", "None", "null", "[]", "{}"),
)


def changed_csv(text: str, seed: int) -> bytes:
    """A CSV text with one to four mistakes."""
    rng = random.Random(seed)
    lines = text.splitlines()
    for _ in range(rng.randint(1, 4)):
        lines = _mistake(lines, rng) or [""]
    newline = rng.choice(["\n"] * 6 + ["\r\n", "\r", "\n\n"])
    whole = newline.join(lines) + rng.choice(["", newline])
    kind = rng.randrange(12)
    if kind == 0:
        return whole.encode("utf-16")
    if kind == 1:
        return b"\xef\xbb\xbf" + whole.encode()
    if kind == 2:
        return whole.encode("latin-1", "replace")
    if kind == 3:
        return changed_bytes(whole.encode(), seed)
    return whole.encode()


def _mistake(lines: list[str], rng: random.Random) -> list[str]:  # noqa: PLR0911  # a mistake each
    kind, at = rng.randrange(14), rng.randrange(max(len(lines), 1))
    cells = lines[at].split(",") if lines else [""]
    place = rng.randrange(len(cells))
    if kind <= 4:
        cells[place] = rng.choice(_VALUES)
        return [*lines[:at], ",".join(cells), *lines[at + 1 :]]
    if kind == 5:  # a whole column
        value = rng.choice(_VALUES)
        rows = [line.split(",") for line in lines[1:]]
        for row in rows:
            if rng.random() < 0.9 and place < len(row):
                row[place] = value
        return [*lines[:1], *(",".join(row) for row in rows)]
    if kind == 6:
        return [*lines[:at], *lines[at : at + 1] * 2, *lines[at + 1 :]]
    if kind == 7:
        return lines[:at] + lines[at + 1 :]
    if kind == 8:  # a field too many or too few
        changed = [*cells, rng.choice(_VALUES)] if rng.random() < 0.5 else cells[:-1]
        return [*lines[:at], ",".join(changed), *lines[at + 1 :]]
    if kind == 9:
        head = lines[0].split(",") if lines else [""]
        head[rng.randrange(len(head))] = rng.choice([*head, *_VALUES])
        return [",".join(head), *lines[1:]]
    if kind == 10:
        return [line.replace(",", rng.choice(";\t|: ")) for line in lines]
    if kind == 11:
        return lines[: rng.randrange(3)]
    if kind == 12:
        return [lines[0], *rng.sample(lines[1:], len(lines) - 1)] if len(lines) > 1 else lines
    return [*lines[:at], rng.choice(["", ",,,,", "# a comment", "total,,,", "\x00"]), *lines[at:]]


def changed_bytes(data: bytes, seed: int) -> bytes:
    """Bytes of which some are others, are missing, come twice, or stand elsewhere."""
    rng = random.Random(seed)
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at, end = sorted((rng.randrange(len(out) + 1), rng.randrange(len(out) + 1)))
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[rng.randrange(len(out))] = rng.randrange(256)
        elif kind == 1:
            del out[at : min(end, at + rng.randint(1, 40))]
        elif kind == 2:
            out[at:at] = out[at : min(end, at + 30)]
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.randint(1, 12))
        else:
            del out[at + (end - at) // 2 + len(out) // 2 :]
    return bytes(out)

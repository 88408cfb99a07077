"""Two tables on one machine. Whoever runs it has both sets, so nothing is hidden from anybody."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from securevfl_psi.endpoint import run_in_process
from securevfl_psi.errors import SmallIntersectionError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.terms import Terms

from securevfl_psi_cli.party import end_of
from securevfl_psi_cli.result_file import require_writable, write_csv
from securevfl_psi_cli.spelling_hints import more_matches
from securevfl_psi_cli.summary import format_count
from securevfl_psi_cli.table import Missing, Table
from securevfl_psi_cli.table_rows import MAX_BYTES

__all__ = ["TableComparison", "compare_tables"]


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """What was found.

    Attributes:
        a, b: the files.
        rows_a, rows_b: how many rows of them take part.
        dropped_a, dropped_b: how many were left out, as their identifier is missing.
        common: rows in both.
        verified: each end proved each of the common rows to the other.
        seconds: that the protocol took for both sides, one after the other.
        out: the file that was written, or None.
        hints: what other rules would find, in words.
    """

    a: str
    b: str
    rows_a: int
    rows_b: int
    dropped_a: int
    dropped_b: int
    common: int
    verified: bool
    seconds: float
    out: str | None
    hints: tuple[str, ...] = ()

    def as_json(self) -> str:
        """All fields as one JSON object."""
        return json.dumps(asdict(self) | {"seconds": round(self.seconds, 3)}, indent=2)

    def format_title(self) -> str:
        """The result in one line."""
        return (
            f"{format_count(self.common, 'common row')} of {self.rows_a:,} in {self.a} and {self.rows_b:,} in {self.b}"
        )

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        return [
            ("private", "no: both tables are on this machine, and whoever runs this sees both"),
            ("verified", "each end of the protocol proved each common row to the other"),
            *(
                [
                    (
                        "left out",
                        f"without an identifier: {format_count(self.dropped_a, 'row')} of A, {self.dropped_b:,} of B",
                    )
                ]
                if self.dropped_a or self.dropped_b
                else []
            ),
            ("took", f"{self.seconds:.2f} s for both sides"),
            *([("written", self.out)] if self.out else []),
            *[("hint", hint) for hint in self.hints],
        ]


def compare_tables(
    one: Path,
    other: Path,
    columns_a: Sequence[str],
    columns_b: Sequence[str],
    delimiter: str,
    rules: IdRules,
    least: int,
    out: Path | None,
    *,
    missing: Missing = Missing.refuse,
    max_bytes: int = MAX_BYTES,
) -> TableComparison:
    """Runs `dh` between two ends in this process.

    Args:
        one, other: files, CSV or Parquet.
        columns_a, columns_b: that make an identifier.
        delimiter: between fields.
        rules: how to normalise.
        least: fewer common rows are an error.
        out: where number in A, number in B and identifier of each common row go, by their number in A.
        missing: what becomes of rows without an identifier.
        max_bytes: most bytes that are read of either, unpacked.

    Raises:
        InputError, IdentifierError: tables that cannot be used.
        SmallIntersectionError: fewer common rows than demanded.
    """
    if out:
        require_writable(out, one, other)
    a, b = (
        Table.read(path, columns, delimiter, missing=missing, max_bytes=max_bytes)
        for path, columns in ((one, columns_a), (other, columns_b))
    )
    left = end_of(a, Terms(name="A", peer="B", role="receiver", rules=rules, min_intersection=least))
    right = end_of(b, Terms(name="B", peer="A", role="sender", rules=rules, min_intersection=least))
    started = time.perf_counter()
    try:
        run_in_process(left, right)
    except SmallIntersectionError as error:
        hints = more_matches(a, b, rules)
        raise SmallIntersectionError(f"{error} {'; '.join(hints)}".rstrip()) from None
    seconds = time.perf_counter() - started
    rows_a, rows_b = left.result.rows, right.result.rows
    if rows_a is None or rows_b is None:  # never, where both learn
        raise RuntimeError("an end of the protocol was not told the common rows")
    if out:
        pairs = sorted(zip(rows_a.tolist(), rows_b.tolist(), strict=True))
        found = ([a.numbers[i], b.numbers[j], *a.row_fields(i)] for i, j in pairs)
        write_csv(out, ["row_a", "row_b", *columns_a], found, delimiter)
    return TableComparison(
        a=str(one),
        b=str(other),
        rows_a=len(a.ids),
        rows_b=len(b.ids),
        dropped_a=a.dropped,
        dropped_b=b.dropped,
        common=len(rows_a),
        verified=left.result.verified and right.result.verified,
        seconds=seconds,
        out=str(out) if out else None,
        hints=tuple(more_matches(a, b, rules)),
    )

"""Formats of table files, known by name or by first bytes. The readers of tables and the PSI's commands share them."""

from __future__ import annotations

__all__ = ["GZIP", "PARQUET", "foreign_format"]

PARQUET = (".parquet", ".pq")
"""File name endings of Parquet."""
GZIP = b"\x1f\x8b"
"""First bytes of a file that gzip compressed (RFC 1952, section 2.3.1)."""
_SHEET = "save the sheet as CSV (in Excel: CSV UTF-8), and name that file"
_FOREIGN = (
    (b"PK\x03\x04", f"an Excel workbook or a ZIP archive, not CSV text: {_SHEET}"),
    (b"\xd0\xcf\x11\xe0", f"an old Excel workbook (.xls), not CSV text: {_SHEET}"),
    (b"PAR1", "a Parquet file: give it a name that ends in .parquet"),
    (b"ARROW1", "an Arrow file, not CSV text: save the table as CSV or Parquet, or give it a name that ends in .arrow"),
    (GZIP, "compressed with gzip: give it a name that ends in .csv.gz"),
    (b"BZh", "compressed with bzip2, not CSV text: decompress it, or give it a name that ends in .csv.bz2"),
)
"""First bytes of files often mistaken for CSV, with the name of their format and the cure."""


def foreign_format(head: bytes) -> str | None:
    """Return what a file is instead of CSV, with the cure; None if its first bytes may be CSV.

    Args:
        head: its first bytes, at least 6 of them if there are so many.
    """
    return next((what for first, what in _FOREIGN if head.startswith(first)), None)

"""Tables for the growth table: three parties with 30 columns each, the same people, each party in an order of its own;
written some rows at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["COLUMNS", "PARTIES", "write_tables"]

PARTIES = ("bank", "network", "shop")
COLUMNS = 30
_PART = 1 << 18


def write_tables(folder: Path, rows: int) -> None:
    """Write ``PARTY.parquet`` for each party unless the folder has all of them: ``id`` (texts of 11 letters), ``x0`` …
    ``x29`` (float64), and at the bank ``late`` (0 or 1, which its first two columns tell with noise)."""
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    folder.mkdir(parents=True, exist_ok=True)
    for number, party in enumerate(PARTIES):
        path, partial = folder / f"{party}.parquet", folder / f"{party}.partial"
        if path.exists():
            continue
        rng = np.random.default_rng([number, rows])
        people = rng.permutation(rows)
        names = [f"x{i}" for i in range(COLUMNS)]
        fields = [("id", pa.string()), *((name, pa.float64()) for name in names)]
        fields += [("late", pa.int64())] if not number else []
        with pa_parquet.ParquetWriter(partial, pa.schema(fields), compression="none", use_dictionary=False) as writer:
            for start in range(0, rows, _PART):
                part = people[start : start + _PART]
                x = rng.standard_normal((COLUMNS, len(part)), dtype=np.float32).astype(np.float64) * np.pi + 40
                columns = {"id": [f"c{one:010d}" for one in part.tolist()], **dict(zip(names, x, strict=True))}
                if not number:
                    columns["late"] = (x[0] - x[1] + rng.normal(size=len(part)) * 5 > 0).astype(np.int64)
                writer.write_table(pa.table(columns, schema=pa.schema(fields)))
        partial.rename(path)

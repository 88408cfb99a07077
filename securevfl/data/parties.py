"""The tables of a simulation's parties, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from securevfl.data.frames import Ids, tables_of_frames
from securevfl.data.table import PartyTable
from securevfl.errors import InputError, UnknownNameError

__all__ = ["Parties", "wrong_id_columns"]


class Parties(Mapping[str, PartyTable]):
    """The tables of all parties. One party has labels; several only for `MultiVFL`.

    Args:
        tables: the parties' tables, each under its name.
        description: description of the data and its licence.
        active: name of the active party if it has no labels, for prediction.

    Raises:
        InputError: no table, a repeated name, no labels, or label owners with differently ordered classes.
    """

    def __init__(self, tables: Mapping[str, PartyTable], *, description: str = "", active: str = "") -> None:
        self._tables = dict(tables)
        self.description = description
        if active and active not in self._tables:
            raise UnknownNameError("party", active, self._tables)
        self._labelled = (
            [active] if active else [name for name, table in self._tables.items() if table.label is not None]
        )
        if not self._labelled:
            raise InputError(
                f"none of {len(self._tables)} parties owns labels; give label=… for the one that does; to "
                f"predict without labels, name the active party: active={next(iter(self._tables), '')!r} "
                "(--active)"
            )
        _check_id_columns(self._tables.values())
        first, *others = self.label_owners
        for table in others:
            if table.classes != first.classes:
                raise InputError(
                    f"{first.name!r} has classes {list(first.classes)} and {table.name!r} "
                    f"{list(table.classes)}; give each of them the same classes=[…], in the same order"
                )

    @classmethod
    def of(cls, *tables: PartyTable, description: str = "", active: str = "") -> Parties:
        """Build it from the parties' tables."""
        names = [table.name for table in tables]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise InputError(f"two parties are named {doubled[0]!r}; give each a different name")
        return cls({table.name: table for table in tables}, description=description, active=active)

    @classmethod
    def from_pandas(
        cls,
        frames: Mapping[str, Any],
        *,
        id: Ids | Mapping[str, Ids],
        label: Ids | None = None,
        active: str = "",
        prepare: Any = "auto",
        **options: Any,
    ) -> Parties:
        """Build it from pandas DataFrames.

        Args:
            frames: party → its DataFrame; the index is ignored.
            id: the identifier column, or party → its identifier column.
            label: the label column, in exactly one frame, whose party becomes the active one; or several columns of
                zeros and ones, for several labels per row; None for rows to score, whose labels nobody knows.
            active: without a label, name of the party that asks for scores.
            prepare: how all parties prepare columns; None allows only numbers and categories without gaps.
            options: further arguments of `read_table`, for all parties; those on labels go only to the active one.

        Raises:
            InputError: lists every mistake in any of the frames.
        """
        tables = tables_of_frames("pandas", frames, id, label, {"prepare": prepare, **options})
        return cls.of(*tables, active=active)

    @classmethod
    def from_polars(
        cls,
        frames: Mapping[str, Any],
        *,
        id: Ids | Mapping[str, Ids],
        label: Ids | None = None,
        active: str = "",
        prepare: Any = "auto",
        **options: Any,
    ) -> Parties:
        """Build it from polars DataFrames; arguments and errors as for `from_pandas`."""
        tables = tables_of_frames("polars", frames, id, label, {"prepare": prepare, **options})
        return cls.of(*tables, active=active)

    @classmethod
    def from_arrow(
        cls,
        frames: Mapping[str, Any],
        *,
        id: Ids | Mapping[str, Ids],
        label: Ids | None = None,
        active: str = "",
        prepare: Any = "auto",
        **options: Any,
    ) -> Parties:
        """Build it from `pyarrow` tables; arguments and errors as for `from_pandas`."""
        tables = tables_of_frames("arrow", frames, id, label, {"prepare": prepare, **options})
        return cls.of(*tables, active=active)

    @property
    def active(self) -> PartyTable:
        """The only party with labels.

        Raises:
            InputError: several parties have labels.
        """
        if len(self._labelled) > 1:
            raise InputError(
                f"of {len(self)} parties, {', '.join(self._labelled)} own labels, but exactly one may (several "
                "only for sv.MultiVFL): give label=… for one table only"
            )
        return self._tables[self._labelled[0]]

    @property
    def passive(self) -> list[PartyTable]:
        """The parties without labels."""
        return [table for name, table in self._tables.items() if name not in self._labelled]

    @property
    def label_owners(self) -> list[PartyTable]:
        """All parties with labels."""
        return [self._tables[name] for name in self._labelled]

    def __getitem__(self, name: str) -> PartyTable:
        if name not in self._tables:
            raise UnknownNameError("party", name, self._tables)
        return self._tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        lines = [f"{len(self)} parties" + (f": {self.description}" if self.description else "")]
        for table in self._tables.values():
            label = f", label {table.label_name}" if table.label is not None else ""
            columns = ", ".join(table.feature_names[:6]) + (", …" if len(table.feature_names) > 6 else "")
            lines.append(
                f"  {table.name:<12} {table.role:<8} {table.rows:>7,} rows, {len(table.columns):>3} columns "
                f"({columns}){label}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """One row per party, for notebooks; shows no values of a table."""
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:left">{escape(cell)}</td>'
                for cell in (
                    table.name,
                    table.role,
                    f"{table.rows:,}",
                    f"{len(table.columns):,}",
                    ", ".join(table.feature_names[:6]) + (", …" if len(table.feature_names) > 6 else ""),
                    "" if table.label is None else table.label_name,
                )
            )
            + "</tr>"
            for table in self._tables.values()
        )
        titles = ("party", "role", "rows", "columns", "", "label")
        head = "".join(f'<th style="text-align:left">{title}</th>' for title in titles)
        above = f"<div>{escape(self.description)}</div>" if self.description else ""
        return f"<div>{above}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _check_id_columns(tables: Iterable[PartyTable]) -> None:
    """Check that all parties build identifiers from the same number of columns in the same order.

    Raises:
        InputError: they do not, so no rows would match.
    """
    wrong = wrong_id_columns({table.name: table.id_columns for table in tables if table.id_columns and not table.link})
    if wrong:
        raise InputError(wrong)


def wrong_id_columns(columns: Mapping[str, Sequence[str]]) -> str:
    """Explain why no rows would match if parties build identifiers from different columns; empty if they agree.

    Args:
        columns: party → its identifier columns.
    """
    said = "; ".join(f"{name!r} of {', '.join(some)}" for name, some in columns.items())
    if len({len(some) for some in columns.values()}) > 1:
        return (
            f"the parties make identifiers from different numbers of columns, so no rows would match: {said}: "
            "give id = […] with the same number of columns at each party, in the same order"
        )
    if len({tuple(some) for some in columns.values()}) > len({frozenset(some) for some in columns.values()}):
        return (
            "the parties make identifiers from the same columns in different orders, so no rows would match: "
            f"{said}: use one order"
        )
    return ""

"""The command `link`: records without a common identifier, compared between processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from securevfl_psi.errors import InputError, LinkageError
from securevfl_psi.linkage.clk import normal_columns
from securevfl_psi.linkage.placeholders import find_placeholders
from securevfl_psi.linkage.witnesses import check_witnesses

from securevfl_psi_cli.channel import parse_address
from securevfl_psi_cli.link_fields import blocks_of, schema_of
from securevfl_psi_cli.link_plan import LinkPlan, require_linker
from securevfl_psi_cli.linking import run_link
from securevfl_psi_cli.mesh import meet_all
from securevfl_psi_cli.options import Delimiter, Json, MostBytes, Out, RowsShown
from securevfl_psi_cli.party import Watch
from securevfl_psi_cli.record_table import Records
from securevfl_psi_cli.reporting import print_summary, report_errors
from securevfl_psi_cli.result_file import require_writable
from securevfl_psi_cli.several import parse_named, parse_neighbours
from securevfl_psi_cli.table_rows import MAX_BYTES

__all__ = ["link_command"]


def link_command(
    name: Annotated[str, typer.Option(help="This party's name.")],
    linker: Annotated[str, typer.Option(help="Who compares: a third party, or one of both; all name the same.")],
    at: Annotated[str, typer.Option(help="HOST:PORT where this party listens.")],
    peer: Annotated[list[str], typer.Option(help="NAME=HOST:PORT of another party; one for each.")],
    peer_cert: Annotated[list[str], typer.Option(help="NAME=FILE, that party's certificate; one for each.")],
    cert: Annotated[Path, typer.Option(help="This party's certificate, PEM.")],
    key: Annotated[Path, typer.Option(help="Its key, PEM.")],
    table: Annotated[
        Path | None, typer.Argument(help="This party's table, CSV or .parquet; none at a third party that compares.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            help="NAME=text, code, date, date-month-first or number, then :WEIGHT, then ,salt=OTHER, and of a number "
            ",step=STEP,reach=REACH; one for each field.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", help="FIELD=COLUMN, where a column has another name than the field.")
    ] = None,
    block: Annotated[
        list[str] | None, typer.Option(help="Compare only pairs that share one: 'surname:sound+born:4', 'zip', …")
    ] = None,
    witness: Annotated[
        list[str] | None,
        typer.Option(help="Fields that are enough to know a person by, 'surname+born'; twice, for recall. See docs."),
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option(help="Do not look for one person twice in the table.")] = False,
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="At the linker: least similarity.")] = None,
    precision: Annotated[
        float | None, typer.Option(min=0, max=1, help="At the linker: least estimated precision, for the threshold.")
    ] = None,
    accepted: Annotated[
        bool, typer.Option("--the-linker-may-test-guesses", help="Needed where the linker has records itself.")
    ] = False,
    delimiter: Delimiter = ",",
    max_bytes: MostBytes = MAX_BYTES,
    max_set_size: Annotated[int, typer.Option(min=1, help="Most records of a party.")] = 1 << 22,
    context: Annotated[str, typer.Option(help="What the run is for; all must say the same.")] = "",
    wait: Annotated[float, typer.Option(min=0.1, help="Seconds until all must be there.")] = 600.0,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for the run, once all are there.")] = 3600.0,
    out: Out = None,
    rows: Annotated[
        RowsShown, typer.Option(help="Names and numbers of linked rows, or whole rows.")
    ] = RowsShown.numbers,
    json: Json = False,
) -> None:
    """Link records without a common identifier with another party's, over mutual TLS. Weaker than an intersection."""
    with report_errors(Watch()) as err:
        others = parse_neighbours(name, cert, key, peer, peer_cert, least=1)
        if len(others) > 2:
            raise InputError(
                f"{len(others)} --peer; the other party and, where a third one compares, that one are needed"
            )
        plan = LinkPlan(
            name=name,
            linker=linker,
            names=tuple(sorted([name, *others])),
            context=context,
            deduplicate=not keep_duplicates,
            threshold=threshold,
            precision=precision,
            max_set_size=max_set_size,
        )
        require_linker(plan, accepted)
        if name != linker and (threshold is not None or precision is not None):
            raise InputError(f"--threshold and --precision are the linker's, {linker!r}: give them there")
        if threshold is not None and precision is not None:
            raise InputError("--threshold and --precision; give one of them, or neither")
        records = None
        if name in plan.record_parties:
            rules = block or (), witness or ()
            plan, records = _read_records(plan, table, fields or (), columns or (), rules, delimiter, max_bytes)
            if out:
                require_writable(out, records.path)
        elif table is not None or fields or block or witness or out:
            raise InputError("a third party that compares has no table, --field, --block, --witness or --out")
        with ExitStack() as stack:

            def print_line(text: str) -> None:
                err.print(text, markup=False, highlight=False, soft_wrap=True)

            for hint in () if records is None else find_placeholders(records.table, list(records.table)):
                print_line(f"Note: {hint}")
            socks = meet_all(name, parse_address(at, "--at"), others, stack, wait=wait, timeout=60.0, say=print_line)
            found = run_link(plan, records, socks, deadline=deadline)
        if out and records is not None:
            records.write(out, found.links, whole=rows == RowsShown.full)
            found = replace(found, out=str(out))
        if json:
            typer.echo(found.as_json())
        else:
            print_summary(found.format_title(), found.format_lines())


def _read_records(
    plan: LinkPlan,
    table: Path | None,
    fields: Sequence[str],
    columns: Sequence[str],
    rules: tuple[Sequence[str], Sequence[str]],
    delimiter: str,
    max_bytes: int,
) -> tuple[LinkPlan, Records]:
    """What a party with records brings."""
    if table is None or not fields:
        raise InputError(f"{plan.name!r} has records: give its table, and --field for each field that is compared")
    schema = schema_of(fields)
    names = {one.name: one.name for one in schema.fields}
    given = parse_named(columns, "--column", "FIELD=COLUMN")
    if set(given) - set(names):
        raise InputError(f"--column {min(set(given) - set(names))}: no --field has that name ({', '.join(names)})")
    records = Records.read(table, names | given, delimiter, max_rows=plan.max_set_size, max_bytes=max_bytes)
    try:
        normal_columns(records.table, [(one.name, one) for one in schema.fields])
    except LinkageError as error:
        raise InputError(f"{table}: {error}") from None
    sets = blocks_of(rules[1], schema, "--witness")
    try:
        if sets:
            check_witnesses(sets)
    except LinkageError as error:
        raise InputError(f"--witness: {error}") from None
    return replace(plan, schema=schema, rules=blocks_of(rules[0], schema), witnesses=sets), records

"""The commands of an unbalanced intersection: `publish` and `answer` at the large side, `ask` at a small one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from securevfl_psi.identifiers import IdRules

from securevfl_psi_cli.answering import clients_of, publish_filter, serve_clients
from securevfl_psi_cli.asking import ask_server
from securevfl_psi_cli.channel import parse_address
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.options import (
    Absent,
    Column,
    Delimiter,
    Fold,
    Form,
    FormOption,
    Json,
    KeepSpace,
    MostBytes,
    Numeric,
    Out,
    RowsShown,
    Squeeze,
)
from securevfl_psi_cli.party import Watch
from securevfl_psi_cli.reporting import print_summary, report_errors
from securevfl_psi_cli.several import parse_named
from securevfl_psi_cli.summary import format_bytes, format_count
from securevfl_psi_cli.table import ONE_SESSION, Missing, Table
from securevfl_psi_cli.table_rows import MAX_BYTES

__all__ = ["answer_command", "ask_command", "publish_command"]

Seconds = Annotated[float, typer.Option(min=0.1, help="Seconds of silence after which the other side is lost.")]
_TABLE = typer.Argument(help="This party's table: CSV (UTF-8, with a header; .gz too) or .parquet.")


def publish_command(
    table: Annotated[Path, _TABLE],
    column: Column,
    name: Annotated[str, typer.Option(help="This party's name.")],
    filter_to: Annotated[Path, typer.Option("--filter", help="Where the filter goes, which clients get.")],
    state: Annotated[Path, typer.Option(help="Where key and counts go, secret.")],
    hours: Annotated[float, typer.Option(min=0.001, max=87600, help="Until the filter expires.")] = 24.0,
    max_queries: Annotated[int, typer.Option(min=1, help="Most identifiers that one client may ask.")] = 1000,
    bits: Annotated[int, typer.Option(min=20, max=60, help="An identifier is taken for one by chance in 2^bits.")] = 40,
    delimiter: Delimiter = ",",
    missing: Absent = Missing.refuse,
    max_bytes: MostBytes = MAX_BYTES,
    casefold: Fold = False,
    no_strip: KeepSpace = False,
    squeeze: Squeeze = False,
    numeric: Numeric = False,
    form: FormOption = Form.NFKC,
) -> None:
    """Make the filter of a large table once, for many small clients; 'answer' serves it."""
    with report_errors(Watch()):
        rules = _make_rules(form, no_strip, casefold, squeeze, numeric, column)
        read = Table.read(table, column, delimiter, missing=missing, max_rows=ONE_SESSION, max_bytes=max_bytes)
        made = publish_filter(
            read, rules, name=name, hours=hours, most=max_queries, bits=bits, filter_to=filter_to, state_to=state
        )
        print_summary(
            f"A filter of {format_count(len(made.hashes.values), 'identifier')}, for {hours:g} hours",
            [
                (
                    "filter",
                    f"{filter_to}, {format_bytes(filter_to.stat().st_size)}: 'answer' gives it to clients",
                ),
                ("state", f"{state}: keep it here; with it and the filter anybody can list the set"),
                ("clients", f"may ask {format_count(max_queries, 'identifier')} each"),
            ],
        )


def answer_command(
    filter_from: Annotated[Path, typer.Argument(metavar="FILTER", help="What publish wrote.")],
    state: Annotated[Path, typer.Option(help="What publish wrote, secret; counts go into it.")],
    client: Annotated[list[str], typer.Option(help="NAME=CERTIFICATE of a client that may ask; one for each.")],
    cert: Annotated[Path, typer.Option(help="This party's certificate, PEM.")],
    key: Annotated[Path, typer.Option(help="Its key, PEM.")],
    at: Annotated[str, typer.Option(help="HOST:PORT where this party listens.")] = "127.0.0.1:9000",
    sessions: Annotated[
        int | None, typer.Option(min=1, help="End after so many clients; else when the filter expires.")
    ] = None,
    wait: Annotated[float | None, typer.Option(min=0.1, help="Seconds from the start for clients to come.")] = None,
    timeout: Seconds = 60.0,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for one client.")] = 600.0,
) -> None:
    """Answer clients that 'ask', one after the other, over mutual TLS, until the filter expires."""
    with report_errors(Watch()) as err:
        asked = serve_clients(
            filter_from,
            state,
            clients_of(cert, key, parse_named(client, "--client", "NAME=CERTIFICATE")),
            at=parse_address(at, "--at"),
            sessions=sessions,
            wait=wait,
            timeout=timeout,
            deadline=deadline,
            say=lambda text: err.print(text, markup=False, highlight=False, soft_wrap=True),
        )
        print_summary(
            "Done", [(name, f"asked {format_count(number, 'identifier')}") for name, number in sorted(asked.items())]
        )


def ask_command(
    table: Annotated[Path, _TABLE],
    column: Column,
    name: Annotated[str, typer.Option(help="This party's name, as the server calls it.")],
    server: Annotated[str, typer.Option(help="The server's name.")],
    cert: Annotated[Path, typer.Option(help="This party's certificate, PEM.")],
    key: Annotated[Path, typer.Option(help="Its key, PEM.")],
    peer_cert: Annotated[Path, typer.Option(help="The server's certificate, PEM.")],
    at: Annotated[str, typer.Option(help="HOST:PORT where the server listens.")] = "127.0.0.1:9000",
    kept: Annotated[Path | None, typer.Option("--filter", help="Where the filter is kept for the next time.")] = None,
    delimiter: Delimiter = ",",
    missing: Absent = Missing.refuse,
    max_bytes: MostBytes = MAX_BYTES,
    casefold: Fold = False,
    no_strip: KeepSpace = False,
    squeeze: Squeeze = False,
    numeric: Numeric = False,
    form: FormOption = Form.NFKC,
    max_set_size: Annotated[int, typer.Option(min=1, help="Most rows of the server's.")] = ONE_SESSION,
    wait: Annotated[float, typer.Option(min=0.1, help="Seconds until the server must answer the call.")] = 30.0,
    timeout: Seconds = 60.0,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for the whole run.")] = 600.0,
    out: Out = None,
    rows: Annotated[RowsShown, typer.Option(help="Row numbers and identifiers, or whole rows.")] = RowsShown.numbers,
    json: Json = False,
) -> None:
    """Ask a server with a large set, that 'answer's, which of this small table's identifiers it has."""
    with report_errors(Watch()):
        rules = _make_rules(form, no_strip, casefold, squeeze, numeric, column)
        read = Table.read(table, column, delimiter, missing=missing, max_rows=ONE_SESSION, max_bytes=max_bytes)
        found = ask_server(
            read,
            rules,
            Pins.load(cert, key, {server: peer_cert}),
            name=name,
            server=server,
            at=parse_address(at, "--at"),
            kept=kept,
            max_set_size=max_set_size,
            wait=wait,
            timeout=timeout,
            deadline=deadline,
            out=out,
            shown=rows,
        )
        if json:
            typer.echo(found.as_json())
        else:
            print_summary(found.format_title(), found.format_lines())


def _make_rules(form: Form, no_strip: bool, casefold: bool, squeeze: bool, numeric: bool, column: list[str]) -> IdRules:
    return IdRules(
        form=form.value,
        strip=not no_strip,
        casefold=casefold,
        squeeze=squeeze,
        numeric=numeric,
        columns=len(column),
    )

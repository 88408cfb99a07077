"""The commands. Exit codes are those of `securevfl`, in `securevfl_net.exit_codes`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer
from securevfl_crypto.inspection import inspect_engine
from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.errors import InputError
from securevfl_psi.identifiers import IdRules
from typer.main import get_command

from securevfl_psi_cli.calibration import calibrate
from securevfl_psi_cli.channel import parse_address
from securevfl_psi_cli.comparison import compare_tables
from securevfl_psi_cli.credentials import make_certificate
from securevfl_psi_cli.link_app import link_command
from securevfl_psi_cli.options import (
    Absent,
    Column,
    Delimiter,
    Fold,
    Form,
    FormOption,
    Json,
    KeepSpace,
    Least,
    MostBytes,
    Numeric,
    Options,
    Out,
    RowsShown,
    Squeeze,
    take_options,
)
from securevfl_psi_cli.party import Watch, run_two_party
from securevfl_psi_cli.reporting import exit_code, print_summary, report_errors
from securevfl_psi_cli.several import parse_neighbours, run_several
from securevfl_psi_cli.shards.party import run_sharded
from securevfl_psi_cli.table import ONE_SESSION, Missing, Table
from securevfl_psi_cli.table_rows import MAX_BYTES
from securevfl_psi_cli.unbalanced_app import answer_command, ask_command, publish_command

__all__ = ["app", "exit_code", "run_command"]

app = typer.Typer(
    name="psi",
    help="Find the rows that two tables have in common, without revealing the others.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _run_command(options: Options, *, listens: bool) -> None:
    watch = Watch()
    with report_errors(watch) as err:
        watch.least = options.min_intersection
        if options.shard_key is not None and options.shards is None:
            raise InputError("--shard-key without --shards: add --shards with a number or 'auto'")
        run = run_two_party if options.shards is None else run_sharded
        summary = run(options, watch, err, listens=listens)
        if options.json:
            typer.echo(summary.as_json())
        else:
            print_summary(summary.format_title(), summary.format_lines())


def _listen(options: Options) -> None:
    """Wait for the other party, compare with it once, and end."""
    _run_command(options, listens=True)


def _connect(options: Options) -> None:
    """Call a party that listens, and compare with it."""
    _run_command(options, listens=False)


app.command("listen")(take_options(_listen))
app.command("connect")(take_options(_connect))


@app.command("compare")
def _compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A table: CSV (UTF-8, with a header; .gz too) or .parquet.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    column: Column,
    column_b: Annotated[
        list[str] | None, typer.Option("--id-b", help="Column of B, if it has another name; as often as --id.")
    ] = None,
    delimiter: Delimiter = ",",
    missing: Absent = Missing.refuse,
    max_bytes: MostBytes = MAX_BYTES,
    casefold: Fold = False,
    no_strip: KeepSpace = False,
    squeeze: Squeeze = False,
    numeric: Numeric = False,
    form: FormOption = Form.NFKC,
    min_intersection: Least = 1,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare two tables on this machine: for tests, and for somebody whom both parties trust with their tables."""
    watch = Watch(least=min_intersection)
    with report_errors(watch):
        columns = column_b or column
        if len(columns) != len(column):
            raise InputError(
                f"--id is given {len(column)} times and --id-b {len(columns)}: name as many columns of each"
            )
        rules = IdRules(
            form=form.value,
            strip=not no_strip,
            casefold=casefold,
            squeeze=squeeze,
            numeric=numeric,
            columns=len(column),
        )
        found = compare_tables(
            one,
            other,
            column,
            columns,
            delimiter,
            rules,
            min_intersection,
            out,
            missing=missing,
            max_bytes=max_bytes,
        )
        if json:
            typer.echo(found.as_json())
        else:
            print_summary(found.format_title(), found.format_lines())


@app.command("several")
def _several(
    table: Annotated[Path, typer.Argument(help="This party's table: CSV (UTF-8, with a header; .gz too) or .parquet.")],
    column: Column,
    name: Annotated[str, typer.Option(help="This party's name.")],
    leader: Annotated[str, typer.Option(help="The party that compares; all name the same.")],
    at: Annotated[str, typer.Option(help="HOST:PORT where this party listens.")],
    peer: Annotated[list[str], typer.Option(help="NAME=HOST:PORT of another party; one for each.")],
    peer_cert: Annotated[list[str], typer.Option(help="NAME=FILE, that party's certificate; one for each.")],
    cert: Annotated[Path, typer.Option(help="This party's certificate, PEM.")],
    key: Annotated[Path, typer.Option(help="Its key, PEM.")],
    delimiter: Delimiter = ",",
    missing: Absent = Missing.refuse,
    max_bytes: MostBytes = MAX_BYTES,
    casefold: Fold = False,
    no_strip: KeepSpace = False,
    squeeze: Squeeze = False,
    numeric: Numeric = False,
    form: FormOption = Form.NFKC,
    min_intersection: Least = 1,
    max_set_size: Annotated[int, typer.Option(min=1, help="Most rows that another may announce.")] = MAX_SET_SIZE,
    context: Annotated[str, typer.Option(help="What the run is for; all must say the same.")] = "",
    wait: Annotated[float, typer.Option(min=0.1, help="Seconds until all must be there.")] = 600.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds of silence after which all are lost.")] = 60.0,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for the run, once all are there.")] = 3600.0,
    out: Out = None,
    rows: Annotated[RowsShown, typer.Option(help="Row numbers and identifiers, or whole rows.")] = RowsShown.numbers,
    json: Json = False,
) -> None:
    """Compare with two or more others at once: which rows do all have? Each party runs this, all over mutual TLS."""
    watch = Watch(least=min_intersection)
    with report_errors(watch) as err:
        others = parse_neighbours(name, cert, key, peer, peer_cert)
        here = parse_address(at, "--at")
        rules = IdRules(
            form=form.value,
            strip=not no_strip,
            casefold=casefold,
            squeeze=squeeze,
            numeric=numeric,
            columns=len(column),
        )
        most = max_set_size if max_set_size > MAX_SET_SIZE else ONE_SESSION
        read = Table.read(table, column, delimiter, missing=missing, max_rows=most, max_bytes=max_bytes)
        found = run_several(
            read,
            rules,
            others,
            name=name,
            leader=leader,
            at=here,
            context=context,
            least=min_intersection,
            max_set_size=max_set_size,
            wait=wait,
            timeout=timeout,
            deadline=deadline,
            out=out,
            shown=rows,
            console=err,
        )
        if json:
            typer.echo(found.as_json())
        else:
            print_summary(found.format_title(), found.format_lines())


@app.command("certificate")
def _certificate(
    name: Annotated[str, typer.Option(help="This party's name.")],
    folder: Annotated[Path, typer.Option("--out", help="Where the two files go.")] = Path("."),
    days: Annotated[int, typer.Option(help="Until it expires.")] = 365,
) -> None:
    """Make a key and a certificate of this party; the peer gets the certificate, nobody the key."""
    with report_errors(Watch()):
        certificate, key, digits = make_certificate(name, folder, days)
        print_summary(
            f"A certificate of {name}, for {days} days",
            [
                ("certificate", f"{certificate}: give it to the peer, who names it in --peer-cert"),
                ("key", f"{key}: keep it here; only you can read it"),
                ("fingerprint", digits),
                ("", "Read the fingerprint to the peer over the telephone: both must see the same."),
            ],
        )


@app.command("engine")
def _engine() -> None:
    """Show which kernels compute here: the CPU's class, the path, the libraries' hashes, and the self-test's result."""
    with report_errors(Watch()):
        print_summary("The engine of this machine", inspect_engine())


@app.command("calibrate")
def _calibrate() -> None:
    """Measure the speed of this machine for --protocol auto, and show the figures that peers get."""
    with report_errors(Watch()):
        speed, file = calibrate()
        print_summary(
            "The speed of this machine", [*speed.format_lines(), ("kept in", str(file or "nothing: no home"))]
        )


app.command("link")(link_command)
app.command("publish")(publish_command)
app.command("answer")(answer_command)
app.command("ask")(ask_command)


def run_command(arguments: list[str] | None = None) -> None:
    """Run the command that these arguments, or the process's own, name."""
    _command()(args=arguments, prog_name="securevfl-psi")


@lru_cache(maxsize=1)
def _command() -> Any:
    """All commands, built once for all runs in this process."""
    return get_command(app)

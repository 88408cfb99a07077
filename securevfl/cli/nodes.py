"""Commands of a node: one daemon for all agreements of an organisation."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError, Parked, SecureVFLError

if TYPE_CHECKING:
    from securevfl.agreement import Agreement, PartyFile
    from securevfl.node.node_file import NodeEntry, NodeFile

__all__: list[str] = []

node = typer.Typer(
    help="Run one daemon for all agreements of an organisation: a queue, a process each, one port.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(node, name="node")

_Folder = Annotated[Path, typer.Argument(help="The node's folder.")]
_Name = Annotated[str, typer.Argument(help="The agreement's name in the node.")]


def _say(line: str) -> None:
    terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


@node.command("init")
def init_command(
    folder: _Folder,
    organisation: Annotated[str, typer.Option(help="Whose node it is, for people; default: the folder's name.")] = "",
    listen: Annotated[str, typer.Option(help="Address at which all peers call.")] = "0.0.0.0:7443",
) -> None:
    """Make a node's folder with its node.toml."""
    from securevfl.node.node_file import init_node

    path = init_node(folder, organisation or folder.absolute().name, listen)
    _say(f"{path} says where the node listens and how much runs at once: read it, then: securevfl node run {folder}")


@node.command("run")
def run_command(folder: _Folder) -> None:
    """Run the daemon until Ctrl-C or SIGTERM (exit code 75); started again, it goes on with everything."""
    from securevfl.node.node_file import lock_node, read_node

    file = read_node(folder)
    with lock_node(folder):
        asyncio.run(_run(file))
    raise typer.Exit(Parked.exit_code)


async def _run(file: NodeFile) -> None:
    from securevfl.node.daemon import Node
    from securevfl.node.listing import NodeMetrics
    from securevfl.process.metrics import serve_metrics
    from securevfl.process.operations import stop_on_signals

    daemon = Node(file, _log)
    with ExitStack() as held:
        if file.metrics is not None:
            metrics = NodeMetrics(lambda: daemon.status)
            port = held.enter_context(serve_metrics(metrics, file.metrics.port, host=file.metrics.host))
            _log("listening", f"metrics are at http://{file.metrics.host}:{port}/metrics")
        held.enter_context(stop_on_signals(daemon.stop))
        await daemon.run()


def _log(event: str, words: str) -> None:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, "words": words}
    print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)


@node.command("add")
def add_command(
    folder: _Folder,
    agreement: Annotated[Path, typer.Argument(help="The agreement, approved by this party.")],
    file: Annotated[Path, typer.Option(help="The party's own file, TOML; nobody else sees it.")],
    name: Annotated[str, typer.Option(help="Its name in the node; default: the agreement file's.")] = "",
    serve: Annotated[bool, typer.Option("--serve", help="Serve the model once it is trained.")] = False,
    serving: Annotated[Path | None, typer.Option(help="With --serve: the party's serving file.")] = None,
    memory: Annotated[float, typer.Option(help="Gigabytes that it needs, for the node's limit.", min=0)] = 0.0,
) -> None:
    """Check an agreement as `approve` does, and put it into the node's queue; the daemon need not run."""
    from securevfl.agreement import check_proposal, check_versions, require_peers
    from securevfl.node.node_file import NodeEntry, read_entries, read_node, write_entry
    from securevfl.node.record import read_records

    read_node(folder)
    entries = read_entries(folder)
    known = read_records(folder).get(name or agreement.stem)
    entry = NodeEntry(
        name=name or agreement.stem,
        resumed=0 if known is None else known.resumed + 1,  # removed a moment ago: what it was then does not count
        agreement=agreement.absolute(),
        file=file.absolute(),
        serve=serve,
        serving=None if serving is None else serving.absolute(),
        memory=memory,
    )
    if entry.name in entries:
        raise InputError(f"the node has an agreement {entry.name!r} already: give another name with --name")
    found, own = entry.read_files()
    check_versions(found)
    check_proposal(found.proposal, own, datetime.now(UTC)).raise_refusals()
    require_peers(found, own)
    if serving is not None:
        from securevfl.serving.settings import read_serving_file

        read_serving_file(serving)
        if not serve:
            raise InputError("--serving goes with --serve")
    for other in entries.values():
        _require_other(other, found, own)
    write_entry(folder, entry)
    waits = [one for one in found.proposal.party_names if one not in found.approvals]
    _say(f"{entry.name} is in the queue" + (f"; not approved yet by {', '.join(waits)}" if waits else ""))


def _require_other(other: NodeEntry | InputError, agreement: Agreement, own: PartyFile) -> None:
    """Refuse an agreement that the node has under another name, and a state folder that is another's.

    Raises:
        InputError: it is one of them.
    """
    if isinstance(other, InputError):
        return
    try:
        known, theirs = other.read_files()
    except (SecureVFLError, OSError):  # a mistake in another one's files
        return
    if (known.digest, theirs.party) == (agreement.digest, own.party):
        raise InputError(f"{other.name!r} is this agreement, with the party {own.party!r}: it is in the node already")
    if os.path.realpath(theirs.state) == os.path.realpath(own.state):
        raise InputError(f"{own.state} is the state folder of {other.name!r}: give each agreement its own, `state`")


@node.command("list")
def list_command(
    folder: _Folder, as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False
) -> None:
    """Show the queue: what runs, waits, serves, is finished, or needs a person and why."""
    from securevfl.node.listing import listing_table, read_listing

    found = read_listing(folder)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    if not found["alive"]:
        _say("The node does not run; this is what it was doing.")
    terminal.out.print(listing_table(found))


@node.command("pause")
def pause_command(folder: _Folder, name: _Name) -> None:
    """Stop an agreement's process in good order, and start it no more until `resume`."""
    from securevfl.node.node_file import write_entry

    write_entry(folder, _find(folder, name, paused=True))
    _say(f"{name} is paused")


@node.command("resume")
def resume_command(folder: _Folder, name: _Name) -> None:
    """Let a paused agreement, or one that needed a person, run again."""
    from securevfl.node.node_file import write_entry

    write_entry(folder, _find(folder, name, paused=False))
    _say(f"{name} is in the queue again")


@node.command("remove")
def remove_command(folder: _Folder, name: _Name) -> None:
    """Stop an agreement's process, and take it out of the node. The party's files stay where they are."""
    from securevfl.node.node_file import read_entries, read_node

    read_node(folder)
    _require_known(name, read_entries(folder))
    (folder / "agreements" / f"{name}.toml").unlink()
    _say(f"{name} is removed; its state folder and files are where they were")


def _require_known(name: str, entries: Mapping[str, object]) -> None:
    if name not in entries:
        raise InputError(f"the node has no agreement {name!r}; it has {', '.join(entries) or 'none'}")


def _find(folder: Path, name: str, *, paused: bool) -> NodeEntry:
    from dataclasses import replace

    from securevfl.node.node_file import read_entries, read_node

    read_node(folder)
    entries = read_entries(folder)
    _require_known(name, entries)
    entry = entries[name]
    if isinstance(entry, InputError):
        raise entry
    return replace(entry, paused=paused, resumed=entry.resumed + (not paused))

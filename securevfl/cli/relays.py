"""The command that runs a relay."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl_net.relay import RelayServer

__all__: list[str] = []


@app.command("relay")
def relay_command(
    listen: Annotated[str, typer.Option(help="Address, host:port; port 0 lets the system choose.")] = "",
    tokens: Annotated[Path | None, typer.Option(help="Private file: customer and token digest per line.")] = None,
    connections: Annotated[int, typer.Option(help="Maximum simultaneous connections in total.", min=2)] = 512,
    per_customer: Annotated[int, typer.Option(help="Maximum simultaneous connections per token.", min=1)] = 64,
    per_address: Annotated[int, typer.Option(help="Maximum simultaneous connections per address.", min=1)] = 64,
    attempts: Annotated[int, typer.Option(help="Maximum new connections per minute and address.", min=1)] = 120,
    gigabytes_a_day: Annotated[float, typer.Option(help="Maximum per token.", min=0.000001)] = 1024.0,
    megabytes_a_second: Annotated[float, typer.Option(help="Maximum per connection.", min=0.001)] = 1024.0,
    waiting: Annotated[float, typer.Option(help="Seconds to wait for the other party.", min=0.1)] = 60.0,
    idle: Annotated[float, typer.Option(help="Seconds without a byte after which a pair is closed.", min=1.0)] = 300.0,
    new_token: Annotated[str, typer.Option(help="Make a token, NAME.token, and print the relay's line for it.")] = "",
    new_meeting: Annotated[bool, typer.Option("--new-meeting", help="Print a new meeting id.")] = False,
) -> None:
    """Forward TLS between parties that both dial out. The relay cannot decrypt it, writes nothing to disk and logs no
    content.
    """
    if new_meeting:
        typer.echo(secrets.token_hex(32))
        return
    if new_token:
        _make_token(new_token)
        return
    if not listen or tokens is None:
        raise InputError("a relay needs --listen HOST:PORT and --tokens FILE; make a token with --new-token NAME")
    import asyncio

    from securevfl_net.dialers import Address, Listen
    from securevfl_net.relay import Limits, RelayServer, Tokens

    limits = Limits(
        connections=connections,
        per_customer=per_customer,
        per_address=per_address,
        attempts=attempts,
        bytes_a_day=int(gigabytes_a_day * 1e9),
        bytes_a_second=max(1, int(megabytes_a_second * 1e6)),
        waiting=waiting,
        idle=idle,
    )
    known = Tokens.read(tokens)
    server = RelayServer(Listen(Address.parse(listen)).open_sockets(), known, limits, _log)
    asyncio.run(_serve(server))


async def _serve(server: RelayServer) -> None:
    import asyncio
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.create_task(server.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    for host, port in server.addresses:
        _log({"event": "listening", "host": host, "port": port})
    try:
        await task
    except asyncio.CancelledError:
        _log({"event": "stopped"})


def _log(event: Mapping[str, object]) -> None:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
    print(json.dumps(line), file=sys.stderr, flush=True)


def _make_token(name: str) -> None:
    from securevfl_net.fields.names import explain_bad_name
    from securevfl_net.identity.files import write_new
    from securevfl_net.relay.introduction import TOKEN, key_of

    if mistake := explain_bad_name(name):
        raise InputError(mistake)
    token, path = secrets.token_bytes(TOKEN), Path(f"{name}.token")
    write_new(path, f"{token.hex()}\n".encode(), private=True)
    for line in (
        f"{path} lets {name} use the relay: keep it to yourself. The relay's operator adds this line to its tokens:",
        f"{name} {key_of(token).hex()}",
    ):
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)

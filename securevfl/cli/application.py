"""The application that each command group extends, with the commands of `securevfl_psi` as a subgroup."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import securevfl as sv

__all__ = ["app"]

_ORDER = (
    "demo",
    "check",
    "stats",
    "policy",
    "run",
    "predict",
    "export",
    "drift",
    "explain",
    "report",
    "runs",
    "sweep",
    "attack",
    "audit",
    "dossier",
    "card",
    "propose",
    "approve",
    "agreement",
    "readmit",
    "party",
    "status",
    "node",
    "keys",
    "certs",
    "relay",
    "engine",
    "psi",
)


class _Ordered(TyperGroup):
    """Lists commands in the order in which a new user needs them; unnamed ones come before the last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        place = {name: number for number, name in enumerate(_ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: place.get(name, len(_ORDER) - 1.5))


app = typer.Typer(
    name="securevfl",
    cls=_Ordered,
    help="Vertical federated learning that is private, provable and fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class _PSICommands(TyperGroup):
    """The commands of `securevfl_psi`, loaded on first use."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the loaded group, which replaces this one."""
        from securevfl_psi_cli.app import app as commands

        whole = typer.Typer(rich_markup_mode=None)
        whole.add_typer(commands, name="psi")
        group: Any = typer.main.get_group(whole).commands["psi"]
        return group.make_context(info_name, args, parent=parent, **extra)


app.add_typer(
    typer.Typer(cls=_PSICommands, help="Find the rows that two tables have in common, without revealing the others."),
    name="psi",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"securevfl {sv.__version__}")
        raise typer.Exit

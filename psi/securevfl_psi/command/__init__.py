"""The command `securevfl psi`, also `securevfl-psi` and ``python -m securevfl_psi``, which import no torch."""

from securevfl_psi.command.app import app, main

__all__ = ["app", "main"]

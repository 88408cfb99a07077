"""The command `securevfl psi`, also `securevfl-psi` and ``python -m securevfl_psi_cli``: sockets, files and options
around the protocols of `securevfl_psi`. It imports no torch.

`byte_stream` moves bytes over a connection, and `frame_stream` the frames of parties that take turns; `driver` and
`mesh` run a protocol's state machine over them; `channel` and `listening` connect two parties; `table_rows`
reads tables for `table` and `record_table`; `party`, `several`, `answering`, `asking`, `linking` and `shards` run one
party of each kind of comparison; `app` and `options` are the command line, which `main` loads, so that a program
that takes one of the others does not wait for it.
"""

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `securevfl-psi` and ``python -m securevfl_psi_cli``."""
    from securevfl_psi_cli.app import run_command

    run_command(arguments)

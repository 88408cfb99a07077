"""Our side of the two-process benchmark: one party's run of `dh` or `ot` over a connected socket."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import numpy as np
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.terms import Protocol, Role, Terms
from securevfl_psi_cli.driver import run_endpoint

__all__ = ["run_party", "run_transfer"]

_ROLES: tuple[Role, Role] = ("receiver", "sender")


def run_party(role: str, sock: socket.socket, ids: Sequence[str]) -> np.ndarray | None:
    """This party's rows of the common identifiers, in the order that both share, by `dh`."""
    return _run(role, sock, ids, "dh")


def run_transfer(role: str, sock: socket.socket, ids: Sequence[str]) -> np.ndarray | None:
    """The same by `ot`."""
    return _run(role, sock, ids, "ot")


def _run(role: str, sock: socket.socket, ids: Sequence[str], protocol: Protocol) -> np.ndarray | None:
    mine, other = _ROLES if role == "receiver" else _ROLES[::-1]
    endpoint = Endpoint(ids, Terms(name=mine, peer=other, role=mine, protocol=protocol, max_set_size=1 << 24))
    run_endpoint(endpoint, sock, timeout=600)
    return endpoint.result.rows

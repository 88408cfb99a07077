"""Checks whether a Ray cluster may be used. Ray executes any code that an admitted client sends.

So the toolkit uses a cluster only if the cluster requires a token of its clients, or is reachable only through this
machine's loopback. Outside private addresses it also requires TLS, since an eavesdropper who reads the token could run
programs on the cluster.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from securevfl_crypto.errors import PoolError

__all__ = ["check_access", "check_closed", "has_token", "on_this_machine", "split_address"]

_TLS = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_REFUSED, _OPEN = "refused", "open"
_PROBE = f"""
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).internal_kv_keys(b"", namespace=None, timeout=20)
    print({_OPEN!r})
except Exception as error:
    print({_REFUSED!r} if "InvalidAuthToken" in str(error) or "nauthenticated" in str(error) else str(error)[:400])
"""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a cluster's head.

    Raises:
        PoolError: the address has another form than HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535 or "/" in host:
        raise PoolError(
            f"{address!r} is not the address of a Ray cluster; give its head as HOST:PORT, such as 10.0.0.5:6379"
        )
    return host, int(port)


def on_this_machine(address: str) -> bool:
    """Whether an address, HOST:PORT, is a loopback address, which no other machine can reach."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_access(address: str, environment: Mapping[str, str] = os.environ) -> None:
    """Check that this process has the token and TLS settings that a cluster's address requires. Sends nothing.

    Args:
        address: HOST:PORT of the cluster's head.
        environment: the variables from which Ray reads its settings.

    Raises:
        PoolError: the cluster is on another machine and no token is set; or it has a public address or a host name, and
            TLS is not set up.
    """
    if on_this_machine(address):
        return
    host, _ = split_address(address)
    try:
        private = ipaddress.ip_address(host).is_private
    except ValueError:  # a host name may resolve to any address, so it counts as public
        private = False
    if not has_token(environment):
        raise PoolError(
            f"no token is set for the Ray cluster at {address}: anybody who can reach an open cluster can run programs "
            "on it. Start the cluster with RAY_AUTH_MODE=token, and set the same RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH "
            "here"
        )
    if not private and (environment.get("RAY_USE_TLS") != "1" or not all(environment.get(name) for name in _TLS)):
        raise PoolError(
            f"the Ray cluster at {address}, which is not a private address, is used without TLS: an eavesdropper who "
            f"reads the token could run programs on it. Set RAY_USE_TLS=1, {', '.join(_TLS)} here and on all nodes, or "
            "give a private address as a number"
        )


def check_closed(address: str) -> None:
    """Check that a cluster refuses clients without a token, by connecting from a fresh process that has none.

    This process's own connection would prove nothing, since it sends a token.

    Raises:
        PoolError: the cluster admits clients without a token, or cannot be reached.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, a constant program, and a checked address
            [sys.executable, "-c", _PROBE, address],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        found = done.stdout.strip().rpartition("\n")[2] or "no answer"
    except subprocess.TimeoutExpired:
        found = "no answer within 60 s"
    if found == _REFUSED:
        return
    if found == _OPEN:
        raise PoolError(
            f"the Ray cluster at {address} admits clients without a token: anybody who can reach it could run programs "
            "on it. Restart it with RAY_AUTH_MODE=token on all nodes"
        )
    raise PoolError(f"cannot reach a Ray cluster at {address} ({found}): check the address, the port and TLS")


def has_token(environment: Mapping[str, str]) -> bool:
    """Whether Ray would send a token."""
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        return False
    if environment.get("RAY_AUTH_TOKEN"):
        return True
    path = environment.get("RAY_AUTH_TOKEN_PATH")
    return (Path(path) if path else Path.home() / ".ray" / "auth_token").is_file()

"""Whether a Ray cluster may be used: what Ray executes is whatever a client sends that it lets in.

So a cluster is used only if it asks its clients for a token, unless it is reached by this machine's loopback alone; and
beyond private addresses only over TLS, as a token that is read on the way opens the cluster to its reader.
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
            f"a Ray cluster at {address!r}; give the address of its head as HOST:PORT, such as 10.0.0.5:6379"
        )
    return host, int(port)


def on_this_machine(address: str) -> bool:
    """Whether an address, HOST:PORT, is one of the loopback, which no other machine reaches."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_access(address: str, environment: Mapping[str, str] = os.environ) -> None:
    """Check that this process is set up to reach a cluster as its address demands, before anything is sent to it.

    Args:
        address: HOST:PORT of the cluster's head.
        environment: where Ray reads its settings.

    Raises:
        PoolError: the cluster is on another machine and no token is set; or at a public address or behind a host name,
            and TLS is not set up.
    """
    if on_this_machine(address):
        return
    host, _ = split_address(address)
    try:
        private = ipaddress.ip_address(host).is_private
    except ValueError:  # a name: where it leads is for others to say
        private = False
    if not has_token(environment):
        raise PoolError(
            f"a Ray cluster at {address} without a token: whoever reaches an open cluster can run programs on it. "
            "Start the cluster with RAY_AUTH_MODE=token, and set the same RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH here"
        )
    if not private and (environment.get("RAY_USE_TLS") != "1" or not all(environment.get(name) for name in _TLS)):
        raise PoolError(
            f"a Ray cluster at {address}, which is no private address, without TLS: a token that is read on the way "
            f"opens the cluster to its reader. Set RAY_USE_TLS=1, {', '.join(_TLS)} here and on all nodes, or give a "
            "private address as a number"
        )


def check_closed(address: str) -> None:
    """Check that a cluster turns away whoever has no token: a fresh process tries, for a token in this one proves
    nothing.

    Raises:
        PoolError: it lets anybody in, or cannot be reached.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, a program of ours, and an address that was checked
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
            f"the Ray cluster at {address} lets in whoever reaches it, without a token: anybody could run programs on "
            "it. Start it again with RAY_AUTH_MODE=token on all nodes"
        )
    raise PoolError(f"no Ray cluster can be reached at {address} ({found}): check the address, the port and TLS")


def has_token(environment: Mapping[str, str]) -> bool:
    """Whether Ray would send a token."""
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        return False
    if environment.get("RAY_AUTH_TOKEN"):
        return True
    path = environment.get("RAY_AUTH_TOKEN_PATH")
    return (Path(path) if path else Path.home() / ".ray" / "auth_token").is_file()

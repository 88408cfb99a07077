#!/opt/securevfl/bin/python -I
"""Exit code 0 while this container's process answers: metrics of a party or a server, or the port of a relay.

HEALTH is `http://127.0.0.1:9464/metrics` unless it is set; `tcp://127.0.0.1:7443` asks whether a port is open.
"""

import os
import socket
import sys
import urllib.request
from urllib.parse import urlsplit


def healthy(address: str, timeout: float = 3.0) -> bool:
    """Whether something answers."""
    where = urlsplit(address)
    try:
        if where.scheme == "tcp":
            with socket.create_connection((where.hostname, where.port), timeout):
                return True
        with urllib.request.urlopen(address, timeout=timeout) as answer:  # noqa: S310 - the operator's own setting
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ.get("HEALTH", "http://127.0.0.1:9464/metrics")) else 1)

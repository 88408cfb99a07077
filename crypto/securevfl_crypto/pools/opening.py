"""Opens a pool from its text in a job file or on a command line."""

from __future__ import annotations

from securevfl_crypto.errors import PoolError
from securevfl_crypto.pools.base import Pool
from securevfl_crypto.pools.cluster import split_address
from securevfl_crypto.pools.local import LocalPool
from securevfl_crypto.pools.on_ray import RayPool
from securevfl_crypto.pools.process import MOST_WORKERS, ProcessPool

__all__ = ["POOLS", "check_pool", "open_pool"]

POOLS = (
    '"local"; "process:N" for N processes of this machine; "ray" for a Ray cluster that is started here; '
    '"ray:HOST:PORT" for one that runs'
)
"""The forms that `open_pool` accepts, for messages and help."""


def check_pool(text: str) -> str:
    """Check that `open_pool` accepts a text, without opening anything; returns the text.

    Raises:
        PoolError: the text has another form.
    """
    kind, colon, rest = text.partition(":")
    if kind == "local" and not colon:
        return text
    if kind == "process" and rest.isascii() and rest.isdigit() and 1 <= int(rest) <= MOST_WORKERS:
        return text
    if kind == "ray":
        if colon:
            split_address(rest)
        return text
    raise PoolError(f"unknown pool {text!r}; expected {POOLS} (N from 1 to {MOST_WORKERS})")


def open_pool(text: str) -> Pool:
    """Open the pool that a text describes.

    Args:
        text: ``"local"``: tasks run in this process. ``"process:2"``: in two processes on this machine. ``"ray"``: on a
            Ray cluster that this call starts on this machine. ``"ray:10.0.0.5:6379"``: on the running cluster with this
            head.

    Raises:
        PoolError: the text has another form, or the cluster cannot be used; see `RayPool`.
    """
    kind, _, rest = check_pool(text).partition(":")
    if kind == "ray":
        return RayPool(rest or None)
    return LocalPool() if kind == "local" else ProcessPool(int(rest))

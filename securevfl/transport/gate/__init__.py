"""The gate: a process of its own that owns sockets, the TLS key and the sessions, and the program's end of it.

A program that computes does not hold up its gate, and a program that hangs is not called alive by it: signs of life
carry what the gate saw of the program. The two speak over a socketpair; when one of them dies the party is dead.
Importing this folder loads neither torch nor numpy; its process starts in a fraction of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.transport.gate.channel import NetworkChannel
    from securevfl.transport.gate.network import NetworkMesh
    from securevfl.transport.gate.settings import Address, Route, Timing

_NAMES = {"channel": "NetworkChannel", "network": "NetworkMesh", "settings": "Address Route Timing"}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["Address", "NetworkChannel", "NetworkMesh", "Route", "Timing"]

if not TYPE_CHECKING:  # the gate's own process takes its part of this folder, the program the other

    def __getattr__(name: str) -> object:
        """Load a name on first use (PEP 562)."""
        if name in _MODULES:
            value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

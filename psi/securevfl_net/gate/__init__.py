"""The gate: a separate process that owns a party's sockets, its TLS key and its sessions.

A program that computes does not block its gate, and a gate does not report a hanging program as alive: its heartbeats
carry what it observed of the program. The two communicate over a socket pair; if one of them dies, the party is dead.
The program's end is in `securevfl.transport` (`network_mesh`, `network_channel`).
"""

from securevfl_net.gate.settings import Address, Route, Timing

__all__ = ["Address", "Route", "Timing"]

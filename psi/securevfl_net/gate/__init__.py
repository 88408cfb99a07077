"""The gate: a process of its own that owns a party's sockets, its TLS key and its sessions.

A program that computes does not block its gate, and a gate does not report a program that hangs as alive: its signs of
life carry what it saw of the program. The two speak over a socket pair; when one of them dies, the party is dead.
The program's end is in `securevfl.transport` (`network_mesh`, `network_channel`).
"""

from securevfl_net.gate.settings import Address, Route, Timing

__all__ = ["Address", "Route", "Timing"]

"""Connections between parties: who they are, how they reach each other, and sessions that survive a broken line.

This package moves bytes and does not interpret them. It loads neither torch nor numpy.

- `identity`: certificates, pinned peers, TLS 1.3 and the handshake that names why a peer was refused.
- `session`: the state machine of one connection that comes and goes. No sockets, no clock, no threads.
- `gate`: a separate process that owns the sockets, the TLS key and the sessions.
- `dialers`, `relay`: ways to reach a peer: directly, through a proxy, or through a blind relay.
- `durable`: files that a crash or a full disk cannot corrupt. `fields`: values of configurations, checked.
- `errors`: the exception tree of the toolkit.
"""

"""One port for many parties: read whom a caller calls, and hand its connection over to that party's gate.

The front holds no key and decrypts nothing: it looks at the first bytes without taking them, see
`securevfl_net.entrance`.
"""

from securevfl_net.front.server import Front

__all__ = ["Front"]

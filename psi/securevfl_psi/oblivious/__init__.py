"""Private set intersection by oblivious transfer extension.

- `common`: the protocol, what is proved and assumed, and what both ends have; `client` and `server`, over arrays.
- `base`: the 512 base transfers, those of `securevfl_crypto.transfer`.
- `extension`: from them to a million rows, with the check of codewords; over the `code`.
"""

from securevfl_psi.oblivious.client import OTClient
from securevfl_psi.oblivious.common import row_count, token_bytes
from securevfl_psi.oblivious.server import OTServer

__all__ = ["OTClient", "OTServer", "row_count", "token_bytes"]

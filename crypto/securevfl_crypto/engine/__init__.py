"""A batch engine: kernels over structures of arrays, eight or four lanes at a time, compiled for this machine's CPU.

`emitter` writes LLVM IR and proves bounds; `field`, `field52` and `field25` are the arithmetic; `ladder`, `elligator`
and `sha512` the kernels; `compiled` compiles and `vector` runs them; `scalar` takes libraries instead; `cpu` and
`choice` choose. `limbs`, `columns`, `montgomery`, `rows`, `walks`, `batches` and `packing` are arithmetic modulo long
numbers, for Paillier; `compiled_long` compiles it, and `securevfl_crypto.moduli` offers it.
"""

from securevfl_crypto.engine.base import Engine
from securevfl_crypto.engine.choice import available, engine
from securevfl_crypto.engine.cpu import PATHS
from securevfl_crypto.engine.emitter import BoundError

__all__ = ["PATHS", "BoundError", "Engine", "available", "engine"]

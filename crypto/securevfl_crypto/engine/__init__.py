"""A batch engine: kernels over structures of arrays, four or eight lanes at a time, compiled for classes of CPUs.

- The compiler: `values` and `emitter` write LLVM IR and prove bounds. `build` compiles it ahead of time into one shared
  object for each class, through `llvm`, and checks it with `elf`. At run time `library` loads it; `parts` is what both
  share.
- Curve25519 and SHA-512: `field`, `field52`, `field51` and `doubles` are the arithmetic, `ladder`, `elligator` and
  `sha512` the kernels, `compiled` lists them. `base` states the interface (`Engine`), `vector` runs the kernels, and
  `scalar` calls libraries instead.
- Numbers of thousands of bits, for Paillier: `products52` multiplies in doubles where there is no IFMA; `limbs`,
  `columns`, `tiles` and `reductions` are the arithmetic,
  `montgomery` and `pairs` the products, `rows`, `batches`, `tables` and `conversions` the kernels; `compiled_long`
  lists them, and `securevfl_crypto.modular` offers them.
- Numbers modulo 2^64, for shares: `octets` emits arithmetic on rows of octets, `comparison` and `ring_products` are the
  kernels, `compiled_ring` lists them, and `securevfl_crypto.ring` offers them.
- `cpu` knows this machine's features and settings, `quota` how many cores it may use; `choice` takes the fastest path
  that works, by `paths`.

This folder imports `elligator2` and `errors`. `securevfl_psi` uses what it exports; within this package only `modular`
and `ring` may import it, module by module.
"""

from securevfl_crypto.engine.base import Engine
from securevfl_crypto.engine.choice import available_paths, choose_engine
from securevfl_crypto.engine.cpu import PATHS
from securevfl_crypto.engine.library import describe_kernels
from securevfl_crypto.engine.quota import usable_cores
from securevfl_crypto.engine.values import BoundError

__all__ = ["PATHS", "BoundError", "Engine", "available_paths", "choose_engine", "describe_kernels", "usable_cores"]

"""Number-theoretic transforms of polynomials modulo X^N + 1 and primes below 2^50.

`rings` is what callers use: polynomials as residues modulo several primes, transformed, multiplied and added. `base` is
the interface of the inner loops, `roots` their constants, `portable` the loops in numpy, `compiled` those on the
engine's kernels, and `paths` the choice between them. All paths return the same numbers.
"""

from securevfl_crypto.transforms.paths import transform_loops
from securevfl_crypto.transforms.rings import TransformRing

__all__ = ["TransformRing", "transform_loops"]

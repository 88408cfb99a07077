"""Kernels of number-theoretic transforms: `modular` arithmetic in doubles, `butterflies` on it, and the part."""

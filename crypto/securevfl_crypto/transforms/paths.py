"""Chooses the path of the transforms: the fastest that this machine can run and that passes its self-test."""

from __future__ import annotations

import secrets
from functools import lru_cache

import numpy as np

from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, check_cpu
from securevfl_crypto.engine.paths import load_chosen, load_named
from securevfl_crypto.errors import EngineError
from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.portable import PortableTransformLoops
from securevfl_crypto.transforms.roots import Roots, roots_of

__all__ = ["check_transform_loops", "transform_loops"]

_PRIME, _DEGREE = (1 << 50) - (1 << 14) + 1, 4096


def transform_loops(path: str | None = None) -> TransformLoops:
    """The inner loops of a path.

    Args:
        path: one of `engine.PATHS`; those without kernels compute with numpy. None: the path that ``SECUREVFL_ENGINE``
            named at first use, or the fastest that works here.

    Raises:
        EngineError: the requested path is unknown, cannot run here, or fails its self-test.
    """
    return _chosen() if path is None else load_named(path, _load, PortableTransformLoops)


@lru_cache(maxsize=1)
def _chosen() -> TransformLoops:
    return load_chosen(_load, PortableTransformLoops, stacklevel=4)


@lru_cache(maxsize=len(VECTOR_PATHS))
def _load(path: VectorPath) -> TransformLoops:
    check_cpu(path)
    from securevfl_crypto.engine.transforms.compiled import transform_kernels
    from securevfl_crypto.transforms.compiled import CompiledTransformLoops

    found = CompiledTransformLoops(transform_kernels(path))
    check_transform_loops(found)
    return found


def check_transform_loops(candidate: TransformLoops) -> None:
    """Check every loop against numpy on fresh random input, and on the largest numbers.

    Raises:
        EngineError: the path computes a wrong result.
    """
    roots, right = roots_of(_PRIME, _DEGREE), PortableTransformLoops()
    words = np.frombuffer(secrets.token_bytes(8 * 2 * _DEGREE), dtype=np.uint64).reshape(2, _DEGREE)
    values = np.concatenate([words % np.uint64(_PRIME), np.full((1, _DEGREE), _PRIME - 1, dtype=np.uint64)])
    for found, expected in zip(_compute_all(candidate, values, roots), _compute_all(right, values, roots), strict=True):
        if not np.array_equal(found, expected):
            raise EngineError(
                f"the path {candidate.name!r} computes transforms wrongly on this machine; set "
                "SECUREVFL_ENGINE=cryptography and report it"
            )


def _compute_all(loops: TransformLoops, values: np.ndarray, roots: Roots) -> list[np.ndarray]:
    transformed, back, total = np.empty_like(values), np.empty_like(values), values[0].copy()
    loops.forward(transformed, values.view(np.int64), roots)
    loops.inverse(back, values, roots)
    loops.add_products(total, values, values[::-1], roots)
    return [transformed, back, total]

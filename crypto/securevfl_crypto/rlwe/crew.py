"""A pool that works on parts of messages, cut along tiles: what the party does of it. Workers do `tasks`.

A part of a message is a message of fewer tiles, so a worker has halves of its own, made from the key's bytes and the
block, and runs the same code on less. The key is sent to a worker once: a task is handed the key's digest first, and
answers that it lacks the key if it has no half for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import cast

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.pools import Pool
from securevfl_crypto.pools.messages import pack_arguments, unpack_arguments

__all__ = ["DONE", "LACKING", "Crew", "pack_array", "unpack_array"]

LACKING, DONE = b"?", b"="
"""How an answer begins: there is no half for this key here, or an array follows."""
_TASKS = "securevfl_crypto.rlwe.tasks"


def pack_array(array: np.ndarray) -> bytes:
    """An array of int64, uint64, uint8 or integers of any size, as bytes."""
    if array.dtype == object:
        flat = [int(value) for value in array.ravel()]
        width = max((value.bit_length() for value in flat), default=0) // 8 + 1
        return pack_arguments(
            ["", width, *array.shape, b"".join(v.to_bytes(width, "little", signed=True) for v in flat)]
        )
    return pack_arguments([array.dtype.str, 0, *array.shape, array.tobytes()])


def unpack_array(data: bytes) -> np.ndarray:
    """Read what `pack_array` wrote."""
    kind, width, *rest = unpack_arguments(data)
    shape, body = cast("list[int]", rest[:-1]), cast(bytes, rest[-1])
    if kind:
        return np.frombuffer(body, dtype=np.dtype(str(kind))).reshape(shape).copy()
    size = int(width)
    found = np.empty(len(body) // size, dtype=object)
    found[:] = [int.from_bytes(body[i : i + size], "little", signed=True) for i in range(0, len(body), size)]
    return found.reshape(shape)


class Crew:
    """A pool that works on parts of messages under one key.

    Args:
        pool: the workers.
        scheme: the scheme's name.
        block: the sizes of the integers.
        digest: names the key.
        key: makes the key's bytes, for workers that lack it.
    """

    def __init__(self, pool: Pool, scheme: str, block: Block, digest: str, key: Callable[[], bytes]) -> None:
        self.parts = pool.workers
        self._pool, self._digest, self._key = pool, digest, key
        self._half = json.dumps([scheme, asdict(block)])

    def run_task(self, task: str, parts: Sequence[Sequence[np.ndarray | int]]) -> list[np.ndarray]:
        """The answers to the parts, in their order."""
        packed = [[part if isinstance(part, int) else pack_array(part) for part in given] for given in parts]
        futures = [self._pool.submit(f"{_TASKS}:{task}", self._half, self._digest, b"", *given) for given in packed]
        answers = []
        try:
            for future, given in zip(futures, packed, strict=True):
                answer = future.result()
                if answer[:1] == LACKING:
                    again = self._pool.submit(f"{_TASKS}:{task}", self._half, self._digest, self._key(), *given)
                    answer = again.result()
                answers.append(unpack_array(answer[1:]))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return answers

    def cut_tiles(self, tiles: Sequence[slice]) -> list[list[slice]]:
        """Tiles of an axis in as many groups as there are workers, or fewer."""
        groups = np.array_split(np.arange(len(tiles)), min(self.parts, len(tiles)))
        return [[tiles[i] for i in group] for group in groups]

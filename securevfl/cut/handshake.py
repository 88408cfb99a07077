"""What both sides of a cut tell each other before training, and the check of what arrives later."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from securevfl.cut.spec import CutSpec
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.transport import Array, Kind, Scalar

__all__ = ["announce_width", "check_shape", "check_width", "read_key", "read_snapshot", "receive_widths", "require_fed"]

_MOST_KEY = 1 << 20
"""Bytes of the longest public key: that of BFV has about 320,000, one of Paillier with 8192 bits 142,000."""

_MOST_WEIGHTS = 1 << 24
"""Of one passive party's block."""


async def receive_widths(site: PartyContext, spec: CutSpec, protection: str) -> dict[str, tuple[int, bool]]:
    """Each passive party's (width, whether its bottom is trainable), and check that it runs the same job.

    Raises:
        ProtocolError: another job, another protection, or a width that is out of range or makes a block of more than
            2^24 weights, of which every one is an integer in memory.
    """
    widths = {}
    for name in site.passive:
        message = await site.links[name].receive(Kind.CONTROL, "cut/setup")
        meta = message.meta
        for key, mine in (("job", site.job), ("protection", protection), ("h", spec.width)):
            if meta.get(key) != mine:
                raise ProtocolError(
                    f"{name!r} runs with {key} {meta.get(key)!r}, {site.name!r} with {mine!r}: use one job file"
                )
        width = check_width(name, meta.get("width"), spec)
        trainable = meta.get("trainable")
        if not isinstance(trainable, bool) or (spec.trainable is not None and trainable != spec.trainable):
            kind = "with parameters" if spec.trainable else "without parameters"
            raise ProtocolError(
                f"{name!r} announces a bottom {'with' if trainable else 'without'} parameters; the job says {kind}: "
                "nothing was sent to it"
            )
        widths[name] = (width, trainable)
    return widths


def check_width(name: str, width: object, spec: CutSpec) -> int:
    """The width of a party's activations, as it announces it.

    Raises:
        ProtocolError: it is no width, or makes a block of more than 2^24 weights.
    """
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= 1 << 20:
        raise ProtocolError(f"{name!r} announces activations {width!r} wide; between 1 and {1 << 20} are possible")
    if width * spec.width > _MOST_WEIGHTS:
        raise ProtocolError(
            f"{name!r} announces activations {width} wide, {width * spec.width} weights for a cut {spec.width} "
            f"wide; {_MOST_WEIGHTS} are possible: a narrower bottom, or a narrower cut"
        )
    return width


def read_key(name: str, array: Array) -> bytes:
    """A public key as it arrived, for `securevfl_crypto.Scheme.read_public`.

    Raises:
        ProtocolError: it is no array of bytes, or longer than any key; nothing was copied.
    """
    raw = np.asarray(array)
    if raw.dtype != np.uint8 or raw.ndim != 1 or raw.nbytes > _MOST_KEY:
        raise ProtocolError(
            f"{name!r} sent a public key as {raw.dtype} {raw.shape}; uint8 of at most {_MOST_KEY} bytes is possible"
        )
    return raw.tobytes()


async def announce_width(site: PartyContext, spec: CutSpec, protection: str, width: int, trainable: bool) -> None:
    """A passive party's half of `receive_widths`."""
    meta: dict[str, Scalar] = {
        "job": site.job,
        "protection": protection,
        "h": spec.width,
        "width": width,
        "trainable": trainable,
    }
    await site.links[site.active].send(Kind.CONTROL, "cut/setup", meta=meta)


def check_shape(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """`array`, if it has this shape.

    Raises:
        ProtocolError: it has another.
    """
    if tuple(array.shape) != shape:
        raise ProtocolError(f"{name!r} sent an array of shape {tuple(array.shape)}; {shape} was expected")
    return array


def read_snapshot(state: object) -> tuple[np.ndarray, np.ndarray | None]:
    """The integers and the velocity of a share, from a snapshot of an exact or sealed cut."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"a {type(state).__name__} is no snapshot of a share")
    values, velocity = state
    return np.asarray(values, dtype=object), None if velocity is None else np.asarray(velocity, dtype=object)


T = TypeVar("T")


def require_fed(fed: T | None) -> T:
    """What the last training forward kept.

    Raises:
        ProtocolError: there was none.
    """
    if fed is None:
        raise ProtocolError("backward without a training forward before it; feed a batch with train=True first")
    return fed

"""Clipping, Gaussian noise from the operating system's random bytes, and the types of noised values.

The noise goes through the inverse normal distribution function, and what `noised` releases is rounded to a grid of 2⁻²⁰
sensitivities: otherwise the low bits of a float reveal something of the value below the noise (Mironov 2012, "On
significance of the least significant bits for differential privacy"). The grid keeps that channel narrow; it does not
make the sampler exactly discrete.

A mechanism returns a `Noised`, and only this module can create one. A link derives a message's guard from that type, so
no plain tensor can be sent, or recorded in a ledger, as if it had noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, final

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = [
    "GRID",
    "Entropy",
    "NoiseShare",
    "Noised",
    "RememberedRows",
    "add_noise",
    "clip_rows",
    "draw_gaussian",
    "draw_uniform",
    "map_noised",
    "noise_share",
    "strip_noise_mark",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_U = TypeVar("_U")
_MADE_HERE = object()

GRID = 2.0**-20
"""Width of the grid that released rows lie on, and of the dither on shares of noise, over the sensitivity."""

Entropy = Callable[[int], bytes]
"""Returns the given number of random bytes; the operating system's source unless a test replaces it."""


def clip_rows(rows: torch.Tensor, bound: float) -> torch.Tensor:
    """Scale rows (n, d) that are longer than `bound` in L2 norm down to it; differentiable."""
    import torch

    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * torch.clamp(bound / norms.clamp_min(1e-12), max=1.0)


def draw_uniform(shape: tuple[int, ...], entropy: Entropy = os.urandom) -> np.ndarray:
    """Independent numbers strictly between 0 and 1, float64, of 52 random bits each."""
    count = int(np.prod(shape))
    # 52 bits plus a half never gives 0 or 1, where the inverse normal distribution is infinite.
    words = np.frombuffer(entropy(8 * count), dtype="<u8").reshape(shape) >> np.uint64(12)
    found: np.ndarray = (words.astype(np.float64) + 0.5) * 2.0**-52
    return found


def draw_gaussian(shape: tuple[int, ...], std: float, entropy: Entropy = os.urandom) -> torch.Tensor:
    """Independent N(0, std²), float64, from `entropy` (52 random bits a value, inverse distribution function)."""
    import torch

    noise: torch.Tensor = torch.special.ndtri(torch.from_numpy(draw_uniform(shape, entropy))) * std
    return noise


@final
class Noised(Generic[_T_co]):
    """A value with noise from a mechanism of this module, or a function of such a value.

    Attributes:
        value: a tensor, or an array of bytes once it is encrypted.
        multiplier: σ, the standard deviation of the noise over the sensitivity.
        sensitivity: Δ, how far the value moves in L2 norm, at most, when one row's content is replaced.

    Raises:
        TypeError: it is created outside this module.
    """

    __slots__ = ("multiplier", "sensitivity", "value")

    value: _T_co
    multiplier: float
    sensitivity: float

    def __init__(self, value: _T_co, multiplier: float, sensitivity: float, *, token: object = None) -> None:
        if token is not _MADE_HERE:
            raise TypeError(
                "only a release with noise creates a Noised: ask Releases for one, and use map for what is "
                "computed from it"
            )
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "multiplier", multiplier)
        object.__setattr__(self, "sensitivity", sensitivity)

    def __init_subclass__(cls) -> None:
        raise TypeError("Noised has no subclasses: one could make itself without a mechanism")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} of a Noised cannot be changed after the mechanism set it")

    def map(self, compute: Callable[[_T_co], _U]) -> Noised[_U]:
        """Post-processing, which costs no ε: σ and Δ stay those of the release.

        Args:
            compute: may depend on the noised value and on what the receiver knows, but on no other private data.
        """
        return Noised(compute(self.value), self.multiplier, self.sensitivity, token=_MADE_HERE)

    def __repr__(self) -> str:
        return f"Noised(σ = {self.multiplier:.4g}, Δ = {self.sensitivity:.4g})"


def strip_noise_mark(value: _T | Noised[_T]) -> _T:
    """Unwrap a value, noised or not. What is sent of the result counts as exact; use `mapped` to keep the noise."""
    return value.value if isinstance(value, Noised) else value


def map_noised(value: _T | Noised[_T], compute: Callable[[_T], _U]) -> _U | Noised[_U]:
    """Apply `compute` to the value; the result is `Noised` if the value is. See `Noised.map`."""
    return value.map(compute) if isinstance(value, Noised) else compute(value)


@final
class NoiseShare:
    """One party's share of noise that several parties add to their sum.

    Attributes:
        noise: (n, h) float64.
        multiplier: σ of the whole noise, over the sensitivity of the sum.
        sensitivity: Δ of the sum.

    Raises:
        TypeError: it is created outside this module.
    """

    __slots__ = ("multiplier", "noise", "sensitivity")

    noise: torch.Tensor
    multiplier: float
    sensitivity: float

    def __init__(self, noise: torch.Tensor, multiplier: float, sensitivity: float, *, token: object = None) -> None:
        if token is not _MADE_HERE:
            raise TypeError("a share of noise comes from a JointRelease: ask Releases for one")
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "multiplier", multiplier)
        object.__setattr__(self, "sensitivity", sensitivity)

    def __init_subclass__(cls) -> None:
        raise TypeError("NoiseShare has no subclasses: one could make itself without a mechanism")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} of a NoiseShare cannot be changed after the mechanism set it")

    def add_to(self, add: Callable[[torch.Tensor], _U]) -> Noised[_U]:
        """Add this share and mark the result as noised.

        Args:
            add: adds the noise (n, h) to this party's part and returns what is sent: the sum, or its ciphertext.
        """
        return Noised(add(self.noise), self.multiplier, self.sensitivity, token=_MADE_HERE)

    def __repr__(self) -> str:
        return f"NoiseShare(σ = {self.multiplier:.4g}, Δ = {self.sensitivity:.4g})"


def add_noise(
    values: torch.Tensor, sigma: float, sensitivity: float, entropy: Entropy = os.urandom
) -> Noised[torch.Tensor]:
    """`values` plus N(0, (σΔ)²), on the grid of 2⁻²⁰ Δ; float64, detached.

    Args:
        values: clipped before, of any shape.
        sigma: noise multiplier σ.
        sensitivity: Δ.
        entropy: source of random bytes.
    """
    import torch

    noise = draw_gaussian(tuple(values.shape), sigma * sensitivity, entropy).to(values.device)
    # Rounded after the noise is added: the grid must not depend on the value (Mironov 2012).
    grid = sensitivity * GRID
    value = torch.round((values.detach().double() + noise) / grid) * grid
    return Noised(value, sigma, sensitivity, token=_MADE_HERE)


def noise_share(
    shape: tuple[int, ...], sigma: float, sensitivity: float, parties: int, entropy: Entropy = os.urandom
) -> NoiseShare:
    """N(0, (σΔ)²/k) plus a uniform dither 2⁻²⁰ Δ wide, float64; see `joint`.

    Args:
        shape: of the sum.
        sigma: noise multiplier σ of the whole noise.
        sensitivity: Δ of the sum.
        parties: k, how many shares add up to the whole noise.
        entropy: source of random bytes.
    """
    import torch

    # Without the dither the sparse tails of the normal draws would reveal low bits of the part they are added to.
    dither = torch.from_numpy(draw_uniform(shape, entropy) - 0.5) * (GRID * sensitivity)
    noise = draw_gaussian(shape, sigma * sensitivity / math.sqrt(parties), entropy) + dither
    return NoiseShare(noise, sigma, sensitivity, token=_MADE_HERE)


class RememberedRows:
    """Noised rows that are released again unchanged, by row number.

    Args:
        sigma: noise multiplier σ of all of them.
        sensitivity: Δ of all of them.
    """

    def __init__(self, sigma: float, sensitivity: float) -> None:
        self._sigma = sigma
        self._sensitivity = sensitivity
        self._rows: dict[int, torch.Tensor] = {}

    def row_numbers(self) -> np.ndarray:
        """Numbers of the remembered rows, (n,) int64."""
        return np.fromiter(self._rows, dtype=np.int64, count=len(self._rows))

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def keep_rows(self, rows: np.ndarray, values: Noised[torch.Tensor]) -> None:
        """Remember noised values (n, d) of rows (n,).

        Raises:
            ValueError: their noise has another σ or Δ.
        """
        if (values.multiplier, values.sensitivity) != (self._sigma, self._sensitivity):
            raise ValueError(f"{values!r} cannot be stored with rows of σ = {self._sigma}, Δ = {self._sensitivity}")
        self._rows.update(zip(rows.tolist(), values.value.detach(), strict=True))

    def recall_rows(self, rows: np.ndarray) -> Noised[torch.Tensor]:
        """The remembered rows with these numbers, (n, d). Every one must be remembered."""
        import torch

        value = torch.stack([self._rows[row] for row in rows.tolist()])
        return Noised(value, self._sigma, self._sensitivity, token=_MADE_HERE)

    def get_state(self) -> list[list[object]]:
        """Numbers and rows, for a checkpoint."""
        return [[number, row] for number, row in self._rows.items()]

    def load_state(self, state: object) -> None:
        """Restore a `state` from this party's checkpoint, which is trusted to contain what was released."""
        if not isinstance(state, list):
            raise TypeError("not a state of this release")
        self._rows = {int(row): value for row, value in state}

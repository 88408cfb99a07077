"""Tables on which the figure of a party's own card is judged. None of them shaped it: credit, census and late payments
did."""

from __future__ import annotations

import io
import lzma
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import skip
from securevfl.attacks.learners import standardise

__all__ = ["TABLES", "SplitTable", "split_tables"]

DATA = Path(os.environ.get("SECUREVFL_DATA", Path(__file__).parents[2] / "shared" / "data"))
_ROWS = 9000
_OUTLIER = 5.0


@dataclass(frozen=True)
class SplitTable:
    """A table whose columns are parted among an active party and passive ones.

    Attributes:
        name: of the table.
        own: the active party's columns, (rows, columns).
        parties: passive party → its columns.
        label: class of each row, from 0.
    """

    name: str
    own: np.ndarray
    parties: Mapping[str, np.ndarray]
    label: np.ndarray


def _part(name: str, table: np.ndarray, label: np.ndarray, own: int, sizes: Mapping[str, int]) -> SplitTable:
    """Part the columns in their order; constant ones are dropped, and outliers cut."""
    rows = np.random.default_rng(0).permutation(len(table))[:_ROWS]
    table = table[rows].astype(np.float64)
    table = np.clip(standardise(table[:, np.ptp(table, axis=0) > 0]), -_OUTLIER, _OUTLIER)
    parties, start = {}, own
    for party, size in sizes.items():
        parties[party] = table[:, start : start + size]
        start += size
    return SplitTable(name, table[:, :own], parties, np.unique(label[rows], return_inverse=True)[1])


def _shared(name: str) -> Any:
    return np.load(DATA / name)


def _bundled(name: str) -> Any:
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")()


def _digits() -> SplitTable:
    found = _bundled("digits")
    return _part("digits", found.data, found.target, 20, {"middle": 20, "lower": 20})


def _diabetes() -> SplitTable:
    found = _bundled("diabetes")
    return _part("diabetes", found.data, found.target > np.median(found.target), 4, {"blood": 6})


def _cancer() -> SplitTable:
    found = _bundled("breast_cancer")
    return _part("cancer", found.data, found.target, 10, {"errors": 10, "worst": 10})


def _vehicle() -> SplitTable:
    found = _shared("fate_vehicle_silhouettes.npz")
    host = found["host_x"][np.argsort(found["host_id"])]
    guest, label = (found[one][np.argsort(found["guest_id"])] for one in ("guest_x", "guest_y"))
    return _part("vehicle", np.hstack([guest, host]), label, 9, {"host": 9})


def _handwritten() -> SplitTable:
    found = _shared("mfeat.npz")
    views = [found["mor"], found["fou"][:, :18], found["zer"][:, :22], found["kar"][:, :20]]
    sizes = {"fourier": 18, "zernike": 22, "karhunen": 20}
    return _part("handwritten", np.hstack(views), found["y"], 6, sizes)


def _speech() -> SplitTable:
    found = _shared("pd_speech_756.npz")
    return _part("speech", found["x"][:, :67], found["y"], 21, {"bands": 22, "coefficients": 24})


def _images(file: str, name: str) -> SplitTable:
    packed = (DATA / file).read_bytes()
    found = np.load(io.BytesIO(lzma.decompress(packed) if file.endswith(".xz") else packed))
    small = found["x_train"][:_ROWS].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    return _part(name, small, found["y_train"][:_ROWS], 14, {"middle": 14, "lower": 21})


def _survey(module: str, own: int, sizes: Mapping[str, int], label: str) -> SplitTable:
    """A table of people that statsmodels has: small whole numbers beside amounts."""
    if find_spec("statsmodels") is None:
        raise FileNotFoundError("statsmodels is not installed")
    from importlib import import_module

    found = import_module(f"statsmodels.datasets.{module}").load_pandas().data.dropna()
    target = found.pop(label).to_numpy()
    return _part(module, found.to_numpy(dtype=np.float64), target > np.median(target), own, sizes)


TABLES: Mapping[str, Callable[[], SplitTable]] = {
    "diabetes": _diabetes,
    "cancer": _cancer,
    "vehicle": _vehicle,
    "speech": _speech,
    "digits": _digits,
    "handwritten": _handwritten,
    "mnist": lambda: _images("mnist.npz", "mnist"),
    "fashion": lambda: _images("fashion_mnist.npz.xz", "fashion"),
    "fair": lambda: _survey("fair", 2, {"home": 6}, "affairs"),
    "randhie": lambda: _survey("randhie", 3, {"insurer": 6}, "mdvis"),
    "anes96": lambda: _survey("anes96", 3, {"survey": 7}, "vote"),
    "modechoice": lambda: _survey("modechoice", 2, {"traveller": 5}, "choice"),
}
"""Name → what loads it."""


def split_tables(names: str = "") -> Iterator[SplitTable]:
    """Load the tables that are on this machine, and note the others.

    Args:
        names: of some, ``a|b|c``; all by default.
    """
    for name, load in TABLES.items():
        if names and name not in names.split("|"):
            continue
        try:
            yield load()
        except (FileNotFoundError, ModuleNotFoundError) as error:
            skip.note(name, str(error))

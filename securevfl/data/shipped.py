"""Read the tables that are shipped with the package; `files/README.md` names their sources and licences."""

from __future__ import annotations

import hashlib
import io
import lzma
from importlib import resources

import numpy as np

from securevfl.errors import InputError

__all__ = ["read_shipped_file"]

_SHA256 = {
    "breast_cancer.csv.xz": "f6bd46a398049fd20c52ac6aa8a744c2b42e9c2c4204efd93b35d875a749a64d",
    "default_credit.csv.xz": "b4b9378b6f863bdc25a8c347e585e4127903ea2b51815d1d08c02e388e2f5971",
    "digits.csv.xz": "4856729e9863f274301a00d71f0421ce33a8de3fd7667edba06b2007f613956e",
}


def read_shipped_file(name: str, kind: type[np.generic]) -> tuple[list[str], np.ndarray]:
    """Return a table's header and its values (rows, columns) of type `kind`.

    Raises:
        InputError: the file is damaged.
    """
    packed = resources.files("securevfl.data").joinpath("files", name).read_bytes()
    if hashlib.sha256(packed).hexdigest() != _SHA256[name]:
        raise InputError(f"{name} in the installed package is damaged; install securevfl again")
    text = lzma.decompress(packed).decode()
    header = text[: text.index("\n")].split(",")
    return header, np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, dtype=kind)

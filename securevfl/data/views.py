"""Data sets whose columns form views: handwritten digits in six views, Parkinson's speech, FATE's split tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from securevfl.data.overlap import Validation, hold_out, limited_overlap
from securevfl.data.parties import Parties
from securevfl.data.shipped import read_shipped_file
from securevfl.data.sources import csv_table, find_file, read_contents, read_npz
from securevfl.data.table import PartyTable
from securevfl.errors import InputError

__all__ = ["digits", "fate", "handwritten", "parkinson"]

_VIEWS = ("pix", "fou", "fac", "zer", "kar", "mor")
_FATE = {
    "breast": ("breast", "breast_hetero"),
    "default_credit": ("default_credit", "default_credit_hetero"),
    "vehicle_silhouettes": ("vehicle_silhouettes", "vehicle_scale_hetero"),
}


def handwritten(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    parties: int = 4,
    labels: str = "own",
    valid: float = 0.1,
    test: float = 0.2,
    validation: Validation = "beside",
    path: str | Path | None = None,
) -> Parties:
    """UCI Multiple Features: 2,000 handwritten digits in six views (pixels, Fourier, profiles, Zernike,
    Karhunen-Loève, morphology), "Handwritten" of the Entity Augmentation paper. CC BY 4.0.

    Args:
        overlap: common training rows: a share, or a count from 2.
        seed: seeds the choice of rows.
        parties: 2 to 6; each party gets one view, the last party also all remaining views.
        labels: ``"all"`` if the active party also has the labels of the other parties' rows.
        valid: share of the rows for validation.
        test: share for the test.
        validation: ``"overlap"``: common training rows are used for validation and the share `valid` is dropped; see
            `limited_overlap`.
        path: location of ``mfeat.npz``, or of the original ``mfeat-pix`` and its five siblings.

    Raises:
        InputError: the file is missing or unreadable, or an argument is out of range.
    """
    if isinstance(parties, bool) or not isinstance(parties, int) or not 2 <= parties <= len(_VIEWS):
        raise InputError(f"parties is {parties!r}; there are six views: give a whole number from 2 to 6")
    cure = "It is 'Multiple Features' of the UCI Machine Learning Repository (files mfeat-pix, mfeat-fou, …)."
    file = find_file("handwritten", ("mfeat.npz", "mfeat-pix", "mfeat/mfeat-pix"), path, cure)
    if file.suffix == ".npz":
        *blocks, y = read_npz(file, (*_VIEWS, "y"))
    else:
        blocks = [_read_numbers(file.parent / f"mfeat-{view}") for view in _VIEWS]
        y = np.repeat(np.arange(10), 200)
    y = _check_whole_numbers(f"{file}: y", y, y.size)
    blocks = [_check_matrix(f"{file}: {view}", block, len(y)) for view, block in zip(_VIEWS, blocks, strict=True)]
    names = {f"view{i + 1}": [view] for i, view in enumerate(_VIEWS[:parties])}
    names[f"view{parties}"] += _VIEWS[parties:]
    table = PartyTable(
        name="view1",
        ids=[f"digit-{i}" for i in range(len(y))],
        columns=dict(zip(_VIEWS, (block.astype(np.float32) for block in blocks), strict=True)),
        label=y,
        classes=tuple(str(digit) for digit in range(10)),
        label_name="digit",
    )
    fold = hold_out(len(y), valid=valid, test=test, seed=seed)
    return limited_overlap(
        table,
        names,
        fold,
        overlap=overlap,
        seed=seed,
        labels=labels,
        validation=validation,
        description=f"Handwritten, {parties} views",
    )


def parkinson(
    *,
    overlap: float = 0.2,
    seed: int = 0,
    labels: str = "own",
    valid: float = 0.1,
    test: float = 0.2,
    validation: Validation = "beside",
    active: str = "clinic",
    path: str | Path | None = None,
) -> Parties:
    """UCI Parkinson's Disease Classification: 756 recordings of 252 people (Sakar et al. 2018, CC BY 4.0).

    A clinic has baseline, intensity and frequency measures and the diagnosis, a lab the wavelet features. All
    recordings of a person are in the same part: training, validation or test.

    Args:
        overlap: common training rows: a share, or a count from 2.
        seed: seeds the choice of rows.
        labels: ``"all"`` if the clinic also has the labels of the lab's rows.
        valid: share of the people for validation.
        test: share for the test.
        validation: ``"overlap"``: common training rows are used for validation and the share `valid` is dropped; see
            `limited_overlap`.
        active: who has the diagnosis, ``"clinic"`` or ``"lab"``.
        path: location of ``pd_speech_756.npz``, or of the original ``pd_speech_features.csv``.

    Raises:
        InputError: the file is missing or unreadable, or an argument is out of range.
    """
    if active not in ("clinic", "lab"):
        raise InputError(f"active is {active!r}; give clinic or lab")
    cure = "It is 'Parkinson's Disease Classification' of the UCI Machine Learning Repository."
    file = find_file("parkinson", ("pd_speech_756.npz", "pd_speech_features.csv"), path, cure)
    if file.suffix == ".npz":
        x, y, subject, columns = read_npz(file, ("x", "y", "subject", "cols"))
        names = [str(name) for name in columns.ravel()]
    else:
        values, header = csv_table(file, ("id", "class"))
        keep = [i for i, name in enumerate(header) if name not in ("id", "class")]
        x, y, subject = values[:, keep], values[:, header.index("class")], values[:, header.index("id")]
        names = [header[i] for i in keep]
    y = _check_whole_numbers(f"{file}: the class", y, y.size)
    subject = _check_whole_numbers(f"{file}: the person's number", subject, len(y))
    x = _check_matrix(f"{file}: x", x, len(y), len(names))
    wavelet = np.array([name.startswith(("det_", "app_", "tqwt_", "Ea", "Ed")) for name in names])
    blocks = {"baseline": x[:, ~wavelet], "wavelet": x[:, wavelet]}
    if min(block.shape[1] for block in blocks.values()) == 0:
        raise InputError(
            f"{file} has {wavelet.sum()} wavelet columns (tqwt_…, det_…, app_…, Ea…, Ed…) and "
            f"{(~wavelet).sum()} others; expected some of both: is it the right table?"
        )
    table = PartyTable(
        name=active,
        ids=[f"recording-{i}" for i in range(len(y))],
        columns={name: block.astype(np.float32) for name, block in blocks.items()},
        label=y,
        classes=("healthy", "parkinson"),
        label_name="class",
    )
    fold = hold_out(len(y), valid=valid, test=test, seed=seed, groups=subject)
    split = {"clinic": ["baseline"], "lab": ["wavelet"]}
    return limited_overlap(
        table,
        split,
        fold,
        overlap=overlap,
        seed=seed,
        labels=labels,
        validation=validation,
        description="Parkinson's speech",
    )


def digits(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    labels: str = "own",
    valid: float = 0.1,
    test: float = 0.2,
    validation: Validation = "beside",
) -> Parties:
    """UCI's 1,797 digits of 8 x 8 pixels, in left and right halves; shipped with the package. Arguments as for
    `handwritten`.
    """
    from securevfl.data.images import cut_images

    _, values = read_shipped_file("digits.csv.xz", np.uint8)
    cut = cut_images(np.ascontiguousarray(values[:, :-1]).reshape(-1, 8, 8), "halves")
    table = PartyTable(
        name="left",
        ids=[f"digit-{i}" for i in range(len(values))],
        columns=cut,
        label=values[:, -1].astype(np.int64),
        classes=tuple(str(digit) for digit in range(10)),
        label_name="digit",
    )
    fold = hold_out(len(values), valid=valid, test=test, seed=seed)
    columns = {name: [name] for name in cut}
    return limited_overlap(
        table, columns, fold, overlap=overlap, seed=seed, labels=labels, validation=validation, description="digits"
    )


def fate(
    *,
    table: str = "breast",
    overlap: float = 1.0,
    seed: int = 0,
    labels: str = "own",
    valid: float = 0.1,
    test: float = 0.2,
    validation: Validation = "beside",
    path: str | Path | None = None,
) -> Parties:
    """FATE's example tables, split between a guest (labels) and a host as FATE splits them.

    Args:
        table: ``"breast"``, ``"default_credit"`` or ``"vehicle_silhouettes"``.
        overlap: common training rows: a share, or a count from 2.
        seed: seeds the choice of rows.
        labels: ``"all"`` if the guest also has the labels of the host's rows.
        valid: share of the rows for validation.
        test: share for the test.
        validation: ``"overlap"``: common training rows are used for validation and the share `valid` is dropped; see
            `limited_overlap`.
        path: location of ``fate_<table>.npz``, or of ``<name>_guest.csv`` and ``<name>_host.csv``.

    Raises:
        InputError: the file is missing or unreadable, or an argument is out of range.
    """
    if table not in tuple(_FATE):
        raise InputError(f"table is {table!r}; one of {', '.join(_FATE)} was expected")
    short, long = _FATE[table]
    cure = "The tables are in examples/data of the FATE project."
    file = find_file(f"fate, {table}", (f"fate_{short}.npz", f"{long}_guest.csv"), path, cure)
    if file.suffix == ".npz":
        parts = read_npz(file, ("guest_id", "guest_y", "guest_x", "guest_cols", "host_id", "host_x", "host_cols"))
        guest_id, y, guest_x, guest_names, host_id, host_x, host_names = parts
    else:
        host = file.with_name(file.name.replace("_guest", "_host"))
        if host == file:
            raise InputError(f"{file} is not named …_guest.csv: give the guest's table; the host's is beside it")
        guest_id, y, guest_x, guest_names = _fate_csv(file, labelled=True)
        host_id, _, host_x, host_names = _fate_csv(host, labelled=False)
    guest_id = _check_whole_numbers(f"{file}: the guest's id", guest_id, guest_id.size)
    host_id = _check_whole_numbers(f"{file}: the host's id", host_id, host_id.size)
    y = _check_whole_numbers(f"{file}: y", y, len(guest_id))
    guest_x = _check_matrix(f"{file}: the guest's x", guest_x, len(guest_id), guest_names.size)
    host_x = _check_matrix(f"{file}: the host's x", host_x, len(host_id), host_names.size)
    for ids, names, owner in ((guest_id, guest_names, "guest"), (host_id, host_names, "host")):
        if names.ndim != 1 or len(np.unique(names)) < len(names):
            raise InputError(
                f"{file}: the {owner}'s columns are {names.tolist()}; a list of different names was expected"
            )
        if len(np.unique(ids)) < len(ids):
            raise InputError(
                f"{file}: the {owner} has {len(ids)} rows and {len(np.unique(ids))} ids; keep one for each"
            )
    _, guest_rows, host_rows = np.intersect1d(guest_id, host_id, assume_unique=True, return_indices=True)
    if not len(guest_rows):
        raise InputError(f"{file}: guest and host have no id in common; are both parts of one table?")
    columns = {
        "guest": {f"guest_{name}": guest_x[guest_rows, i].astype(np.float64) for i, name in enumerate(guest_names)},
        "host": {f"host_{name}": host_x[host_rows, i].astype(np.float64) for i, name in enumerate(host_names)},
    }
    classes, codes = np.unique(y[guest_rows], return_inverse=True)
    whole = PartyTable(
        name="guest",
        ids=[str(number) for number in guest_id[guest_rows].tolist()],
        columns=columns["guest"] | columns["host"],
        label=codes.astype(np.int64),
        classes=tuple(classes.tolist()),
        label_name="y",
    )
    fold = hold_out(whole.rows, valid=valid, test=test, seed=seed)
    split = {party: list(chosen) for party, chosen in columns.items()}
    return limited_overlap(
        whole,
        split,
        fold,
        overlap=overlap,
        seed=seed,
        labels=labels,
        validation=validation,
        description=f"FATE's {table}",
    )


def _read_numbers(file: Path) -> np.ndarray:
    """Read a file of space-separated numbers, one of the six views of Multiple Features."""
    lines = read_contents(file).splitlines()
    if len(lines) != 2000:
        raise InputError(f"{file} has {len(lines)} lines; a view of Multiple Features has 2000")
    try:
        return np.loadtxt(lines, dtype=np.float64, ndmin=2, encoding="ascii")
    except ValueError as error:
        raise InputError(f"{file} is not a table of numbers: {error}") from None


def _fate_csv(file: Path, *, labelled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    values, header = csv_table(file, ("y",) if labelled else ())
    if header[0].lower() not in ("id", "sid", "idx"):
        raise InputError(f"{file}: the first column is {header[0]!r}; an id was expected")
    keep = [i for i, name in enumerate(header) if i and name != "y"]
    y = values[:, header.index("y")] if labelled else np.empty(0)
    return values[:, 0], y, values[:, keep], np.array([header[i] for i in keep])


def _check_matrix(what: str, values: np.ndarray, rows: int, width: int | None = None) -> np.ndarray:
    if (
        values.dtype.kind not in "fiub"
        or values.ndim != 2
        or len(values) != rows
        or width not in (None, values.shape[1])
    ):
        expected = (rows, "columns" if width is None else width)
        raise InputError(f"{what} is {values.dtype} {values.shape}; numbers {expected} were expected")
    return values


def _check_whole_numbers(what: str, values: np.ndarray, rows: int) -> np.ndarray:
    if values.dtype.kind not in "fiub" or values.shape != (rows,) or not rows:
        raise InputError(f"{what} is {values.dtype} {values.shape}; numbers ({rows or 'rows'},) were expected")
    odd = values[~(np.isfinite(values) & (np.abs(values.astype(np.float64)) < 2**53) & (values == np.floor(values)))]
    if len(odd):
        raise InputError(f"{what} is {odd[0]} in one of {rows} rows; whole numbers below 2^53 were expected")
    return values.astype(np.int64)

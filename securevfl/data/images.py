"""Image data sets, each image cut into pieces: halves for two parties, strips or quarters for four."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from securevfl.data.overlap import Validation, label_owners, limited_overlap
from securevfl.data.parties import Parties
from securevfl.data.partition import seeded_generator, whole_number
from securevfl.data.sources import Images, image_set, read_cifar10
from securevfl.data.table import TEST, VALID, PartyTable
from securevfl.errors import InputError

__all__ = ["cifar10_parties", "cut_images", "fashion_mnist", "mnist"]

_CLASSES = {
    "mnist": tuple(str(digit) for digit in range(10)),
    "fashion_mnist": ("top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}
_PIECES = ("halves", "strips", "quarters")


def mnist(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    pieces: str = "halves",
    rows: int | None = None,
    test_rows: int | None = None,
    labels: str = "own",
    owners: int = 0,
    owner_rows: int = 5000,
    scenario: str = "iid",
    validation: Validation = "beside",
    path: str | Path | None = None,
) -> Parties:
    """MNIST: 60,000 + 10,000 digits, 28 x 28, each cut into pieces (LeCun et al. 1998).

    The owner of the first piece is active and has the labels, unless `owners` is given. A tenth of the training images
    is the validation set; the data set's test images are the test set.

    Args:
        overlap: common training rows: a share, or a count from 2; the others are distributed evenly.
        seed: seeds the choice of rows.
        pieces: ``"halves"`` (left and right), ``"strips"`` (four, stacked vertically) or ``"quarters"``.
        rows: number of training images to use, validation included; all if None.
        test_rows: number of test images to use; all if None.
        labels: ``"all"`` if the active party also has the labels of the other parties' rows.
        owners: number of label owners (`MultiVFL`) in place of one active party; data owners then have the pieces.
        owner_rows: training rows per label owner.
        scenario: how their labels are distributed: ``"iid"``, ``"1niid"`` … ``"4niid"``.
        validation: ``"overlap"``: common training rows are used for validation and that tenth is dropped; see
            `limited_overlap`.
        path: location of ``mnist.npz`` or of the four IDX files.

    Raises:
        InputError: the file is missing or unreadable, or an argument is out of range.
    """
    return _split_images(
        "mnist",
        image_set("mnist", path),
        overlap,
        seed,
        pieces,
        rows,
        test_rows,
        labels,
        owners,
        owner_rows,
        scenario,
        validation,
    )


def fashion_mnist(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    pieces: str = "halves",
    rows: int | None = None,
    test_rows: int | None = None,
    labels: str = "own",
    owners: int = 0,
    owner_rows: int = 5000,
    scenario: str = "iid",
    validation: Validation = "beside",
    path: str | Path | None = None,
) -> Parties:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing, 28 x 28 (Xiao et al. 2017, MIT). Arguments as for `mnist`;
    files ``fashion_mnist.npz``, ``fashion_mnist.npz.xz`` or ``fashion_mnist/*-ubyte``."""
    images = image_set("fashion_mnist", path)
    return _split_images(
        "fashion_mnist",
        images,
        overlap,
        seed,
        pieces,
        rows,
        test_rows,
        labels,
        owners,
        owner_rows,
        scenario,
        validation,
    )


def cifar10_parties(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    pieces: str = "halves",
    rows: int | None = None,
    test_rows: int | None = None,
    labels: str = "own",
    owners: int = 0,
    owner_rows: int = 5000,
    scenario: str = "iid",
    validation: Validation = "beside",
    path: str | Path | None = None,
) -> Parties:
    """CIFAR-10: 50,000 + 10,000 colour images, 32 x 32 (Krizhevsky 2009). Arguments as for `mnist`; files: the binary
    version, ``cifar-10-batches-bin/``, or ``cifar10.npz``."""
    return _split_images(
        "cifar10",
        read_cifar10(path),
        overlap,
        seed,
        pieces,
        rows,
        test_rows,
        labels,
        owners,
        owner_rows,
        scenario,
        validation,
    )


def cut_images(images: np.ndarray, pieces: str) -> dict[str, np.ndarray]:
    """Cut images (n, height, width) or (n, channels, height, width) into pieces; returns party name → piece.

    Raises:
        InputError: unknown `pieces`, or images smaller than 4 x 4 pixels.
    """
    if images.ndim not in (3, 4) or min(images.shape[-2:]) < 4:
        raise InputError(f"images have shape {images.shape}; (n[, channels], height, width) of at least 4 was expected")
    height, width = images.shape[-2:]
    half_y, half_x = height // 2, width // 2
    if pieces == "halves":
        return {"left": images[..., :half_x], "right": images[..., half_x:]}
    if pieces == "strips":
        return {f"strip{i + 1}": images[..., i * height // 4 : (i + 1) * height // 4, :] for i in range(4)}
    if pieces == "quarters":
        return {
            "top_left": images[..., :half_y, :half_x],
            "top_right": images[..., :half_y, half_x:],
            "bottom_left": images[..., half_y:, :half_x],
            "bottom_right": images[..., half_y:, half_x:],
        }
    raise InputError(f"pieces is {pieces!r}; one of {', '.join(_PIECES)} was expected")


def _split_images(
    name: str,
    images: Images,
    overlap: float,
    seed: int,
    pieces: str,
    rows: int | None,
    test_rows: int | None,
    labels: str,
    owners: int,
    owner_rows: int,
    scenario: str,
    validation: Validation,
) -> Parties:
    whole_number("owners", owners, 0)
    if not owners and scenario != "iid":
        raise InputError(f"scenario is {scenario!r} and owners is 0; set the number of label owners: owners=5")
    if owners and labels != "own":
        raise InputError(f"labels is {labels!r} with {owners} label owners; it is for one active party: leave it out")
    if owners and validation != "beside":
        raise InputError(f"validation is {validation!r} with {owners} label owners; it is for one active party")
    x, y, x_test, y_test = images
    chosen, tested = (
        _sample_rows(len(x), rows, seed, "rows", 100),
        _sample_rows(len(x_test), test_rows, seed, "test_rows", 10),
    )
    every = np.concatenate([x[chosen], x_test[tested]])
    if every.ndim == 4:
        every = np.ascontiguousarray(every.transpose(0, 3, 1, 2))
    fold = np.zeros(len(every), dtype=np.int8)
    fold[seeded_generator(seed, 14).permutation(len(chosen))[: max(len(chosen) // 10, 1)]] = VALID
    fold[len(chosen) :] = TEST
    cut = cut_images(every, pieces)
    active = next(iter(cut))
    ids = [f"train-{i}" for i in chosen.tolist()] + [f"test-{i}" for i in tested.tolist()]
    table = PartyTable(
        name=active,
        ids=ids,
        columns=cut,
        label=np.concatenate([y[chosen], y_test[tested]]),
        classes=_CLASSES[name],
        label_name="class",
    )
    columns = {party: [party] for party in cut}
    description = f"{name}, {pieces}"
    if owners:
        return label_owners(
            table,
            columns,
            fold,
            owners=owners,
            rows=owner_rows,
            scenario=scenario,
            seed=seed,
            description=f"{description}, {owners} label owners, {scenario}",
        )
    return limited_overlap(
        table,
        columns,
        fold,
        overlap=overlap,
        seed=seed,
        labels=labels,
        validation=validation,
        description=description,
    )


def _sample_rows(total: int, wanted: int | None, seed: int, name: str, least: int) -> np.ndarray:
    if wanted is None:
        return np.arange(total)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not least <= wanted <= total:
        raise InputError(f"{name} is {wanted!r}; the set has {total}: give a whole number from {least} to {total}")
    return seeded_generator(seed, 13, total).permutation(total)[:wanted]

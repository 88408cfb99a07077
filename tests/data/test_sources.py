"""Files of public data sets: every format on small files written here, hostile ones refused, and the real ones if here.

The real files are looked for in the folder that SECUREVFL_DATA names, or beside the repository.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.data import Parties, datasets
from securevfl.data.images import cut_images
from securevfl.data.sources import find_file, image_set, read_cifar10, read_idx, read_npz
from securevfl.data.table import TEST, TRAIN, VALID
from securevfl.data.views import fate, handwritten, parkinson
from securevfl.errors import InputError

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
HERE = Path(os.environ.get("SECUREVFL_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


@pytest.fixture(autouse=True)
def _nothing_is_found_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def _real(name: str) -> Path:
    if not (HERE / name).exists():
        pytest.skip(f"{name} is not in {HERE}; set SECUREVFL_DATA to the folder that has it")
    return HERE / name


def _images(train: int = 120, test: int = 30, shape: tuple[int, ...] = (28, 28)) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    parts = [
        (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n).astype(np.uint8)) for n in (train, test)
    ]
    return [array for part in parts for array in part]


def _idx_bytes(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _write_idx(folder: Path, arrays: list[np.ndarray], end: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX, arrays, strict=True):
        content = _idx_bytes(array)
        (folder / f"{name}{end}").write_bytes(gzip.compress(content) if end else content)
    return folder


def _npz_bytes(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=True, **arrays)
    return stream.getvalue()


def _write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _together(parties: Parties, build: Callable[[list[np.ndarray]], np.ndarray]) -> dict[str, np.ndarray]:
    """Identifier → the row as all parties' pieces make it, for the rows that all hold."""
    place = [{ref: row for row, ref in enumerate(part.ids)} for part in parties.values()]
    values = [next(iter(part.columns.values())) for part in parties.values()]
    common = set.intersection(*(set(part.ids) for part in parties.values()))
    return {ref: build([value[at[ref]] for value, at in zip(values, place, strict=True)]) for ref in common}


# ---- formats ----


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)), st.booleans())
def test_idx_files_are_what_was_written(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, gz: bool) -> None:
    content = _idx_bytes(array)
    file = tmp_path_factory.getbasetemp() / ("written.gz" if gz else "written")
    file.write_bytes(gzip.compress(content) if gz else content)
    np.testing.assert_array_equal(read_idx(file), array)


MEBI = 1 << 20


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "starts with the bytes of an empty file; an IDX file"),
        (b"PK\3\4", "starts with the bytes 504b0304; an IDX file of 1 to 4 dimensions"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "starts with the bytes 00000d01"),
        (b"\0\0\x08\0", "starts with the bytes 00000800"),
        (b"\0\0\x08\5" + b"\0" * 20, "starts with the bytes 00000805"),
        (b"\0\0\x08\3\0\0\0\1", "ends within its header"),
        (b"\0\0\x08\1\0\0\0\4abc", r"shape \(4,\), 4 bytes, but contains 3"),
        (b"\0\0\x08\1\0\0\0\2abc", r"shape \(2,\), 2 bytes, but contains more"),
        (b"\0\0\x08\2" + b"\xff" * 8, r"\(4294967295, 4294967295\), .* bytes; at most 536,870,912 are read"),
        (b"\0\0\x08\4" + b"\0\1\0\0" * 4, "18,446,744,073,709,551,616 bytes; at most"),  # 0 in 64 bits
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files_that_lie_are_refused(tmp_path: Path, content: bytes, match: str, end: str) -> None:
    file = _write(tmp_path / f"x{end}", gzip.compress(content) if end else content)
    with pytest.raises(InputError, match=match):
        read_idx(file)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(_idx_bytes(np.arange(200, dtype=np.uint8)))
    middle = whole[:20] + bytes(byte ^ 255 for byte in whole[20:40]) + whole[40:]
    for content in (b"not gzip", whole[:-12], middle):
        with pytest.raises(InputError, match="cannot be read"):
            read_idx(_write(tmp_path / "x.gz", content))
    with pytest.raises(InputError, match="cannot be read"):
        read_idx(tmp_path)
    bomb = gzip.compress(b"\0\0\x08\1\0\0\0\4" + bytes(8 * MEBI))
    with pytest.raises(InputError, match="4 bytes, but contains more"):
        read_idx(_write(tmp_path / "x.gz", bomb))


def _npy(header: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + content


def _member(content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("a.npy", content)
    return stream.getvalue()


HEADER = "{'descr': '|u1', 'fortran_order': False, 'shape': %s}"
GOOD = _npy(HEADER % "(3,)", b"abc")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a readable .npz file"),
        (b"PK\3\4 and no more", "not a readable .npz file"),
        (GOOD, "not a readable .npz file"),
        (_member(GOOD)[:-30], "not a readable .npz file"),
        (_member(GOOD).replace(b"abc", b"abd"), "not a readable .npz file: Bad CRC"),
        (_member(b"no array"), "array 'a' is not an array of numbers or texts in numpy's"),
        (_member(_npy(HEADER % "(3,) + 1", b"abc")), "array 'a' is not an array of numbers or texts in numpy's"),
        (_member(_npy("(" * 900)), "array 'a' is not an array of numbers or texts in numpy's"),
        (
            _member(_npy(" " * 20_000 + HEADER % "(3,)", b"abc")),
            "array 'a' is not an array of numbers or texts in numpy's format",
        ),
        (_member(_npy(HEADER.replace("|u1", "|u3") % "(1,)", b"abc")), "array 'a' is not an array of numbers or texts"),
        (
            _npz_bytes(a=np.zeros(2, dtype=[("x", "i4")])),
            "array 'a' is not an array of numbers or texts in numpy's format",
        ),
        (
            _member(_npy(HEADER % "(3,)", b"abc", b"\3\0")),
            "array 'a' is not an array of numbers or texts in numpy's format",
        ),
        (_member(_npy("-" * 9_900 + "1")), "array 'a' is not an array of numbers or texts in numpy's"),
        (_member(_npy(HEADER % "(3L,)", b"abc")), "array 'a' is not an array of numbers or texts in numpy's"),
        (_member(_npy(HEADER % "(4,)", b"abc")), r"array 'a' announces shape \(4,\) of uint8, 4 bytes, but contains 3"),
        (
            _member(_npy(HEADER % "(1 << 60,)", b"abc")),
            "array 'a' is not an array of numbers or texts in numpy's format",
        ),
        (_member(_npy(HEADER % f"({2**60}, 8)")), "9,223,372,036,854,775,808 bytes, but contains 0"),
        (_member(_npy(HEADER % f"({2**32}, {2**32})")), "18,446,744,073,709,551,616 bytes, but contains 0"),
        (_member(_npy(HEADER % "(-1, -3)", b"abc")), "array 'a' is not an array of numbers or texts in numpy's"),
        (
            _member(_npy(HEADER.replace("|u1", "|O") % "(1,)", b"\x80\4N.")),
            "contains Python objects, which are never loaded",
        ),
        (_member(GOOD, zipfile.ZIP_BZIP2), "compressed with method 12; save it with numpy.savez_compressed"),
        (_npz_bytes(b=np.zeros(2), c=np.zeros(2)), "has no array 'a'; it has b, c"),
        (_npz_bytes(a=np.array([{}, None], dtype=object)), "contains Python objects"),
        (_npz_bytes(), "has no array 'a'; it has none"),
    ],
)
@pytest.mark.parametrize("end", [".npz", ".npz.xz"])
def test_npz_files_that_lie_are_refused(tmp_path: Path, content: bytes, match: str, end: str) -> None:
    file = _write(tmp_path / f"x{end}", lzma.compress(content) if end == ".npz.xz" else content)
    with pytest.raises(InputError, match=match):
        read_npz(file, ["a"])


def test_objects_are_refused_before_anything_of_them_is_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    file = _write(tmp_path / "x.npz", _npz_bytes(a=np.array([Trap()], dtype=object)))
    with pytest.raises(InputError, match="Python objects"):
        read_npz(file, ["a"])
    assert not (tmp_path / "sprung").exists()


def test_npz_arrays_are_what_was_written(tmp_path: Path) -> None:
    arrays = {
        "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columnwise": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "texts": np.array(["ä", "bc"]),
        "one": np.array(7),
        "none": np.zeros((0, 3)),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    (tmp_path / "x.npz.xz").write_bytes(lzma.compress((tmp_path / "x.npz").read_bytes()))
    for name in ("x.npz", "x.npz.xz"):
        for found, written in zip(read_npz(tmp_path / name, list(arrays)), arrays.values(), strict=True):
            assert found.dtype == written.dtype
            np.testing.assert_array_equal(found, written)


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.zeros(MEBI, np.uint8), b=np.zeros(MEBI, np.uint8))
    plain, packed = _write(tmp_path / "x.npz", stream.getvalue()), tmp_path / "x.npz.xz"
    packed.write_bytes(lzma.compress(_npz_bytes(a=np.zeros(2 * MEBI, np.uint8))))
    assert len(read_npz(plain, ["a"])[0]) == MEBI
    monkeypatch.setattr("securevfl.data.sources._LIMIT", MEBI + 1000)
    with pytest.raises(InputError, match=r"unpacks to 2,097,\d+ bytes; at most 1,049,576 are read"):
        read_npz(plain, ["a", "b"])
    with pytest.raises(InputError, match="unpacks to more than 1,049,576 bytes"):
        read_npz(packed, ["a"])
    large = _write(tmp_path / "data_batch_1.bin", bytes(2 * MEBI))
    with pytest.raises(InputError, match="has 2,097,152 bytes; at most 1,049,576 are read"):
        read_cifar10(large)


def test_xz_files_are_whole_and_modest(tmp_path: Path) -> None:
    content = _npz_bytes(a=np.zeros(3))
    packed = lzma.compress(content)
    hungry = lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20, "preset": 0}])
    hungry = hungry.replace(hungry[12:24], _with_checksum(hungry[12:20]))
    for wrong, match in (
        (b"text and no xz at all", "not a readable .npz file"),
        (packed[:-20], "not one complete xz stream"),
        (packed + packed, "not one complete xz stream"),
        (hungry, "Memory usage limit exceeded"),
    ):
        with pytest.raises(InputError, match=match):
            read_npz(_write(tmp_path / "x.npz.xz", wrong), ["a"])


def _with_checksum(header: bytes) -> bytes:
    """A block header of an xz file that asks for a dictionary of 4 GiB - 1 byte."""
    import zlib

    changed = header[:4] + bytes([40]) + header[5:]
    return changed + struct.pack("<I", zlib.crc32(changed))


@given(st.data())
def test_a_changed_byte_gives_an_error_or_an_array(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for name, content, read in (
        ("m.npz", _npz_bytes(a=array), lambda file: read_npz(file, ["a"])),
        ("m.npz.xz", lzma.compress(_npz_bytes(a=array)), lambda file: read_npz(file, ["a"])),
        ("m", _idx_bytes(array), read_idx),
        ("m.gz", gzip.compress(_idx_bytes(array)), read_idx),
    ):
        at, value = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 255))
        (folder / name).write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
        with contextlib.suppress(InputError):
            read(folder / name)


# ---- where files are looked for ----


def test_path_comes_before_the_variable_and_the_variable_before_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(path: str | None = None) -> Path:
        return find_file("it", ("one", "two"), path, "Get it.")

    with pytest.raises(InputError, match=r"it is not here: none of one, two in data\. Get it\. Then name its folder"):
        found()
    _write(tmp_path / "data/one", "")
    assert found() == Path("data/one")
    monkeypatch.setenv("SECUREVFL_DATA", "")
    assert found() == Path("data/one")
    monkeypatch.setenv("SECUREVFL_DATA", "elsewhere")
    assert found() == Path("data/one")
    _write(tmp_path / "elsewhere/two", "")
    assert found() == Path("elsewhere/two")
    _write(tmp_path / "mine/two", "")
    assert found("mine") == Path("mine/two")
    assert found("mine/two") == Path("mine/two")
    _write(tmp_path / "mine/one", "")
    assert found("mine") == Path("mine/one")
    (tmp_path / "void").mkdir()
    assert found("void") == Path("elsewhere/two")
    for wrong, match in (
        ("mein", "file or folder 'mein' does not exist; correct path"),
        (3, "path is 3"),
        ("\0", "file or folder"),
    ):
        with pytest.raises(InputError, match=match):
            found(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("mnist", "mnist.npz, mnist.npz.xz, mnist/train-images-idx3-ubyte, .* in data. It is published as four IDX"),
        ("fashion_mnist", "fashion_mnist/train-images-idx3-ubyte.gz in data"),
        ("cifar10", "cifar-10-batches-bin, data_batch_1.bin in data"),
        ("handwritten", "mfeat.npz, mfeat-pix, mfeat/mfeat-pix in data. .*UCI"),
        ("parkinson", "pd_speech_756.npz, pd_speech_features.csv in data"),
        ("fate", "fate_breast.npz, breast_hetero_guest.csv in data. .*FATE project"),
    ],
)
def test_a_set_that_is_not_here_says_which_files_it_wants(name: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        datasets.load(name)


# ---- images ----


def _same(one: Parties, two: Parties) -> None:
    assert list(one) == list(two)
    for name, table in one.items():
        assert table.ids == two[name].ids
        for column, values in table.columns.items():
            np.testing.assert_array_equal(values, two[name].columns[column])


def test_mnist_is_the_same_from_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = _images()
    plain = datasets.mnist(path=_write_idx(tmp_path / "plain", arrays))
    named = dict(zip(ARRAYS, arrays, strict=True))
    np.savez_compressed(tmp_path / "any.npz", **named)
    _write(tmp_path / "packed/mnist.npz.xz", lzma.compress((tmp_path / "any.npz").read_bytes()))
    _write_idx(tmp_path / "data/mnist", arrays, ".gz")
    _write_idx(tmp_path / "zipped", arrays, ".gz")
    for path in (tmp_path / "any.npz", tmp_path / "packed", tmp_path / "zipped", tmp_path / "plain" / IDX[0], None):
        _same(plain, datasets.mnist(path=path))
    monkeypatch.setenv("SECUREVFL_DATA", str(tmp_path / "fashion"))
    _write_idx(tmp_path / "fashion/fashion_mnist", arrays, ".gz")
    _same(plain, datasets.load("fashion_mnist"))


@pytest.mark.parametrize(
    ("pieces", "shapes", "build"),
    [
        ("halves", [(28, 14)] * 2, lambda parts: np.concatenate(parts, axis=-1)),
        ("strips", [(7, 28)] * 4, lambda parts: np.concatenate(parts, axis=-2)),
        ("quarters", [(14, 14)] * 4, lambda parts: np.block([parts[:2], parts[2:]])),
    ],
)
def test_images_reassemble_from_their_pieces(
    tmp_path: Path, pieces: str, shapes: list[tuple[int, int]], build: Callable[[list[np.ndarray]], np.ndarray]
) -> None:
    x, y, x_test, y_test = arrays = _images()
    parties = datasets.mnist(path=_write_idx(tmp_path, arrays), pieces=pieces, overlap=10, labels="all")
    assert [next(iter(part.columns.values())).shape[1:] for part in parties.values()] == shapes
    source = {f"train-{i}": image for i, image in enumerate(x)} | {f"test-{i}": image for i, image in enumerate(x_test)}
    whole = _together(parties, build)
    assert len(whole) == 10 + 12 + 30
    for ref, image in whole.items():
        np.testing.assert_array_equal(image, source[ref])
    for part, piece in zip(parties.values(), cut_images(np.stack(list(source.values())), pieces).values(), strict=True):
        at = [list(source).index(ref) for ref in part.ids]
        np.testing.assert_array_equal(part.columns[part.name], piece[at])  # also of the rows that it alone holds

    active = parties.active
    label = dict(zip(source, np.concatenate([y, y_test]).tolist(), strict=True))
    assert active.name == next(iter(parties))
    assert active.label is not None
    assert active.fold is not None
    assert active.book is not None
    assert active.label.tolist() == [label[ref] for ref in active.ids]
    assert active.book.label.tolist() == [label[ref] for ref in active.book.ids]
    assert active.rows + len(active.book.ids) == 150
    assert {ref for ref, kind in zip(active.ids, active.fold, strict=True) if kind == TEST} == {
        f"test-{i}" for i in range(30)
    }
    assert np.bincount(active.fold)[VALID] == 12


def _write_cifar(folder: Path, arrays: list[np.ndarray]) -> Path:
    """Five training batches and one test batch: a class, then the red, green and blue plane of an image, row by row."""
    x, y, x_test, y_test = arrays
    batches = [(x[i::5], y[i::5]) for i in range(5)] + [(x_test, y_test)]
    for name, (images, classes) in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], batches, strict=True):
        rows = [
            bytes([c]) + b"".join(image[:, :, k].tobytes() for k in range(3))
            for c, image in zip(classes, images, strict=True)
        ]
        _write(folder / f"{name}.bin", b"".join(rows))
    return folder


def test_cifar_comes_in_batches_of_planes(tmp_path: Path) -> None:
    x, y, x_test, y_test = arrays = _images(100, 20, (32, 32, 3))
    folder = _write_cifar(tmp_path / "data/cifar-10-batches-bin", arrays)
    order = np.concatenate([np.arange(100)[i::5] for i in range(5)])
    for path in (None, folder, folder / "data_batch_2.bin", tmp_path / "data"):
        found = read_cifar10(path)
        for one, two in zip(found, (x[order], y[order], x_test, y_test), strict=True):
            np.testing.assert_array_equal(one, two)
    np.savez(tmp_path / "data/cifar10.npz", **dict(zip(ARRAYS, found, strict=True)))
    parties = datasets.load("cifar10")
    _same(parties, datasets.load("cifar10", path=str(folder)))
    for ref, image in _together(parties, lambda parts: np.concatenate(parts, axis=-1)).items():
        kind, number = ref.split("-")
        source = x[order] if kind == "train" else x_test
        np.testing.assert_array_equal(image, source[int(number)].transpose(2, 0, 1))
    assert parties.active.classes[3] == "cat"
    owned = datasets.cifar10(pieces="quarters", owners=2, owner_rows=20)
    assert owned["top_left"].columns["top_left"].shape == (40 + 10 + 20, 3, 16, 16)
    assert [part.name for part in owned.label_owners] == ["owner1", "owner2"]


@pytest.mark.parametrize(
    ("size", "match"), [(0, "has 0 bytes; a multiple of 3073"), (3072, "has 3072 bytes; a multiple of 3073")]
)
def test_cifar_batches_of_another_size_are_refused(tmp_path: Path, size: int, match: str) -> None:
    folder = _write_cifar(tmp_path / "b", _images(100, 20, (32, 32, 3)))
    _write(folder / "data_batch_4.bin", bytes(size))
    with pytest.raises(InputError, match=match):
        read_cifar10(folder)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_4\.bin cannot be read: No such file"):
        read_cifar10(folder)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x_train": np.zeros((120, 28, 27), np.uint8)}, r"images are uint8 \(120, 28, 27\)"),
        ({"x_train": np.zeros((120, 28, 28))}, r"images are float64 .*; uint8 \(n, 28, 28\)"),
        (
            {"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.uint8)},
            r"images are uint8 \(0, 28, 28\)",
        ),
        ({"x_train": np.array(1, np.uint8)}, r"images are uint8 \(\)"),
        ({"y_train": np.zeros(119, np.uint8)}, r"classes uint8 \(119,\)"),
        ({"y_train": np.zeros((120, 2), np.uint8)}, r"classes uint8 \(120, 2\)"),
        ({"y_train": np.array(3)}, r"classes int64 \(\)"),
        ({"y_train": np.full(120, np.nan)}, r"classes float64 \(120,\); .* and n whole numbers"),
        ({"y_train": np.full(120, 10)}, "a class is 10; classes run from 0 to 9"),
        ({"y_test": np.full(30, -1)}, "a class is -1; classes run"),
    ],
)
def test_image_files_with_other_content_are_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    arrays = dict(zip(ARRAYS, _images(), strict=True)) | changes
    with pytest.raises(InputError, match=match):
        image_set("mnist", _write(tmp_path / "x.npz", _npz_bytes(**arrays)))


def test_an_image_set_with_a_file_missing_is_refused(tmp_path: Path) -> None:
    _write_idx(tmp_path / "data/mnist", _images())
    (tmp_path / "data/mnist" / IDX[2]).unlink()
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte is missing; the set has four IDX files"):
        datasets.mnist()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pieces": "thirds"}, "pieces is 'thirds'; one of halves, strips, quarters"),
        ({"rows": 50}, "rows is 50; the set has 120: give a whole number from 100 to 120"),
        ({"rows": 121}, "rows is 121; the set has 120"),
        ({"rows": "all"}, "rows is 'all'"),
        ({"test_rows": 5}, "test_rows is 5; the set has 30: give a whole number from 10 to 30"),
        ({"owners": -1}, "owners is -1; a whole number from 0"),
        ({"owners": 1.5}, "owners is 1.5"),
        ({"owners": 5}, "5 label owners want 5000 rows of all classes each, and 108 are left"),
        ({"owner_rows": 0, "owners": 2}, "rows is 0; a whole number from 1"),
        ({"scenario": "4niid"}, "scenario is '4niid' and owners is 0; set the number of label owners"),
        ({"owners": 2, "labels": "all"}, "labels is 'all' with 2 label owners"),
        ({"labels": "most"}, "labels is 'most'"),
        ({"overlap": 200}, "overlap=200 selects 200 of 108 training rows"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_of_image_sets_are_checked(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    _write_idx(tmp_path / "data/mnist", _images())
    with pytest.raises(InputError, match=match):
        datasets.load("mnist", **options)


def test_fewer_rows_are_a_choice_of_all(tmp_path: Path) -> None:
    x, *_ = arrays = _images()
    parties = datasets.mnist(path=_write_idx(tmp_path, arrays), rows=100, test_rows=10, overlap=1.0, seed=3)
    whole = _together(parties, lambda parts: np.concatenate(parts, axis=-1))
    train = {int(ref.removeprefix("train-")): image for ref, image in whole.items() if ref.startswith("train")}
    assert (len(train), len(whole)) == (100, 110)
    assert set(train) != set(range(100))
    for number, image in train.items():
        np.testing.assert_array_equal(image, x[number])
    assert parties.active.fold is not None
    assert np.bincount(parties.active.fold).tolist() == [90, 10, 10]


@pytest.mark.parametrize("shape", [(5, 28), (5, 3, 28), (2, 3, 4, 28, 28)])
def test_what_is_no_image_is_not_cut(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="of at least 4 was expected"):
        cut_images(np.zeros(shape), "halves")


@given(st.integers(4, 33), st.integers(4, 33), st.sampled_from(["halves", "strips", "quarters"]))
def test_no_pixel_is_lost_or_given_twice(height: int, width: int, pieces: str) -> None:
    image = np.arange(height * width).reshape(1, height, width)
    found = np.concatenate([piece.ravel() for piece in cut_images(image, pieces).values()])
    assert sorted(found.tolist()) == list(range(height * width))


# ---- views ----

VIEWS = ("pix", "fou", "fac", "zer", "kar", "mor")


def _views(width: int = 3) -> dict[str, np.ndarray]:
    """Every value says its digit and its view."""
    return {view: np.arange(2000.0)[:, None] * 10 + i + np.zeros(width) for i, view in enumerate(VIEWS)}


def _write_views(folder: Path, views: dict[str, np.ndarray]) -> Path:
    for view, values in views.items():
        text = "\n".join("  " + "   ".join(f"{value:g}" for value in row) for row in values.tolist())
        _write(folder / f"mfeat-{view}", text + "\n")
    return folder


def test_handwritten_digits_are_read_from_the_original_texts(tmp_path: Path) -> None:
    folder = _write_views(tmp_path / "data/mfeat", _views())
    np.savez(tmp_path / "any.npz", y=np.repeat(np.arange(10, dtype=np.uint8), 200), **_views())
    parties = handwritten(parties=6, overlap=50, seed=1)
    for path in (folder, folder / "mfeat-kar", tmp_path / "any.npz"):
        _same(parties, handwritten(parties=6, overlap=50, seed=1, path=path))
    assert [part.feature_names for part in parties.values()] == [(view,) for view in VIEWS]
    for i, (view, part) in enumerate(zip(VIEWS, parties.values(), strict=True)):
        numbers = np.array([int(ref.removeprefix("digit-")) for ref in part.ids])
        np.testing.assert_array_equal(part.columns[view], numbers[:, None] * 10 + i + np.zeros(3))
    active = parties.active
    assert active.label is not None
    assert active.label.tolist() == [int(ref.removeprefix("digit-")) // 200 for ref in active.ids]
    assert active.name == "view1"


@pytest.mark.parametrize(("parties", "last"), [(2, VIEWS[1:]), (4, VIEWS[3:]), (6, VIEWS[5:])])
def test_the_last_party_has_the_views_left_over(tmp_path: Path, parties: int, last: tuple[str, ...]) -> None:
    _write_views(tmp_path / "data", _views(1))
    found = handwritten(parties=parties)
    assert list(found) == [f"view{i + 1}" for i in range(parties)]
    assert found[f"view{parties}"].feature_names == last


@pytest.mark.parametrize("parties", [1, 7, 2.0, True, "two"])
def test_there_are_six_views(parties: Any) -> None:
    with pytest.raises(InputError, match="there are six views: give a whole number from 2 to 6"):
        handwritten(parties=parties)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "mfeat-zer has 0 lines; a view of Multiple Features has 2000"),
        ("1 2\n" * 1999, "mfeat-zer has 1999 lines"),
        ("1 2\n" * 1999 + "1 x\n", "mfeat-zer is not a table of numbers: .*'x'"),
        ("1 2\n" * 1999 + "1\n", "mfeat-zer is not a table of numbers"),
        ("1 2\n" * 1999 + "1 nan\n", r"column 'zer' is NaN in 1 of 2000 rows \(rows 2000\)"),
        ("1 2\n" * 1999 + "1 \xff\n", "mfeat-zer is not a table of numbers"),
    ],
)
def test_views_that_are_no_tables_are_refused(tmp_path: Path, text: str, match: str) -> None:
    _write_views(tmp_path / "data", _views(1))
    _write(tmp_path / "data/mfeat-zer", text)
    with pytest.raises(InputError, match=match):
        handwritten()
    (tmp_path / "data/mfeat-zer").unlink()
    with pytest.raises(InputError, match="mfeat-zer cannot be read: No such file"):
        handwritten()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"y": np.arange(2000) // 100}, "label indexes run from 0 to 19; there are 10 classes"),
        ({"y": np.array(["0"] * 2000)}, r"y is <U1 \(2000,\); numbers \(2000,\)"),
        ({"y": np.full(2000, 0.5)}, "y is 0.5 in one of 2000 rows; whole numbers"),
        ({"y": np.array(0)}, r"y is int64 \(\); numbers"),
        ({"fac": np.zeros((1999, 2))}, r"fac is float64 \(1999, 2\); numbers \(2000, 'columns'\)"),
        ({"fac": np.zeros(2000)}, r"fac is float64 \(2000,\)"),
        ({"fac": np.full((2000, 1), "a")}, r"fac is <U1 \(2000, 1\)"),
        ({"fac": np.zeros((2000, 0))}, r"column 'fac' has shape \(2000, 0\)"),
    ],
)
def test_handwritten_files_with_other_content_are_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    arrays: dict[str, Any] = {"y": np.repeat(np.arange(10), 200), **_views(1)} | changes
    with pytest.raises(InputError, match=match):
        handwritten(path=_write(tmp_path / "x.npz", _npz_bytes(**arrays)))


def _speech(people: int = 20, each: int = 3) -> str:
    """The original's form: group names, a header, and recordings of one person in succession."""
    lines = ["Basic Info,,Baseline Features,,Wavelet Features,,", "id,gender,PPE,Ea,det_LT_1,tqwt_x_dec_1,class"]
    for row in range(people * each):
        lines.append(f"{row // each},{row % 2},{row}.5,{1000 + row},{2000 + row},{3000 + row},{row // each % 2}")
    return "\n".join(lines) + "\n"


def _check_people(parties: Parties, subject: dict[str, int]) -> None:
    active = parties.active
    assert active.fold is not None
    kinds: dict[int, set[int]] = {}
    for ref, kind in zip(active.ids, active.fold.tolist(), strict=True):
        kinds.setdefault(subject[ref], set()).add(kind)
    for ref in parties["lab"].ids:  # what the lab alone holds trains
        if ref not in active.ids:
            kinds.setdefault(subject[ref], set()).add(TRAIN)
    assert all(len(found) == 1 for found in kinds.values())
    assert {kind for found in kinds.values() for kind in found} == {TRAIN, VALID, TEST}


@pytest.mark.parametrize("seed", range(5))
def test_recordings_of_one_person_stay_together(tmp_path: Path, seed: int) -> None:
    file = _write(tmp_path / "data/pd_speech_features.csv", "\ufeff" + _speech())
    parties = parkinson(seed=seed, overlap=0.5, labels="all")
    _check_people(parties, {f"recording-{i}": i // 3 for i in range(60)})
    clinic, lab = parties["clinic"], parties["lab"]
    rows = {table.name: np.array([int(ref.removeprefix("recording-")) for ref in table.ids]) for table in (clinic, lab)}
    own = rows["clinic"]
    np.testing.assert_array_equal(clinic.columns["baseline"], np.stack([own % 2, own + 0.5], axis=1))
    waves = rows["lab"][:, None] + np.array([1000, 2000, 3000])
    np.testing.assert_array_equal(lab.columns["wavelet"], waves)
    assert clinic.label is not None
    np.testing.assert_array_equal(clinic.label, own // 3 % 2)
    assert clinic.fold is not None
    assert np.bincount(clinic.fold)[[VALID, TEST]].tolist() == [6, 12]
    _same(parties, parkinson(seed=seed, overlap=0.5, labels="all", path=file))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (",class", ",klass", "lacks a header with the columns id, class: is it the right table"),
        (",det_LT_1,", ",Ea,", "names column 'Ea' twice; rename one"),
        ("0,0,0.5,", "0,0,half,", "line 3 is not all numbers: could not convert string to float: 'half'"),
        ("0,0,0.5,", "0,0,,", "line 3 is not all numbers"),
        ("0,0,0.5,", "0,0,nan,", r"column 'baseline' is NaN in 1 of 60 rows \(rows 1\)"),
        ("0,0,0.5,", "0,0,1,2,", "line 3 has 8 values; the header names 7"),
        ("3000,0", "3000,2", "label indexes run from 0 to 2; there are 2 classes"),
        ("3000,0", "3000,inf", "the class is inf in one of 60 rows"),
        ("0,0,0.5", "0.5,0,0.5", "the person's number is 0.5 in one of 60 rows; whole numbers"),
        ("gender", "\0", "lacks|line contains NUL|not a CSV"),
        ("Ea,det_LT_1,tqwt_x_dec_1", "a,b,c", "has 0 wavelet columns .* and 5 others"),
        ("gender,PPE", "Ed_1,Ed_2", "has 5 wavelet columns .* and 0 others"),
    ],
)
def test_speech_tables_that_do_not_fit_are_refused(tmp_path: Path, old: str, new: str, match: str) -> None:
    text = _speech().replace(old, new, 1)
    assert text != _speech()
    if new == "\0":
        match, text = "not a CSV table", text.replace("\0", "x" * 200_000)
    with pytest.raises(InputError, match=match):
        parkinson(path=_write(tmp_path / "pd_speech_features.csv", text))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"id,Ea,f,class\n", "has no rows below its header"),
        (b"\xff\xfe\0\0", "is not a CSV table: 'utf-8'"),
        (b"id,Ea,f,class\n" + b"".join(b"%d,1,2,%d\n" % (i, i % 2) for i in range(3)), "3 rows or groups are too few"),
    ],
)
def test_csv_files_that_are_none_are_refused(tmp_path: Path, text: bytes, match: str) -> None:
    with pytest.raises(InputError, match=match):
        parkinson(path=_write(tmp_path / "x.csv", text))


def test_speech_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "x": np.zeros((30, 2)),
        "y": np.arange(30) % 2,
        "subject": np.arange(30),
        "cols": np.array(["f", "Ea"]),
    }
    for changes, match in (
        ({"cols": np.array(["f", "Ea", "Ed"])}, r"x is float64 \(30, 2\); numbers \(30, 3\)"),
        ({"x": np.zeros(30)}, r"x is float64 \(30,\)"),
        ({"subject": np.arange(29)}, r"the person's number is int64 \(29,\); numbers \(30,\)"),
        ({"y": np.arange(30) % 2 > 0}, ""),
    ):
        file = _write(tmp_path / "x.npz", _npz_bytes(**(good | changes)))
        if match:
            with pytest.raises(InputError, match=match):
                parkinson(path=file)
        else:
            assert parkinson(path=file, overlap=4).active.classes == ("healthy", "parkinson")


def _fate_texts(rows: int = 40) -> tuple[str, str]:
    """Guest and host in orders of their own; the guest lacks one id, the host another."""
    guest = ["id,y,x0,x1"] + [f"{i},{i % 2},{i}.25,{-i}" for i in range(1, rows)]
    host = ["id,x0,x1,x2"] + [f"{i},{100 + i},{200 + i},{300 + i}" for i in reversed(range(rows - 1))]
    return "\n".join(guest) + "\n", "\n".join(host) + "\n\n"


def _write_fate(folder: Path, guest: str, host: str) -> Path:
    _write(folder / "breast_hetero_host.csv", host)
    return _write(folder / "breast_hetero_guest.csv", guest)


def test_fate_tables_are_joined_by_id(tmp_path: Path) -> None:
    file = _write_fate(tmp_path / "data", *_fate_texts())
    parties = fate(overlap=0.5)
    guest, host = (np.array([int(ref) for ref in part.ids]) for part in parties.values())
    assert set(guest.tolist()) | set(host.tolist()) == set(range(1, 39))
    assert parties["guest"].feature_names == ("guest_x0", "guest_x1")
    assert parties["host"].feature_names == ("host_x0", "host_x1", "host_x2")
    np.testing.assert_array_equal(parties["guest"].columns["guest_x0"], guest + 0.25)
    np.testing.assert_array_equal(parties["host"].columns["host_x2"], 300 + host)
    active = parties.active
    assert active.label is not None
    np.testing.assert_array_equal(active.label, guest % 2)
    assert (active.name, active.classes) == ("guest", (0, 1))
    assert all(type(value) is int for value in active.classes)
    arrays = {
        "guest_id": np.arange(1, 40),
        "guest_y": np.arange(1, 40) % 2,
        "guest_x": np.stack([np.arange(1, 40) + 0.25, -np.arange(1.0, 40)], axis=1),
        "guest_cols": np.array(["x0", "x1"]),
        "host_id": np.arange(39)[::-1],
        "host_x": np.arange(39)[::-1, None] + np.array([100, 200, 300]),
        "host_cols": np.array(["x0", "x1", "x2"]),
    }
    for path in (file, _write(tmp_path / "fate.npz", _npz_bytes(**arrays))):
        _same(parties, fate(overlap=0.5, path=path))


@pytest.mark.parametrize(
    ("which", "old", "new", "match"),
    [
        (0, "id,y", "id,z", "lacks a header with the columns y"),
        (0, "id,y", "name,y", "the first column is 'name'; an id was expected"),
        (0, "\n2,", "\n1,", "the guest has 39 rows and 38 ids; keep one for each"),
        (1, "\n2,", "\n1,", "the host has 39 rows and 38 ids"),
        (0, "\n2,", "\n2.5,", "the guest's id is 2.5 in one of 39 rows"),
        (1, "\n2,", f"\n{2**60},", "the host's id is 1.15.*; whole numbers below 2.53"),
        (0, "2,0,", "2,nan,", "y is nan in one of 39 rows"),
        (0, "x0,x1", "x0,x0", "names column 'x0' twice"),
        (1, "x0,x1,x2", "x0,x1", "has 4 values; the header names 3"),
        (1, "2,102", "2,inf", "column 'host_x0' is infinite in 1 of 38 rows"),
    ],
)
def test_fate_tables_that_do_not_fit_are_refused(tmp_path: Path, which: int, old: str, new: str, match: str) -> None:
    texts = list(_fate_texts())
    texts[which] = texts[which].replace(old, new, 1)
    assert texts[which] != _fate_texts()[which]
    with pytest.raises(InputError, match=match):
        fate(path=_write_fate(tmp_path, *texts))


def test_fate_needs_both_parts_of_one_table(tmp_path: Path) -> None:
    guest, host = _fate_texts()
    file = _write_fate(tmp_path, guest, host.replace("\n", "\n9"))
    with pytest.raises(InputError, match="no id in common; are both parts of one table"):
        fate(path=_write_fate(tmp_path, guest, "id,x0\n1000,1\n1001,2\n"))
    with pytest.raises(InputError, match=r"is not named …_guest\.csv"):
        fate(path=_write(tmp_path / "mine.csv", guest))
    file.with_name("breast_hetero_host.csv").unlink()
    with pytest.raises(InputError, match=r"breast_hetero_host\.csv cannot be read: No such file"):
        fate(path=file)
    for table in ("brest", ["breast"]):
        with pytest.raises(InputError, match="one of breast, default_credit, vehicle_silhouettes was expected"):
            fate(table=table)  # type: ignore[arg-type]


# ---- the real files ----


@pytest.mark.parametrize(("name", "file"), [("mnist", "mnist.npz"), ("fashion_mnist", "fashion_mnist.npz.xz")])
def test_the_real_images_reassemble(name: str, file: str) -> None:
    path = _real(file)
    x, y, x_test, y_test = image_set(name, path)
    assert (x.shape, x_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert np.bincount(y_test, minlength=10).sum() == 10_000
    np.savez("plain.npz", **dict(zip(ARRAYS, (x, y, x_test, y_test), strict=True)))  # unpacking takes its time
    parties = datasets.load(name, path="plain.npz", rows=2_000, test_rows=500, seed=1)
    whole = _together(parties, lambda parts: np.concatenate(parts, axis=-1))
    assert len(whole) == 90 + 200 + 500
    for ref, image in whole.items():
        kind, number = ref.split("-")
        np.testing.assert_array_equal(image, (x if kind == "train" else x_test)[int(number)])
    active = parties.active
    assert active.label is not None
    for ref, label in zip(active.ids, active.label.tolist(), strict=True):
        kind, number = ref.split("-")
        assert label == (y if kind == "train" else y_test)[int(number)]


def test_the_real_mnist_goes_to_five_owners_as_in_table_3() -> None:
    parties = datasets.mnist(path=_real("mnist.npz"), pieces="strips", owners=5, scenario="4niid")
    for number, owner in enumerate(parties.label_owners):
        assert owner.label is not None
        assert owner.fold is not None
        counts = np.bincount(owner.label[owner.fold == TRAIN], minlength=10)
        assert counts.sum() == 5_000
        if number:
            assert np.flatnonzero(counts).tolist() == [2 * number - 2, 2 * number - 1]
        else:
            assert counts.min() > 350  # MNIST has 9 % of fives and 11 % of ones
    assert [part.columns[part.name].shape[1:] for part in parties.passive] == [(7, 28)] * 4


def test_the_real_handwritten_digits() -> None:
    source = np.load(_real("mfeat.npz"), allow_pickle=False)
    parties = handwritten(path=HERE / "mfeat.npz")
    assert {name: values.shape[1] for part in parties.values() for name, values in part.columns.items()} == {
        "pix": 240, "fou": 76, "fac": 216, "zer": 47, "kar": 64, "mor": 6,
    }  # fmt: skip
    for part in parties.values():
        at = [int(ref.removeprefix("digit-")) for ref in part.ids]
        for name, values in part.columns.items():
            np.testing.assert_array_equal(values, source[name][at].astype(np.float32))
    assert parties.active.label is not None
    np.testing.assert_array_equal(
        parties.active.label, source["y"][[int(ref.removeprefix("digit-")) for ref in parties.active.ids]]
    )


def test_the_real_parkinson_recordings() -> None:
    source = np.load(_real("pd_speech_756.npz"), allow_pickle=False)
    parties = parkinson(path=HERE / "pd_speech_756.npz")
    subject = {f"recording-{i}": int(person) for i, person in enumerate(source["subject"])}
    _check_people(parties, subject)
    assert parties["clinic"].columns["baseline"].shape[1] == 139
    assert parties["lab"].columns["wavelet"].shape[1] == 182 + 432
    assert len({subject[ref] for part in parties.values() for ref in part.ids}) == 252


@pytest.mark.parametrize(
    ("table", "rows", "widths", "classes"),
    [
        ("breast", 569, [10, 20], (0, 1)),
        ("default_credit", 30_000, [13, 10], (0, 1)),
        ("vehicle_silhouettes", 846, [9, 9], (0, 1, 2, 3)),
    ],
)
def test_the_real_fate_tables(table: str, rows: int, widths: list[int], classes: tuple[int, ...]) -> None:
    source = np.load(_real(f"fate_{table}.npz"), allow_pickle=False)
    parties = datasets.load("fate", table=table, path=HERE)
    assert [part.rows for part in parties.values()] == [rows, rows]
    assert [len(part.columns) for part in parties.values()] == widths
    assert parties.active.classes == classes
    for part in parties.values():
        place = {number: row for row, number in enumerate(source[f"{part.name}_id"].tolist())}
        at = [place[int(ref)] for ref in part.ids]
        for i, values in enumerate(part.columns.values()):
            np.testing.assert_array_equal(values, source[f"{part.name}_x"][at, i])

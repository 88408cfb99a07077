"""Trees in files: what goes in comes out, and foreign bytes are errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from securevfl.errors import InputError
from securevfl.run import store
from securevfl.run.store import read_tree, write_tree

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(allow_nan=False),
    st.text(max_size=20),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 9)), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(tree=TREES)
def test_plain_values_come_back_with_their_types(tree: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("store") / "tree"
    write_tree(path, tree)
    found = read_tree(path)
    assert repr(found) == repr(tree)


def test_arrays_come_back_exactly(tmp_path: Path) -> None:
    big = np.array([[3**100, -(7**80)], [0, -1]], dtype=object)
    tree = {
        "weights": torch.randn(3, 4),
        "half": torch.ones(2, dtype=torch.float16),
        "rows": np.arange(5),
        "big": big,
        "empty": torch.empty(0, 3),
        "shared": [torch.arange(4)[1:], np.float32(0.5)],
        "not finite": [float("inf"), -float("inf")],
    }
    write_tree(tmp_path / "tree", tree)
    found = read_tree(tmp_path / "tree")
    assert isinstance(found, dict)
    assert torch.equal(found["weights"], tree["weights"])  # type: ignore[arg-type]
    assert found["half"].dtype == torch.float16
    np.testing.assert_array_equal(found["rows"], np.arange(5))
    assert (found["big"] == big).all()
    assert found["empty"].shape == (0, 3)
    assert found["shared"][0].tolist() == [1, 2, 3]
    assert found["shared"][1] == 0.5
    assert found["not finite"] == [float("inf"), -float("inf")]


def test_a_program_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="function cannot be stored"):
        write_tree(tmp_path / "tree", {"f": test_a_program_cannot_be_stored})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        pickle.dumps({"weights": [1, 2]}),
        (1 << 62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
    ],
    ids=["empty", "short", "a pickle", "a huge header", "no metadata"],
)
def test_foreign_bytes_are_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tree"
    path.write_bytes(content)
    with pytest.raises(InputError, match="tree"):
        read_tree(path)


@pytest.mark.parametrize(
    "skeleton",
    [
        "[]",
        '{"x": "7"}',
        '{"q": 1}',
        '{"d": [[{"v": 1}]]}',
        '{"b": ["zz"], "s": [1]}',
        '{"l": ' * 100 + '[{"v": 1}]' + "}" * 100,
    ],
    ids=["no dict", "no such tensor", "unknown kind", "half a pair", "no number", "too deep"],
)
def test_a_malformed_skeleton_is_an_error(tmp_path: Path, skeleton: str) -> None:
    path = tmp_path / "tree"
    metadata = {"format": store._FORMAT, "tree": skeleton, "sha256": store._NO_DIGEST}
    path.write_bytes(store._write_digest(save({}, metadata=metadata)))
    with pytest.raises(InputError, match="damaged"):
        read_tree(path)


def test_every_flipped_bit_and_every_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    write_tree(path, {"weights": torch.randn(3), "text": '"sha256":"' + "0" * 64 + '"'})
    assert isinstance(read_tree(path), dict)
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(InputError, match=r"damaged|not a file of this version"):
            read_tree(path)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(InputError, match="damaged"):
            read_tree(path)
    path.write_bytes(data + b"x")
    with pytest.raises(InputError, match="damaged"):
        read_tree(path)


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    write_tree(path, {"weights": torch.randn(50)})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="damaged"):
        read_tree(path)
    with pytest.raises(InputError, match="does not exist"):
        read_tree(tmp_path / "none")

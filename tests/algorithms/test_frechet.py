"""The Fréchet distance of the image benchmark against other ways to compute it, and the benchmark on noise."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from securevfl.errors import InputError

ROOT = Path(__file__).parents[2]


def _load(name: str) -> ModuleType:
    """A module of the benchmarks by its file: they are no part of the package, and others install that name too."""
    spec = importlib.util.spec_from_file_location(f"securevfl_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


frechet, networks = _load("frechet"), _load("fedda_networks")


def _normal(rng: np.random.Generator, width: int, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of features that are far from independent."""
    return frechet.moments(rng.normal(size=(rows, width)) @ rng.normal(size=(width, width)) + rng.normal(size=width))


@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_distance_is_that_of_the_general_matrix_root(width: int) -> None:
    rng = np.random.default_rng(width)
    (m1, c1), (m2, c2) = _normal(rng, width), _normal(rng, width)
    c1, c2 = np.atleast_2d(c1), np.atleast_2d(c2)
    root = np.atleast_2d(sqrtm(c1 @ c2))
    expected = np.sum((m1 - m2) ** 2) + np.trace(c1 + c2 - 2 * root.real)
    assert frechet.frechet(m1, c1, m2, c2) == pytest.approx(expected, rel=1e-9)
    assert frechet.frechet(m2, c2, m1, c1) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(frechet.root(c1), np.atleast_2d(sqrtm(c1)), atol=1e-9 * np.abs(c1).max())


def test_distance_of_diagonal_covariances_has_a_closed_form() -> None:
    a, b = np.array([4.0, 9.0, 0.0, 1.0]), np.array([1.0, 16.0, 25.0, 0.0])
    m1, m2 = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 3.0, 7.0])
    found = frechet.frechet(m1, np.diag(a), m2, np.diag(b))
    assert found == pytest.approx((4 + 9) + (2 - 1) ** 2 + (3 - 4) ** 2 + 5**2 + 1**2)


def test_singular_covariances_are_fine() -> None:
    """Of 64 rows of 100 features: tr (C1 C2)^½ is also the nuclear norm of one centred matrix times the other's
    transpose."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 100)), 2 * rng.normal(size=(64, 100)) + 1
    p, q = ((z - z.mean(axis=0)) / np.sqrt(63) for z in (x, y))
    cross = np.linalg.norm(p @ q.T, ord="nuc")
    expected = np.sum((x.mean(axis=0) - y.mean(axis=0)) ** 2) + np.sum(p**2) + np.sum(q**2) - 2 * cross
    assert frechet.between(x, y) == pytest.approx(expected, rel=1e-6)
    assert 0 <= frechet.between(x, x) < 1e-5
    assert frechet.between(x, x + 3) == pytest.approx(900, rel=1e-6)


def test_batches_are_the_same_rows_of_both() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 5))
    moved = frechet.between_batches(x, x + 2, np.random.default_rng(2), rows=10, repeat=7)
    assert moved == pytest.approx(20, rel=1e-6)
    y = x + rng.normal(size=x.shape)
    all_rows = frechet.between_batches(x, y, np.random.default_rng(3), rows=50, repeat=2)
    assert all_rows == pytest.approx(frechet.between(x, y), rel=1e-6)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_patches_are_a_convolution(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(shape[0], 6, 4, stride=4)
    x = torch.randn(3, *shape)
    linear = networks.Patches(shape)(x.flatten(1)) @ conv.weight.flatten(1).T + conv.bias
    torch.testing.assert_close(linear.transpose(1, 2), conv(x).flatten(2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 28, 14), (3, 32, 16)])
def test_generator_makes_right_halves_and_training_repeats(shape: tuple[int, int, int]) -> None:
    c, h, v = shape
    images = torch.rand(40, c, h, 2 * v) * 2 - 1
    how = networks.Training(steps=2, lr=1e-3, falls=True, width=4, batch=8)
    seen: list[int] = []
    made = []
    for seed in (0, 0, 1):
        generator = networks.train(images, images[..., :v], how, seed=seed, watch=lambda step, _: seen.append(step))
        made.append(networks.completed(generator, images[..., :v]).detach())
    assert seen == [1, 2] * 3
    assert made[0].shape == images.shape
    assert torch.equal(made[0][..., :v], images[..., :v])
    assert made[0].abs().max() <= 1
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_generator_learns_what_the_critic_sees() -> None:
    """Right halves are bright where left ones are dark: after some steps the generator knows."""
    left = (torch.rand(200, 1, 1, 1) < 0.5).float().expand(200, 1, 8, 4) * 2 - 1
    images = torch.cat([left, -left], dim=3)
    how = networks.Training(steps=150, lr=5e-3, falls=False, width=4, batch=32)
    generator = networks.train(images, left, how, seed=0, watch=lambda *_: None)
    with torch.no_grad():
        assert (generator(left) + left).abs().mean() < 0.3


def test_benchmark_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    images = importlib.import_module("benchmarks.fedda_images")
    monkeypatch.setattr(images, "BATCHES", 2)
    monkeypatch.setattr(images, "SCORED", 300)
    rng = np.random.default_rng(0)
    arrays = {}
    for name, rows in (("train", 400), ("test", 300)):
        arrays[f"x_{name}"] = rng.integers(0, 256, size=(rows, 28, 28), dtype=np.uint8)
        arrays[f"y_{name}"] = np.arange(rows) % 10
    np.savez(tmp_path / "mnist.npz", **arrays)
    file = tmp_path / "results.json"

    def run(*more: str) -> list[dict[str, Any]]:
        small = ("--non-aligned", "300", "--aligned", "40", "--steps", "2", "--seeds", "1")
        images.main(["mnist", "--data", str(tmp_path), *small, "--results", str(file), *more])
        groups: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["groups"]
        return groups

    (group,) = run()
    assert [(cell["aligned"], cell["seed"]) for cell in group["cells"]] == [(40, 0), (40, 0)]
    assert len({cell["setting"] for cell in group["cells"]}) == 2
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    assert "of 1 pairs" in capsys.readouterr().out
    assert run() == [group]

    (grown,) = run("--aligned", "40", "50")
    assert grown["cells"][:2] == group["cells"]
    assert len(grown["cells"]) == 4
    for lines in grown["summary"].values():
        for line in lines:
            assert line["ratio"] == pytest.approx(line["without"] / line["with non-aligned rows"], rel=1e-3)
    assert run("--lr", "1e-4", "--aligned", "40")[0] == grown

    other = file.read_text(encoding="utf-8").replace(group["classifier"]["fingerprint"], "0" * 16)
    file.write_text(other, encoding="utf-8")
    with pytest.raises(InputError, match="another classifier"):
        run()
    with pytest.raises(InputError, match="--non-aligned at 300"):
        run("--non-aligned", "100")


def test_summary_pairs_the_settings_of_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    images = importlib.import_module("benchmarks.fedda_images")
    figures = [(250, 0, 2.0, 3.0), (250, 1, 4.0, 6.0), (1000, 0, 4.0, 2.0)]
    cells = [
        {"aligned": aligned, "seed": seed, "setting": setting, images.MANY: score}
        for aligned, seed, *both in figures
        for setting, score in zip((images.WITH, images.WITHOUT), both, strict=True)
    ]
    cells.append({"aligned": 250, "seed": 2, "setting": images.WITH, images.MANY: 1000.0})  # no partner yet
    few, many = images.summary("mnist", cells, images.MANY)
    assert (few[images.WITH], few[images.WITHOUT], few["ratio"]) == (3.0, 4.5, 1.5)
    assert (few["ratio of each seed"], many["ratio"]) == ([1.5, 1.5], 0.5)
    assert few["paper's ratio of FID"] == pytest.approx(119.45 / 68.67, abs=1e-3)

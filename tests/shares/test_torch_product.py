"""Products modulo 2^64 on torch's tensors, on the CPU here: exact, taken for large products only, refused if wrong."""

from __future__ import annotations

import numpy as np
import pytest
from securevfl_crypto.errors import EngineError
from securevfl_crypto.ring import Stream, large_products, matmul

import securevfl as sv
from securevfl.party import job as jobs
from securevfl.run.simulation import join_parties, run_parties
from securevfl.shares import share_party, torch_product
from securevfl.shares.torch_product import TorchProduct, place_products
from securevfl.testing.parties import low_overlap_parties


@pytest.mark.parametrize("shape", [(3, 5, 2), (7, 512, 9), (4, 1029, 3), (1, 1, 1), (2, 0, 3)])
def test_the_words_are_those_of_numpy(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    stream, product = Stream.with_fresh_key(), TorchProduct("cpu")
    a, b = stream.draw_words(0, (m, k)), stream.draw_words(1, (k, n))
    ones = np.full_like(a, 2**64 - 1), np.full_like(b, 2**64 - 1)
    for left, right in ((a, b), ones, (a, ones[1]), (np.asfortranarray(a), b.T.copy().T)):
        found = product(left, right)
        assert found.dtype == np.uint64
        assert (found == left @ right).all()


def test_large_products_alone_are_taken() -> None:
    calls: list[tuple[int, ...]] = []
    whole = TorchProduct("cpu")

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        calls.append(a.shape)
        return whole(a, b)

    a, b = Stream.with_fresh_key().draw_words(0, (20, 30)), Stream.with_fresh_key().draw_words(0, (30, 10))
    with large_products(counted, least=20 * 30 * 10):
        checks = len(calls)
        assert (matmul(a, b) == a @ b).all()
        assert (matmul(a[:19], b) == a[:19] @ b).all()
        assert (matmul(np.stack([a, a]), b) == a @ b).all()
    assert calls[checks:] == [(20, 30)] * 3
    matmul(a, b)
    assert len(calls) == checks + 3


def test_an_inexact_device_is_refused() -> None:
    """One that adds in float32, or in float64 without limbs."""

    def rough(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray((a.astype(np.float64) @ b.astype(np.float64)) % 2.0**64).astype(np.uint64)

    with pytest.raises(EngineError, match="gives wrong results"), large_products(rough):
        pass


def test_products_are_placed_on_a_device_and_back_on_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    class Counted(TorchProduct):
        def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
            calls.append(a.shape)
            return super().__call__(a, b)

    monkeypatch.setattr(torch_product, "TorchProduct", Counted)
    stream = Stream.with_fresh_key()
    a, b = stream.draw_words(0, (256, 256)), stream.draw_words(1, (256, 256))
    try:
        place_products("cpu:0")
        checks = len(calls)
        assert (matmul(a, b) == a @ b).all()
        assert calls[checks:] == [(256, 256)]
    finally:
        place_products("cpu")
    assert (matmul(a, b) == a @ b).all()
    assert len(calls) == checks + 1


def test_every_computing_party_of_a_job_uses_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []
    monkeypatch.setattr(share_party, "place_products", placed.append)
    monkeypatch.setattr(jobs, "_is_usable", lambda device: True)
    people = low_overlap_parties(2, rows=80, overlap=0.5)
    job = sv.Job(protection=sv.Shares(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, device="cpu:0")
    run_parties(job, people, join_parties(people, job), run="device")
    assert placed == ["cpu:0"] * 3

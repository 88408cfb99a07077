"""Products under BFV and CKKS on a pool: the messages and the results are those of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from securevfl_crypto.errors import MalformedError, OverflowRefused, TaskFailed
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.paillier import Paillier
from securevfl_crypto.pools import LocalPool, ProcessPool
from securevfl_crypto.pools.base import Argument
from securevfl_crypto.rlwe import BFV, CKKS, tasks
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.crew import pack_array, unpack_array
from securevfl_crypto.rlwe.keys import RlweSecretKey, read_secret
from securevfl_crypto.rlwe.pooled import PooledHolder, PooledOwner

from tests.crypto.schemes import SCHEMES, Case, Cut, close

LATTICE = [case for case in SCHEMES if isinstance(case.scheme, RlweScheme)]
every = pytest.mark.parametrize("case", LATTICE, ids=str)


class Divided(LocalPool):
    """Tasks run in this process, in as many parts as three workers would do, and are written down."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = 3
        self.seen: list[tuple[str, tuple[Argument, ...]]] = []

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        self.seen.append((task.rpartition(":")[2], arguments))
        return super().submit(task, *arguments, cpus=cpus)


@pytest.fixture
def pool() -> Iterator[Divided]:
    tasks._halves.clear()
    with Divided() as opened:
        yield opened


def _pooled(case: Case, pool: LocalPool | ProcessPool) -> Case:
    assert isinstance(case.scheme, RlweScheme)
    return replace(case, scheme=case.scheme.with_pool(pool))


class Mixed(Cut):
    """A cut of which one side, or both, have a pool; one key for all."""

    def __init__(
        self, case: Case, pool: LocalPool | ProcessPool, sides: str, widths: Sequence[int], h: int, batch: int
    ):
        super().__init__(case, widths, h, batch)
        with_pool, key = _pooled(case, pool).scheme, case.key()
        if "owner" in sides:
            self.owners = [with_pool.create_owner(key, block) for block in self.blocks]
        if "holder" in sides:
            zeros = [holder._zero for holder in self.holders]  # type: ignore[attr-defined]
            pooled = [with_pool.create_holder(key.public, b, z) for b, z in zip(self.blocks, zeros, strict=True)]
            self.holders = [*pooled[:2], *self.holders[2:]]  # a third has none: masks have to cancel with its own


@every
@pytest.mark.parametrize("sides", ["owner", "holder", "owner and holder"])
@pytest.mark.parametrize(
    ("widths", "h", "batch", "rows"),
    [([40], 5, 300, 300), ([3, 11, 1], 4, 500, 333), ([2], 70, 3, 3), ([7], 1, 5, 33)],
    ids=["many tiles", "three holders", "one tile of columns", "more rows than a batch"],
)
def test_results_are_those_of_one_process(
    case: Case, pool: Divided, sides: str, widths: list[int], h: int, batch: int, rows: int
) -> None:
    cut = Mixed(case, pool, sides, widths, h, batch)
    assert isinstance(cut.owners[0], PooledOwner) == ("owner" in sides)
    assert isinstance(cut.holders[0], PooledHolder) == ("holder" in sides)
    xs = [cut.x(rows, i) for i in range(len(widths))]
    error = sum(owner.product_error for owner in cut.owners)
    assert close(cut.owners[0].open_product(cut.products(xs), rows), cut.exact(xs), error)
    if rows > batch:
        return
    s = cut.s(rows)
    for owner, holder, x in zip(cut.owners, cut.holders, xs, strict=True):
        message, phi = holder.answer_gradient(owner.seal_steps(s), x)
        found = owner.ring.to_signed(owner.open_gradient(message) + phi)
        assert close(found, x.T.astype(object) @ s, owner.gradient_error)
    assert len(pool.seen) > 2  # something ran there


@every
def test_messages_have_the_form_that_they_have_without_a_pool(case: Case, pool: Divided) -> None:
    """Size and header, all that is not random, so that a peer cannot tell, and need not know."""
    x, s = Cut(case, [40], 5, 60).x(60), Cut(case, [40], 5, 60).s(60)
    sides = []
    for cut in (Cut(case, [40], 5, 60), Mixed(case, pool, "owner and holder", [40], 5, 60)):
        owner, holder = cut.owners[0], cut.holders[0]
        weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(s)
        sides.append([weights, holder.answer_product(weights, x, cut.u[0]), steps, holder.answer_gradient(steps, x)[0]])
    for alone, pooled in zip(*sides, strict=True):
        assert alone.shape == pooled.shape
        assert alone.dtype == pooled.dtype
        assert alone.tobytes()[:36] == pooled.tobytes()[:36]
        assert alone.tobytes()[36:] != pooled.tobytes()[36:]
    assert sides[0][0].shape[1] > 36


@every
def test_integer_shares_cross(case: Case, pool: Divided) -> None:
    scheme, key = case.scheme, case.key()
    block = replace(Cut(case, [9], 3, 150).block, width_in=9, widest=0, integer_shares=True, sigma=20)
    on = _pooled(case, pool).scheme
    owner, holder = on.create_owner(key, block), on.create_holder(key.public, block, ZeroShares([]))
    rng = np.random.default_rng(0)
    x, s = rng.integers(-(2**14), 2**14, (150, 9)), rng.integers(-(2**20), 2**20, (150, 3))
    u = holder.fresh_share()
    v = rng.integers(-(2**30), 2**30, (9, 3)).astype(object) - u
    z = scheme.create_owner(key, block).open_product([holder.answer_product(owner.seal_weights(v), x, u)], 150)
    assert close(z, x.astype(object) @ (u + v), owner.product_error)
    message, phi = holder.answer_gradient(owner.seal_steps(s), x)
    assert close(owner.open_gradient(message) + phi, x.T.astype(object) @ s, owner.gradient_error)


@every
def test_a_holders_workers_get_nothing_secret_and_keys_cross_when_asked_for(case: Case, pool: Divided) -> None:
    key = case.key()
    assert isinstance(key, RlweSecretKey)
    cut = Mixed(case, pool, "holder", [40], 5, 300)
    steps = cut.owners[0].seal_steps(cut.s(300))
    for _ in range(2):
        cut.holders[0].answer_gradient(steps, cut.x(300))
    keys = [bytes(arguments[2]) for task, arguments in pool.seen if task == "answer_gradient"]  # type: ignore[arg-type]
    parts = (len(keys) - keys.count(key.public.to_bytes())) // 2
    assert parts > 1
    assert keys == [b""] * parts + [key.public.to_bytes()] * parts + [b""] * parts  # none had a half, then all had
    secrets = [secret.tobytes()[:64] for secret in key.secrets]
    assert not any(
        secret in bytes(a) for _, given in pool.seen for a in given if isinstance(a, bytes) for secret in secrets
    )
    pool.seen.clear()
    Mixed(case, pool, "owner", [40], 5, 60).owners[0].seal_steps(cut.s(60))
    assert any(secrets[0] in bytes(a) for _, given in pool.seen for a in given if isinstance(a, bytes))  # an owner's do


def test_a_key_pair_that_is_damaged_is_refused() -> None:
    key = BFV().generate_key()
    whole = key.unsafe_to_bytes()
    assert read_secret(whole, BFV.number, BFV.chains).public.fingerprint == key.public.fingerprint
    for data in (b"", whole[:-1], whole + b"x", bytes(8) + whole[8:]):
        with pytest.raises(MalformedError):
            read_secret(data, BFV.number, BFV.chains)


@every
def test_what_a_worker_refuses_is_refused_with_the_same_words(case: Case, pool: Divided) -> None:
    cut, alone = Mixed(case, pool, "owner and holder", [40], 5, 60), Cut(case, [40], 5, 60)
    x, weights = cut.x(60), alone.owners[0].seal_weights(alone.v[0])
    damaged = weights.copy()
    damaged[0, 60:] = 255  # residues out of range
    for one in (cut, alone):
        with pytest.raises(MalformedError, match="residue"):
            one.holders[0].answer_product(damaged, x, one.u[0])
        with pytest.raises(MalformedError, match="expected uint8"):
            one.holders[0].answer_product(weights[:, :-1], x, one.u[0])
        with pytest.raises(MalformedError, match="expected uint8"):
            one.owners[0].open_product([np.zeros((1, 99), dtype=np.uint8)], 60)
    two = Cut(case, [40, 2], 5, 60)
    first, _ = two.products([two.x(60), two.x(60, 1)])
    for one in (Mixed(case, pool, "owner", [40, 2], 5, 60), two):
        with pytest.raises(OverflowRefused, match="masks do not cancel"):
            one.owners[0].open_product([first], 60)


@pytest.mark.parametrize("array", [
    np.arange(6).reshape(2, 3), np.zeros((0, 4), dtype=np.uint64), np.array([[1 << 200, -5, 0]], dtype=object),
    np.array([], dtype=object).reshape(0, 2), np.arange(5, dtype=np.uint8)[None], np.arange(12).reshape(3, 4)[:, 1:3],
])  # fmt: skip
def test_arrays_cross(array: np.ndarray) -> None:
    found = unpack_array(pack_array(array))
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()


def test_a_scheme_that_workers_do_not_know_is_refused(pool: Divided) -> None:
    half = '["rot13", {"batch": 1}]'
    with pytest.raises(MalformedError, match="workers know bfv, ckks"):
        pool.submit("securevfl_crypto.rlwe.tasks:answer_product", half, "x", b"key").result()
    with pytest.raises(TaskFailed, match=r"securevfl_crypto.rlwe.tasks:answer_product ended with JSONDecodeError"):
        pool.submit("securevfl_crypto.rlwe.tasks:answer_product", "{", "x", b"key").result()


def test_what_does_not_take_a_pool(pool: Divided) -> None:
    assert Paillier(2048).with_pool(pool) == Paillier(2048)
    with LocalPool() as one:
        assert BFV().with_pool(one) is not None
        assert BFV().with_pool(one).pool is None
    assert CKKS().with_pool(None).pool is None


def test_processes_give_the_same_results_with_one_killed_before_each_product() -> None:
    case = next(case for case in LATTICE if case.scheme.exact)
    with ProcessPool(2) as pool:
        cut = Mixed(case, pool, "owner and holder", [40], 5, 60)
        x, s = cut.x(60), cut.s(60)
        assert close(cut.owners[0].open_product(cut.products([x]), 60), cut.exact([x]), 0)
        for worker in pool.pids[:1]:
            _kill(worker)
        steps = cut.owners[0].seal_steps(s)
        message, phi = cut.holders[0].answer_gradient(steps, x)
        found = cut.owners[0].ring.to_signed(cut.owners[0].open_gradient(message) + phi)
        assert close(found, x.T.astype(object) @ s, 0)


def _kill(process: int) -> None:
    import os
    import signal

    os.kill(process, signal.SIGKILL)

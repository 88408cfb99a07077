"""What every scheme of a sealed cut has to do: exact or within its stated error, hiding, checked."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import CryptoError, MalformedError, OverflowRefused, WeakKeyError
from securevfl_crypto.masks import ZeroShares

from tests.crypto.schemes import SCHEMES, Case, Cut, close

every = pytest.mark.parametrize("case", SCHEMES, ids=str)


@every
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(
    ("d", "h", "batch", "rows"),
    [(3, 2, 5, 5), (4, 3, 8, 7), (1, 1, 6, 1), (7, 1, 40, 33), (2, 70, 3, 3), (40, 5, 30, 30)],
    ids=["small", "fewer rows than planned", "one by one", "one column", "wide", "many columns"],
)
def test_products_and_gradients_of_one_holder(case: Case, d: int, h: int, batch: int, rows: int, extreme: bool) -> None:
    cut = Cut(case, [d], h, batch, extreme=extreme)
    owner, holder, x, s = cut.owners[0], cut.holders[0], cut.x(rows), cut.s(rows)
    assert close(owner.open_product(cut.products([x]), rows), cut.exact([x]), owner.product_error)
    message, phi = holder.answer_gradient(owner.seal_steps(s), x)
    found = cut.owners[0].ring.to_signed(owner.open_gradient(message) + phi)
    assert close(found, x.T.astype(object) @ s, owner.gradient_error)
    if case.scheme.exact:
        assert owner.product_error == owner.gradient_error == 0


@every
def test_all_of_one_sign_reaches_the_largest_sums(case: Case) -> None:
    cut = Cut(case, [9], 3, 20)
    owner, holder = cut.owners[0], cut.holders[0]
    x, s = np.full((20, 9), 2**15 - 1), np.full((20, 3), -(2**21) + 1)
    w = np.full((9, 3), -(2**34) + 1, dtype=object)
    v = owner.ring.reduce(w - cut.u[0])
    z = owner.open_product([holder.answer_product(owner.seal_weights(v), x, cut.u[0])], 20)
    assert close(z, x.astype(object) @ w, owner.product_error)
    message, phi = holder.answer_gradient(owner.seal_steps(s), x)
    found = owner.ring.to_signed(owner.open_gradient(message) + phi)
    assert close(found, x.T.astype(object) @ s, owner.gradient_error)


@every
def test_a_product_may_have_more_rows_than_a_gradient(case: Case) -> None:
    cut = Cut(case, [3], 4, 5)
    x = cut.x(23)
    assert close(cut.owners[0].open_product(cut.products([x]), 23), cut.exact([x]), cut.owners[0].product_error)


@every
def test_what_is_added_to_the_product(case: Case) -> None:
    cut = Cut(case, [3], 4, 6)
    owner, x = cut.owners[0], cut.x(5)
    extra = cut.rng.integers(-(2**40), 2**40, size=(5, 4))
    sent = cut.holders[0].answer_product(owner.seal_weights(cut.v[0]), x, cut.u[0], extra=extra)
    assert close(owner.open_product([sent], 5), cut.exact([x]) + extra, owner.product_error)


@every
def test_holders_of_different_widths_add_up_and_learn(case: Case) -> None:
    """Three steps of SGD: the sum of the products follows the weights that nobody holds, and shares stay small."""
    cut = Cut(case, [3, 11, 1], 4, 12)
    ring, error, drift = cut.owners[0].ring, 0, 0
    for rows in (12, 7, 12):
        xs = [cut.x(rows, i) for i in range(3)]
        z = cut.owners[0].open_product(cut.products(xs), rows)
        error = sum(owner.product_error for owner in cut.owners) + drift * 12 * 2**15
        assert close(z, cut.exact(xs), error)
        s = cut.s(rows) >> 9  # so that weights stay within their range
        for i, (owner, holder) in enumerate(zip(cut.owners, cut.holders, strict=True)):
            message, phi = holder.answer_gradient(owner.seal_steps(s), xs[i])
            mine = owner.open_gradient(message)
            cut.w[i] = cut.w[i] - xs[i].T.astype(object) @ s
            fresh = holder.fresh_share()
            cut.v[i] = ring.reduce(cut.v[i] - mine + (cut.u[i] - phi - fresh))
            cut.u[i] = fresh
            drift = max(drift, owner.gradient_error)
            assert close(ring.to_signed(cut.u[i] + cut.v[i]), cut.w[i], 3 * owner.gradient_error)


@every
def test_a_missing_holder_is_noticed(case: Case) -> None:
    cut = Cut(case, [3, 2], 4, 8)
    sent = cut.products([cut.x(8), cut.x(8, 1)])
    for part in ([sent[0]], [sent[1]], [sent[0], sent[0]]):
        with pytest.raises(CryptoError):
            cut.owners[0].open_product(part, 8)
    with pytest.raises(MalformedError):
        cut.owners[0].open_product([], 8)


@every
def test_holders_out_of_step_are_noticed(case: Case) -> None:
    """One holder calls once more than the other (a retry): the counters differ and the masks do not cancel."""
    cut = Cut(case, [3, 2], 4, 8)
    cut.holders[0].answer_product(cut.owners[0].seal_weights(cut.v[0]), cut.x(8), cut.u[0])
    with pytest.raises(CryptoError):
        cut.owners[0].open_product(cut.products([cut.x(8), cut.x(8, 1)]), 8)


@every
def test_a_holder_that_forgets_its_mask_is_noticed(case: Case) -> None:
    cut = Cut(case, [3, 2], 4, 8)
    cut.holders[1] = case.scheme.create_holder(case.key().public, cut.blocks[1], ZeroShares([]))
    with pytest.raises(CryptoError):
        cut.owners[0].open_product(cut.products([cut.x(8), cut.x(8, 1)]), 8)


@every
def test_a_key_travels(case: Case) -> None:
    key = case.key()
    raw = key.public.to_bytes()
    back = case.scheme.read_public(raw)
    assert (back.to_bytes(), back.fingerprint) == (raw, key.public.fingerprint)
    assert back.fingerprint != case.key(1).public.fingerprint
    assert back.bits >= 100
    assert back.security >= 112
    cut = Cut(case, [3], 2, 4)
    owner, x = cut.owners[0], cut.x(4)
    holder = case.scheme.create_holder(back, cut.block, ZeroShares([]))
    sent = holder.answer_product(owner.seal_weights(cut.v[0]), x, cut.u[0])
    assert close(owner.open_product([sent], 4), cut.exact([x]), owner.product_error)


@every
def test_another_key_opens_nothing(case: Case) -> None:
    cut = Cut(case, [3], 4, 8)
    other = case.scheme.create_owner(case.key(1), cut.block)
    with pytest.raises(CryptoError):
        other.open_product(cut.products([cut.x(8)]), 8)


class _Other:
    """A key of no scheme."""

    public = None


@every
def test_keys_of_another_scheme_and_weak_ones_are_refused(case: Case) -> None:
    block = Cut(case, [3], 2, 4).block
    for other in [_Other(), *(c.key() for c in SCHEMES if c.scheme.name != case.scheme.name)]:
        with pytest.raises(MalformedError):
            case.scheme.create_owner(other, block)  # type: ignore[arg-type]
        with pytest.raises(MalformedError):
            case.scheme.create_holder(other.public, block, ZeroShares([]))  # type: ignore[arg-type]
        if other.public is not None:
            with pytest.raises(MalformedError):
                case.scheme.read_public(other.public.to_bytes())
    if case.weaker is not None:
        weak = case.weaker()
        with pytest.raises(WeakKeyError):
            case.scheme.read_public(weak.public.to_bytes())
        with pytest.raises(WeakKeyError):
            case.scheme.create_owner(weak, block)
        with pytest.raises(WeakKeyError):
            case.scheme.create_holder(weak.public, block, ZeroShares([]))


@every
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damaged_keys_raise_or_are_other_keys(case: Case, data: st.DataObject) -> None:
    raw = case.key().public.to_bytes()
    for bad in (raw[: data.draw(st.integers(0, len(raw) - 1))], raw + b"\0"):
        with pytest.raises((MalformedError, WeakKeyError)):
            case.scheme.read_public(bad)
    changed = bytearray(raw)
    changed[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(MalformedError, WeakKeyError):
        assert case.scheme.read_public(bytes(changed)).fingerprint != case.key().public.fingerprint


@every
def test_what_is_out_of_range_is_refused(case: Case) -> None:
    cut = Cut(case, [3], 2, 4)
    owner, holder, x, s = cut.owners[0], cut.holders[0], cut.x(4), cut.s(4)
    weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(s)
    for sign in (1, -1):
        large, wide = x.copy(), s.copy()
        large[2, 1], wide[3, 0] = sign * 2**15, sign * 2**21
        with pytest.raises(OverflowRefused):
            holder.answer_product(weights, large, cut.u[0])
        with pytest.raises(OverflowRefused):
            holder.answer_gradient(steps, large)
        with pytest.raises(OverflowRefused):
            owner.seal_steps(wide)


@every
@pytest.mark.parametrize("sign", [1, -1])
def test_a_product_that_reaches_a_quarter_of_its_range_is_refused(case: Case, sign: int) -> None:
    cut = Cut(case, [1], 3, 4)
    owner, holder = cut.owners[0], cut.holders[0]
    limit, margin = 1 << (cut.block.z_bits - 2), 2 * owner.product_error
    x, sealed = np.array([[0], [0], [1], [0]]), owner.seal_weights(owner.ring.reduce(-cut.u[0]))
    for size, fine in ((limit - 1 - margin, True), (limit + margin, False)):
        extra = np.zeros((4, 3), dtype=np.int64)
        extra[2, 1] = sign * size
        sent = holder.answer_product(sealed, x, cut.u[0], extra=extra)
        if fine:
            assert close(owner.open_product([sent], 4), extra.astype(object), owner.product_error)
        else:
            with pytest.raises(OverflowRefused):
                owner.open_product([sent], 4)


@every
def test_a_block_that_does_not_fit_is_refused_before_anything_is_encrypted(case: Case) -> None:
    block = replace(Cut(case, [3], 2, 4).block, z_bits=9000, w_bits=8000)
    with pytest.raises(OverflowRefused):
        case.scheme.create_owner(case.key(), block)
    with pytest.raises(OverflowRefused):
        case.scheme.create_holder(case.key().public, block, ZeroShares([]))


@every
def test_messages_of_another_shape_or_type_are_refused(case: Case) -> None:
    cut = Cut(case, [3], 2, 4)
    owner, holder, x = cut.owners[0], cut.holders[0], cut.x(4)
    weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(cut.s(4))
    product, gradient = holder.answer_product(weights, x, cut.u[0]), holder.answer_gradient(steps, x)[0]
    for message, use in (
        (weights, lambda m: holder.answer_product(m, x, cut.u[0])),
        (steps, lambda m: holder.answer_gradient(m, x)),
        (product, lambda m: owner.open_product([m], 4)),
        (gradient, owner.open_gradient),
    ):
        assert message.dtype == np.uint8
        use(message)
        flat = message.reshape(len(message), -1)
        for bad in (
            message[:-1],
            np.concatenate([message, message]),
            flat[:, :-1],
            message.astype(np.int8),
            message.astype(np.float64),
            message[:0],
            np.full_like(message, 255),
            message.tobytes(),
        ):
            with pytest.raises(MalformedError):
                use(bad)


@every
@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_raises_nothing_but_this_packages_errors(case: Case, place: float, bit: int) -> None:
    cut = Cut(case, [2], 2, 3)
    owner, holder, x = cut.owners[0], cut.holders[0], cut.x(3)
    weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(cut.s(3))
    product, gradient = holder.answer_product(weights, x, cut.u[0]), holder.answer_gradient(steps, x)[0]
    for message, use in (
        (weights, lambda m: owner.open_product([holder.answer_product(m, x, cut.u[0])], 3)),
        (product, lambda m: owner.open_product([m], 3)),
        (steps, lambda m: owner.open_gradient(holder.answer_gradient(m, x)[0])),
        (gradient, owner.open_gradient),
    ):
        changed = message.copy()
        changed.reshape(-1)[int(place * message.size)] ^= 1 << bit
        with contextlib.suppress(CryptoError):
            use(changed)


@every
def test_arguments_of_another_shape_are_refused(case: Case) -> None:
    cut = Cut(case, [3], 2, 4)
    owner, holder, x, s = cut.owners[0], cut.holders[0], cut.x(4), cut.s(4)
    weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(s)
    for rows in (x[:, :2], x[:0], x.ravel(), x.astype(np.int32)):
        with pytest.raises(MalformedError):
            holder.answer_product(weights, rows, cut.u[0])
        with pytest.raises(MalformedError):
            holder.answer_gradient(steps, rows)
    with pytest.raises(MalformedError):
        holder.answer_gradient(steps, x[:3])
    with pytest.raises(MalformedError):
        holder.answer_product(weights, x, cut.u[0].T)
    with pytest.raises(MalformedError):
        holder.answer_product(weights, x, cut.u[0], extra=s[:3])
    with pytest.raises(MalformedError):
        owner.seal_weights(cut.v[0].T)
    for bad in (s[:, :1], s[:0], cut.s(5)):
        with pytest.raises(MalformedError):
            owner.seal_steps(bad)
    with pytest.raises(MalformedError):
        owner.open_product([holder.answer_product(weights, x, cut.u[0])], 0)

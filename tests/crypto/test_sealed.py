"""The sealed linear map: exact, hiding, checked; and each countermeasure is missed when it is taken away."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy import stats
from securevfl_crypto import (
    CryptoError,
    MalformedError,
    OverflowRefused,
    PaillierPublicKey,
    PairwiseMasks,
    SealedHolder,
    SealedOwner,
    SealedRange,
    ZeroShares,
    from_wire,
    generate_keypair,
    to_wire,
)

KEY = generate_keypair(768, unsafe_small_key=True)
N = KEY.public.n


class World:
    """The owner and some holders, with the weights that nobody would hold."""

    def __init__(self, parties: int, d: int, h: int, batch: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.ranges = SealedRange(batch=batch, width_in=d, width_out=h, fx=12, fs=20, x_int_bits=3, s_bits=21)
        pairs: dict[int, list[PairwiseMasks]] = {i: [] for i in range(parties)}
        for i, j in itertools.combinations(range(parties), 2):
            for who, positive in ((i, True), (j, False)):
                pairs[who].append(PairwiseMasks(bytes([i + 1, j + 1, seed, 0] * 8), positive=positive))
        self.owners = [SealedOwner(KEY, self.ranges) for _ in range(parties)]
        self.holders = [SealedHolder(KEY.public, self.ranges, ZeroShares(pairs[i])) for i in range(parties)]
        scale = 2**self.ranges.fx * 2**self.ranges.fs
        self.w = [(self.rng.normal(size=(d, h)) * scale).astype(np.int64).astype(object) for _ in range(parties)]
        self.u = [holder.fresh_share() for holder in self.holders]
        self.v = [w - u for w, u in zip(self.w, self.u, strict=True)]

    def x(self, rows: int) -> np.ndarray:
        wide = self.rng.normal(size=(rows, self.ranges.width_in)) * 2**self.ranges.fx * 2
        return np.clip(wide, -(2**15) + 1, 2**15 - 1).astype(np.int64)

    def s(self, rows: int) -> np.ndarray:
        return self.rng.integers(-(2**20), 2**20, size=(rows, self.ranges.width_out))

    def parties(self) -> Iterator[tuple[int, SealedOwner, SealedHolder]]:
        return ((i, o, h) for i, (o, h) in enumerate(zip(self.owners, self.holders, strict=True)))


@pytest.mark.parametrize(
    ("parties", "d", "h", "batch", "rows"),
    [(1, 3, 2, 5, 5), (2, 4, 3, 8, 7), (3, 2, 1, 6, 1), (2, 3, 20, 4, 4), (1, 1, 31, 3, 2)],
    ids=["one party", "odd batch", "one row", "a row in several ciphertexts", "wide"],
)
def test_steps_equal_plain_integers(parties: int, d: int, h: int, batch: int, rows: int) -> None:
    world = World(parties, d, h, batch)
    for _ in range(2):
        xs = [world.x(rows) for _ in range(parties)]
        sent = [
            holder.forward(owner.seal_weights(world.v[i]), xs[i], world.u[i]) for i, owner, holder in world.parties()
        ]
        z = world.owners[0].open_forward(sent, rows)
        expected = sum(x.astype(object) @ w for x, w in zip(xs, world.w, strict=True))
        assert (z == expected).all()

        step = world.s(rows)
        sealed, by_sample = world.owners[0].seal_gradient(step), world.owners[0].seal_gradient_by_sample(step)
        for i, owner, holder in world.parties():
            back, mask = holder.input_gradient(by_sample, world.u[i], rows)
            masked = owner.open_input_gradient(back, step, world.v[i])
            found = holder.unmask_input_gradient(masked, mask, rows)
            assert (found == step.astype(object) @ world.w[i].T).all()

            array, phi = holder.weight_gradient(sealed, xs[i])
            mine = owner.open_weight_gradient(array)
            world.w[i] = world.w[i] - xs[i].T.astype(object) @ step.astype(object)
            world.v[i] = world.v[i] - mine
            fresh = holder.fresh_share()
            world.v[i] = world.v[i] + (world.u[i] - phi - fresh)
            world.u[i] = fresh
            assert (world.u[i] + world.v[i] == world.w[i]).all()


def _opened(array: np.ndarray) -> list[float]:
    return [float(mpz(KEY.decrypt(c) % N) / N) for c in from_wire(array, KEY.public, len(array))]


def test_one_partys_forward_is_uniform_whatever_its_features() -> None:
    """What the owner decrypts of one party's ciphertexts spans all of Z_n, for zeros as for large features."""
    seen = []
    for value in (0, 2**15 - 1):
        world = World(2, 2, 1, 64, seed=value % 2)
        xs = np.full((400, 2), value, dtype=np.int64)
        sealed = world.owners[0].seal_weights(world.v[0])
        found = [
            v
            for part in range(0, 400, 50)
            for v in _opened(world.holders[0].forward(sealed, xs[part : part + 50], world.u[0]))
        ]
        assert stats.kstest(found, "uniform").pvalue > 1e-6
        seen.append(found)
    assert stats.ks_2samp(*seen).pvalue > 1e-6


def test_without_the_mask_the_same_test_fails() -> None:
    world = World(1, 2, 1, 64)  # one party has no mask: z is what the owner is meant to learn
    sealed = world.owners[0].seal_weights(world.v[0])
    found = _opened(world.holders[0].forward(sealed, world.x(600), world.u[0]))
    assert stats.kstest(found, "uniform").pvalue < 1e-6


def test_weight_and_input_gradients_are_hidden_by_their_masks() -> None:
    """The owner's view for all-zero and for extreme features cannot be told apart, and fills the mask's range."""
    views: dict[str, list[list[float]]] = {"weights": [], "inputs": []}
    for value in (0, 2**15 - 1):
        world = World(1, 6, 2, 40)
        x, step = np.full((40, 6), value, dtype=np.int64), np.full((40, 2), 2**20 - 1, dtype=np.int64)
        weights, inputs = [], []
        for _ in range(20):
            array, _ = world.holders[0].weight_gradient(world.owners[0].seal_gradient(step), x)
            opened = world.owners[0].open_weight_gradient(array)
            weights += [float(v) / 2.0**world.ranges.phi_bits for v in opened.flat]
        sealed = world.owners[0].seal_gradient_by_sample(step)
        share = np.full((6, 2), (value << 60) + value, dtype=object)
        for _ in range(12):
            back, _ = world.holders[0].input_gradient(sealed, share, 40)
            inputs += [2 * v - 1 for v in _opened(back)]
        assert stats.kstest(inputs, "uniform", args=(-1, 2)).pvalue > 1e-6
        views["weights"].append(weights)
        views["inputs"].append(inputs)
    for one, other in views.values():
        assert stats.ks_2samp(one, other).pvalue > 1e-6
        assert min(one) < -0.9
        assert max(one) > 0.9


def _exponent_guess(x: np.ndarray, alphas: list[int], product: mpz, extra: mpz) -> bool:
    """The owner's attack: does the product's randomness equal h_s^(Σ α_j x_j) for the guess x?"""
    public = KEY.public
    guess = gmpy2.powmod(public.hs, sum(a * int(v) for a, v in zip(alphas, x, strict=True)), public.n2)
    plain = KEY.decrypt(product)
    return bool(product == public.raw(plain) * guess * extra % public.n2)


def test_the_owner_confirms_a_guess_without_blinding_and_cannot_with_it() -> None:
    public = KEY.public
    alphas = [12345678901234567890 + j for j in range(3)]
    sealed = [public.raw(j + 5) * gmpy2.powmod(public.hs, a, public.n2) % public.n2 for j, a in enumerate(alphas)]
    x = np.array([[3, -4, 9]])
    product = mpz(1)
    for c, e in zip(sealed, x[0], strict=True):
        product = product * gmpy2.powmod(c, int(e), public.n2) % public.n2
    assert _exponent_guess(x[0], alphas, product, mpz(1))
    assert not _exponent_guess(x[0] + 1, alphas, product, mpz(1))

    ranges = SealedRange(batch=4, width_in=3, width_out=1, fx=12, fs=20, x_int_bits=3, s_bits=21)
    holder = SealedHolder(public, ranges, ZeroShares([]))
    layout = ranges.forward(public.bits)
    weights = [mpz(w) << (place * layout.slot) for place in range(layout.per) for w in (5, 6, 7)]
    fixed = [public.raw(w) * gmpy2.powmod(public.hs, a, public.n2) for w, a in zip(weights, itertools.cycle(alphas))]
    sent = holder.forward(to_wire([c % public.n2 for c in fixed], public), x, np.zeros((3, 1), dtype=object))
    assert not _exponent_guess(x[0], alphas, from_wire(sent, public, 1)[0], mpz(1))


def _character(c: mpz, p: mpz, r: int) -> mpz:
    """An r-th root of unity modulo p that is a homomorphism: it tells the owner, who knows p, exponents modulo r."""
    return gmpy2.powmod(c, (p - 1) // r, p)


def test_exponents_of_what_comes_back_are_uniform_modulo_small_factors_of_the_order() -> None:
    """The owner reads the exponent of h_s modulo every small factor r of p − 1. Unblinded it is Σ α_j x_j modulo r."""
    for _ in range(200):
        key = generate_keypair(512, unsafe_small_key=True)
        found = [r for r in (3, 5, 7, 11) if (key.p - 1) % r == 0 and _character(key.public.hs, key.p, r) != 1]
        if found:
            break
    r, p, public = found[0], key.p, key.public
    logs = {gmpy2.powmod(_character(public.hs, p, r), e, p): e for e in range(r)}

    def exponent(c: mpz) -> int:
        # c is raw(m) times a power of h_s, and raw(m) is 1 modulo p
        return logs[_character(c, p, r)]

    ranges = SealedRange(batch=600, width_in=1, width_out=1, fx=12, fs=20, x_int_bits=3, s_bits=21)
    holder = SealedHolder(public, ranges, ZeroShares([]))
    places = ranges.forward(public.bits).per
    weights = [public.encrypt(0) for _ in range(places)]
    x = np.zeros((600 * places, 1), dtype=np.int64)
    x[::places] = 12345
    product = gmpy2.powmod(weights[0], 12345, public.n2)
    assert exponent(product) == exponent(weights[0]) * 12345 % r
    sent = from_wire(holder.forward(to_wire(weights, public), x, np.zeros((1, 1), dtype=object)), public, 600)
    counts = np.bincount([exponent(c) for c in sent], minlength=r)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_the_blinding_exponent_is_long_enough_to_drown_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """ρ has 40 bits more than |Σ α_j x_j| can have, in each of the three messages."""
    lengths: list[int] = []
    original = PaillierPublicKey.blinding

    def spy(key: PaillierPublicKey, extra_bits: int = 0) -> mpz:
        lengths.append(key.randomness_bits + extra_bits)
        return original(key, extra_bits)

    world = World(1, 5, 2, 9)
    sealed, step = world.owners[0].seal_weights(world.v[0]), world.s(9)
    gradient, by_sample = world.owners[0].seal_gradient(step), world.owners[0].seal_gradient_by_sample(step)
    monkeypatch.setattr(PaillierPublicKey, "blinding", spy)
    alpha, x_bits = KEY.public.randomness_bits, world.ranges.x_bits
    for call, terms, bits in (
        (lambda: world.holders[0].forward(sealed, world.x(9), world.u[0]), 5, x_bits),
        (lambda: world.holders[0].weight_gradient(gradient, world.x(9)), 9, x_bits),
        (lambda: world.holders[0].input_gradient(by_sample, world.u[0], 9), 2, world.ranges.share_bits),
    ):
        lengths.clear()
        call()
        assert lengths
        largest = ((1 << alpha) - 1) * ((1 << bits) - 1) * terms
        assert min(lengths) >= largest.bit_length() + 40


def test_z_near_the_end_of_its_range_is_refused() -> None:
    world = World(1, 1, 1, 2)
    limit = 1 << (world.ranges.forward(KEY.public.bits).slot - 3)
    x = np.array([[1]], dtype=np.int64)
    for size, fine in ((limit - 1, True), (limit, False), (-limit, False)):
        share = np.array([[size]], dtype=object)
        zero = np.zeros((1, 1), dtype=object)
        sent = world.holders[0].forward(world.owners[0].seal_weights(zero), x, share)
        if fine:
            assert world.owners[0].open_forward([sent], 1)[0, 0] == size
        else:
            with pytest.raises(OverflowRefused, match="z reaches"):
                world.owners[0].open_forward([sent], 1)


def test_malformed_messages_are_refused() -> None:
    world = World(1, 3, 2, 4)
    owner, holder = world.owners[0], world.holders[0]
    sealed = owner.seal_weights(world.v[0])
    x = world.x(4)
    zero, large = np.zeros_like(sealed), np.full_like(sealed, 255)
    factor = sealed.copy()
    factor[0] = np.frombuffer(int(KEY.p).to_bytes(sealed.shape[1], "little"), dtype=np.uint8)
    for bad in (sealed[:-1], sealed[:, :-1], sealed.astype(np.int8), zero, large, factor):
        with pytest.raises(MalformedError):
            holder.forward(bad, x, world.u[0])
    with pytest.raises(MalformedError):
        holder.forward(sealed, x[:, :2], world.u[0])
    with pytest.raises(OverflowRefused):
        holder.forward(sealed, x * 0 + 2**15, world.u[0])
    with pytest.raises(OverflowRefused):
        owner.seal_gradient(np.full((4, 2), 2**21, dtype=np.int64))
    with pytest.raises(MalformedError, match="4 were planned"):
        owner.seal_gradient(world.s(5))
    with pytest.raises(MalformedError):
        owner.open_forward([holder.forward(sealed, x, world.u[0])], 99)


def test_the_holder_checks_what_its_masks_are_sized_for() -> None:
    """Φ, M and the blinding hide values within the agreed range; beyond it they would not, so nothing is sent."""
    world = World(1, 3, 2, 4)
    owner, holder, step = world.owners[0], world.holders[0], world.s(4)
    sealed, by_sample = owner.seal_gradient(step), owner.seal_gradient_by_sample(step)
    with pytest.raises(OverflowRefused, match="an activation"):
        holder.weight_gradient(sealed, np.full((4, 3), 2**15, dtype=np.int64))
    with pytest.raises(OverflowRefused, match="the share U"):
        holder.input_gradient(by_sample, world.u[0] * 8, 4)
    with pytest.raises(OverflowRefused, match="the step S"):
        owner.seal_gradient_by_sample(np.full((4, 2), 2**21, dtype=np.int64))
    for x in (world.x(4)[:, :2], world.x(5), world.x(4)[:0], world.x(4).ravel()):
        with pytest.raises(MalformedError):
            holder.weight_gradient(sealed, x)
    for share, rows in ((world.u[0].T, 4), (world.u[0], 5), (world.u[0], 0)):
        with pytest.raises(MalformedError):
            holder.input_gradient(by_sample, share, rows)
    with pytest.raises(MalformedError, match="no party"):
        owner.open_forward([], 4)


def test_a_returned_gradient_is_checked() -> None:
    world = World(1, 3, 2, 4)
    owner, holder, step = world.owners[0], world.holders[0], world.s(4)
    back, masks = holder.input_gradient(owner.seal_gradient_by_sample(step), world.u[0], 4)
    masked = owner.open_input_gradient(back, step, world.v[0])
    for bad in (masked[:-1], masked[:, :-1], masked.astype(np.int8), np.full_like(masked, 255)):
        with pytest.raises(MalformedError):
            holder.unmask_input_gradient(bad, masks, 4)
    limit = 1 << world.ranges.input_bits
    one, none = np.array([[1, 0]] * 4, dtype=np.int64), np.zeros((3, 2), dtype=object)
    sealed = owner.seal_gradient_by_sample(one)
    for size, fine in ((limit - 1, True), (limit, False), (-limit, False)):
        weights = none.copy()
        weights[1, 0] = size
        fresh, others = holder.input_gradient(sealed, none, 4)
        returned = owner.open_input_gradient(fresh, one, weights)
        if fine:
            assert (holder.unmask_input_gradient(returned, others, 4)[:, 1] == size).all()
        else:
            with pytest.raises(OverflowRefused, match="the gradient at the activations reaches"):
                holder.unmask_input_gradient(returned, others, 4)
    with pytest.raises(CryptoError):  # another round's masks
        holder.unmask_input_gradient(masked, masks[::-1], 4)


def test_a_key_too_small_for_one_value_is_refused_before_anything_is_encrypted() -> None:
    ranges = SealedRange(batch=4, width_in=3, width_out=2, fx=300, fs=300, x_int_bits=3, s_bits=400)
    with pytest.raises(OverflowRefused, match="use a larger key"):
        SealedOwner(KEY, ranges)


def test_a_dropped_mask_shows_as_an_overflow() -> None:
    """If one holder forgot its mask, the sum would not cancel, and the owner would notice rather than train on it."""
    world = World(2, 2, 1, 4)
    careless = SealedHolder(KEY.public, world.ranges, ZeroShares([]))
    sealed = [owner.seal_weights(v) for owner, v in zip(world.owners, world.v, strict=True)]
    for _ in range(30):  # one row of one number: chance alone would put a quarter of all plaintexts in its range
        sent = [
            world.holders[0].forward(sealed[0], world.x(1), world.u[0]),
            careless.forward(sealed[1], world.x(1), world.u[1]),
        ]
        with pytest.raises(CryptoError):
            world.owners[0].open_forward(sent, 1)


def test_holders_out_of_step_are_noticed() -> None:
    """One holder calls once more than the other (a retry): the counters differ and the masks do not cancel."""
    world = World(2, 2, 1, 4)
    sealed = [owner.seal_weights(v) for owner, v in zip(world.owners, world.v, strict=True)]
    world.holders[0].forward(sealed[0], world.x(1), world.u[0])
    sent = [holder.forward(sealed[i], world.x(1), world.u[i]) for i, _, holder in world.parties()]
    with pytest.raises(CryptoError):
        world.owners[0].open_forward(sent, 1)


@pytest.mark.parametrize(("batch", "d", "h"), [(8, 3, 2), (256, 12, 16), (1000, 64, 7)])
def test_every_integer_mask_is_40_bits_wider_than_what_it_hides(batch: int, d: int, h: int) -> None:
    ranges = SealedRange(batch=batch, width_in=d, width_out=h, fx=12, fs=25, x_int_bits=3, s_bits=21)
    largest_x, largest_s = 2**15 - 1, 2**21 - 1
    assert ranges.phi_bits >= (batch * largest_x * largest_s).bit_length() + 40
    largest_weight = 2 ** (ranges.fx + ranges.fs + ranges.w_int_bits)
    assert ranges.share_bits >= largest_weight.bit_length() - 1 + 40
    assert ranges.input_bits >= (h * largest_s * largest_weight).bit_length()
    # and the slots hold the masks, and the bytes on the wire hold the shares
    assert ranges.backward(2048).slot > ranges.phi_bits + 1
    assert ranges.by_sample(2048).slot > ranges.input_bits + 1
    assert 8 * ranges.share_bytes > max(ranges.share_bits, ranges.phi_bits) + 2

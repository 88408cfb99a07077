"""The hash to Curve25519 against the vectors of RFC 9380, and properties that a known peer lacks."""

from __future__ import annotations

import secrets
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import PSIError, hash_many_to_u, hash_to_curve
from securevfl_psi.hash_to_curve import J, P, _add_many, expand_message_xmd, hash_to_field, is_on_curve, map_to_curve

DST = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_RO_"

# RFC 9380, appendix J.4.1, all five: message, P.x, P.y, u[0], u[1], Q0.x, Q0.y, Q1.x, Q1.y. Equal, number by
# number, to the table in libcrux's tests, which was extracted from the RFC's text; P of the first three also in YACL's.
VECTORS = [
    (
        b"",
        "2de3780abb67e861289f5749d16d3e217ffa722192d16bbd9d1bfb9d112b98c0",
        "3b5dc2a498941a1033d176567d457845637554a2fe7a3507d21abd1c1bd6e878",
        "005fe8a7b8fef0a16c105e6cadf5a6740b3365e18692a9c05bfbb4d97f645a6a",
        "1347edbec6a2b5d8c02e058819819bee177077c9d10a4ce165aab0fd0252261a",
        "36b4df0c864c64707cbf6cf36e9ee2c09a6cb93b28313c169be29561bb904f98",
        "6cd59d664fb58c66c892883cd0eb792e52055284dac3907dd756b45d15c3983d",
        "3fa114783a505c0b2b2fbeef0102853c0b494e7757f2a089d0daae7ed9a0db2b",
        "76c0fe7fec932aaafb8eefb42d9cbb32eb931158f469ff3050af15cfdbbeff94",
    ),
    (
        b"abc",
        "2b4419f1f2d48f5872de692b0aca72cc7b0a60915dd70bde432e826b6abc526d",
        "1b8235f255a268f0a6fa8763e97eb3d22d149343d495da1160eff9703f2d07dd",
        "49bed021c7a3748f09fa8cdfcac044089f7829d3531066ac9e74e0994e05bc7d",
        "5c36525b663e63389d886105cee7ed712325d5a97e60e140aba7e2ce5ae851b6",
        "16b3d86e056b7970fa00165f6f48d90b619ad618791661b7b5e1ec78be10eac1",
        "4ab256422d84c5120b278cbdfc4e1facc5baadffeccecf8ee9bf3946106d50ca",
        "7ec29ddbf34539c40adfa98fcb39ec36368f47f30e8f888cc7e86f4d46e0c264",
        "10d1abc1cae2d34c06e247f2141ba897657fb39f1080d54f09ce0af128067c74",
    ),
    (
        b"abcdef0123456789",
        "68ca1ea5a6acf4e9956daa101709b1eee6c1bb0df1de3b90d4602382a104c036",
        "2a375b656207123d10766e68b938b1812a4a6625ff83cb8d5e86f58a4be08353",
        "6412b7485ba26d3d1b6c290a8e1435b2959f03721874939b21782df17323d160",
        "24c7b46c1c6d9a21d32f5707be1380ab82db1054fde82865d5c9e3d968f287b2",
        "71de3dadfe268872326c35ac512164850860567aea0e7325e6b91a98f86533ad",
        "26a08b6e9a18084c56f2147bf515414b9b63f1522e1b6c5649f7d4b0324296ec",
        "5704069021f61e41779e2ba6b932268316d6d2a6f064f997a22fef16d1eaeaca",
        "50483c7540f64fb4497619c050f2c7fe55454ec0f0e79870bb44302e34232210",
    ),
    (
        b"q128_" + b"q" * 128,
        "096e9c8bae6c06b554c1ee69383bb0e82267e064236b3a30608d4ed20b73ac5a",
        "1eb5a62612cafb32b16c3329794645b5b948d9f8ffe501d4e26b073fef6de355",
        "5e123990f11bbb5586613ffabdb58d47f64bb5f2fa115f8ea8df0188e0c9e1b5",
        "5e8553eb00438a0bb1e7faa59dec6d8087f9c8011e5fb8ed9df31cb6c0d4ac19",
        "7a94d45a198fb5daa381f45f2619ab279744efdd8bd8ed587fc5b65d6cea1df0",
        "67d44f85d376e64bb7d713585230cdbfafc8e2676f7568e0b6ee59361116a6e1",
        "30506fb7a32136694abd61b6113770270debe593027a968a01f271e146e60c18",
        "7eeee0e706b40c6b5174e551426a67f975ad5a977ee2f01e8e20a6d612458c3b",
    ),
    (
        b"a512_" + b"a" * 512,
        "1bc61845a138e912f047b5e70ba9606ba2a447a4dade024c8ef3dd42b7bbc5fe",
        "623d05e47b70e25f7f1d51dda6d7c23c9a18ce015fe3548df596ea9e38c69bf1",
        "20f481e85da7a3bf60ac0fb11ed1d0558fc6f941b3ac5469aa8b56ec883d6d7d",
        "017d57fd257e9a78913999a23b52ca988157a81b09c5442501d07fed20869465",
        "02d606e2699b918ee36f2818f2bc5013e437e673c9f9b9cdc15fd0c5ee913970",
        "29e9dc92297231ef211245db9e31767996c5625dfbf92e1c8107ef887365de1e",
        "38920e9b988d1ab7449c0fa9a6058192c0c797bb3d42ac345724341a1aa98745",
        "24dcc1be7c4d591d307e89049fd2ed30aae8911245a9d8554bf6032e5aa40d3d",
    ),
]


def _hex(value: object) -> str:
    return f"{int(value):064x}"  # type: ignore[call-overload]


@pytest.mark.parametrize("vector", VECTORS, ids=["empty", "abc", "short", "q128", "a512"])
def test_vectors_of_rfc_9380(vector: tuple[bytes, str, str, str, str, str, str, str, str]) -> None:
    message, px, py, u0, u1, q0x, q0y, q1x, q1y = vector
    elements = hash_to_field(message, DST)
    assert tuple(map(_hex, elements)) == (u0, u1)
    (ax, ay), (bx, by) = map_to_curve(elements)
    assert tuple(map(_hex, (ax, ay, bx, by))) == (q0x, q0y, q1x, q1y)
    assert tuple(map(_hex, hash_to_curve(message, DST))) == (px, py)


# RFC 9380, appendix K.3: expand_message_xmd with SHA-512, all ten, copied from a public Rust test suite that quotes
# draft 12 of the RFC, appendix K.3; three of them ("" and "abc" to 32 bytes, "" to 128) also stand in one that quotes
# the RFC itself.
EXPANDER_DST = b"QUUX-V01-CS02-with-expander-SHA512-256"


@pytest.mark.parametrize(
    ("message", "length", "expected"),
    [
        (b"", 32, "6b9a7312411d92f921c6f68ca0b6380730a1a4d982c507211a90964c394179ba"),
        (b"abc", 32, "0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc"),
        (b"abcdef0123456789", 32, "087e45a86e2939ee8b91100af1583c4938e0f5fc6c9db4b107b83346bc967f58"),
        (b"q128_" + b"q" * 128, 32, "7336234ee9983902440f6bc35b348352013becd88938d2afec44311caf8356b3"),
        (b"a512_" + b"a" * 512, 32, "57b5f7e766d5be68a6bfe1768e3c2b7f1228b3e4b3134956dd73a59b954c66f4"),
        (
            b"",
            128,
            "41b037d1734a5f8df225dd8c7de38f851efdb45c372887be655212d07251b921b052b62eaed99b46f72f2ef4cc96bfaf"
            "254ebbbec091e1a3b9e4fb5e5b619d2e0c5414800a1d882b62bb5cd1778f098b8eb6cb399d5d9d18f5d5842cf5d13d7e"
            "b00a7cff859b605da678b318bd0e65ebff70bec88c753b159a805d2c89c55961",
        ),
        (
            b"abc",
            128,
            "7f1dddd13c08b543f2e2037b14cefb255b44c83cc397c1786d975653e36a6b11bdd7732d8b38adb4a0edc26a0cef4bb4"
            "5217135456e58fbca1703cd6032cb1347ee720b87972d63fbf232587043ed2901bce7f22610c0419751c065922b48843"
            "1851041310ad659e4b23520e1772ab29dcdeb2002222a363f0c2b1c972b3efe1",
        ),
        (
            b"abcdef0123456789",
            128,
            "3f721f208e6199fe903545abc26c837ce59ac6fa45733f1baaf0222f8b7acb0424814fcb5eecf6c1d38f06e9d0a6ccfb"
            "f85ae612ab8735dfdf9ce84c372a77c8f9e1c1e952c3a61b7567dd0693016af51d2745822663d0c2367e3f4f0bed827f"
            "eecc2aaf98c949b5ed0d35c3f1023d64ad1407924288d366ea159f46287e61ac",
        ),
        (
            b"q128_" + b"q" * 128,
            128,
            "b799b045a58c8d2b4334cf54b78260b45eec544f9f2fb5bd12fb603eaee70db7317bf807c406e26373922b7b8920fa29"
            "142703dd52bdf280084fb7ef69da78afdf80b3586395b433dc66cde048a258e476a561e9deba7060af40adf30c64249c"
            "a7ddea79806ee5beb9a1422949471d267b21bc88e688e4014087a0b592b695ed",
        ),
        (
            b"a512_" + b"a" * 512,
            128,
            "05b0bfef265dcee87654372777b7c44177e2ae4c13a27f103340d9cd11c86cb2426ffcad5bd964080c2aee97f03be1ca"
            "18e30a1f14e27bc11ebbd650f305269cc9fb1db08bf90bfc79b42a952b46daf810359e7bc36452684784a64952c343c5"
            "2e5124cd1f71d474d5197fefc571a92929c9084ffe1112cf5eea5192ebff330b",
        ),
    ],
)
def test_expander_vectors_of_rfc_9380(message: bytes, length: int, expected: str) -> None:
    assert expand_message_xmd(message, EXPANDER_DST, length).hex() == expected


@pytest.mark.parametrize(("dst", "length"), [(b"", 32), (b"x" * 256, 32), (b"x", 64 * 256)])
def test_the_expander_keeps_its_limits(dst: bytes, length: int) -> None:
    with pytest.raises(PSIError):
        expand_message_xmd(b"", dst, length)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_many_at_once_equal_one_by_one_up_to_the_cofactor(messages: list[bytes]) -> None:
    """X25519 of Q equals X25519 of the suite's own point 8Q with the scalar divided by 8 (mod the group's order)."""
    order = 2**252 + 27742317777372353535851937790883648493
    clamped = bytearray(secrets.token_bytes(32))
    clamped[0] &= 248
    clamped[31] = clamped[31] & 127 | 64
    k = int.from_bytes(clamped, "little")
    key = X25519PrivateKey.from_private_bytes(bytes(clamped))
    for message, u in zip(messages, hash_many_to_u(messages, DST), strict=True):
        fast = key.exchange(X25519PublicKey.from_public_bytes(u))
        x, y = hash_to_curve(message, DST)
        assert int.from_bytes(fast, "little") == _multiply(k // 8 % order, int(x), int(y))


def _multiply(k: int, x: int, y: int) -> int:
    """Double and add on ``y² = x³ + J x² + x`` with affine formulas: slow and obvious."""
    p, j = int(P), int(J)

    def add(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
        if a is None or b is None:
            return a or b
        if a[0] == b[0]:
            if (a[1] + b[1]) % p == 0:
                return None
            slope = (3 * a[0] ** 2 + 2 * j * a[0] + 1) * pow(2 * a[1], -1, p)
        else:
            slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
        u = (slope * slope - j - a[0] - b[0]) % p
        return u, (slope * (a[0] - u) - a[1]) % p

    result: tuple[int, int] | None = None
    point: tuple[int, int] | None = (x, y)
    while k:
        if k & 1:
            result = add(result, point)
        point = add(point, point)
        k >>= 1
    assert result is not None
    return result[0]


def test_every_point_is_on_the_curve_and_none_on_its_twist() -> None:
    points = hash_many_to_u([b"%d" % i for i in range(500)], DST)
    assert all(is_on_curve(int.from_bytes(u, "little")) for u in points)
    assert 150 < sum(is_on_curve(int.from_bytes(secrets.token_bytes(31), "little")) for _ in range(500)) < 350


def _map_slowly(u: int) -> tuple[int, int]:
    """RFC 9380, section 6.7.1, step by step, by Euler's criterion and trial of both roots: slow and obvious."""
    p, j = int(P), int(J)

    def g(x: int) -> int:
        return (x * x * x + j * x * x + x) % p

    def root(a: int) -> int:
        r = pow(a, (p + 3) // 8, p)
        r = r if r * r % p == a else r * pow(2, (p - 1) // 4, p) % p
        assert r * r % p == a
        return r

    denominator = (1 + 2 * u * u) % p
    x1 = -j * pow(denominator, -1, p) % p if denominator else -j % p
    x, sign = (x1, 1) if pow(g(x1), (p - 1) // 2, p) in (0, 1) else ((-x1 - j) % p, 0)
    y = root(g(x))
    return x, y if y % 2 == sign else -y % p


@settings(max_examples=40, deadline=None)
@given(st.integers(0, int(P) - 1))
def test_the_map_equals_the_slow_one(u: int) -> None:
    assert map_to_curve([P * 0 + u]) == [_map_slowly(u)]


def test_the_map_at_its_edges() -> None:
    edges = [0, 1, 2, int(P) - 1, int(P) - 2, (int(P) - 1) // 2, (int(P) + 1) // 2]
    assert map_to_curve([P * 0 + u for u in edges]) == [_map_slowly(u) for u in edges]
    assert map_to_curve([P * 0]) == [(0, 0)]  # the point of order 2
    assert pow(-pow(2, -1, int(P)), (int(P) - 1) // 2, int(P)) == int(P) - 1  # so 1 + 2u^2 = 0 has no solution


def test_addition_of_equal_and_of_opposite_points() -> None:
    (point,), (other,) = map_to_curve([P * 0 + 5]), map_to_curve([P * 0 + 6])
    doubled, added = _add_many([(point, point), (point, other)])
    assert int(doubled[0]) == _multiply(2, int(point[0]), int(point[1]))
    for x, y in (doubled, added):
        assert y * y % P == x * (x * (x + J) + 1) % P
    with pytest.raises(PSIError, match="infinity"):
        _add_many([(point, (point[0], -point[1] % P))])


def test_chunks_do_not_change_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b"%d" % i for i in range(20)]
    whole = hash_many_to_u(messages, DST)
    # By its path in sys.modules: the package exports a function by the module's name.
    monkeypatch.setattr(sys.modules["securevfl_psi.hash_to_curve"], "_CHUNK", 7)
    assert hash_many_to_u(messages, DST) == whole
    assert [hash_many_to_u([message], DST)[0] for message in messages] == whole


def test_nothing_hashes_to_nothing() -> None:
    assert hash_many_to_u([], DST) == []

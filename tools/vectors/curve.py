"""X25519, the hash to the curve, SHA-512 and BLAKE2s: vectors of the RFCs, and edge cases of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gmpy2 import mpz
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.elligator2 import P, double_point, expand_message_xmd, map_to_curve
from securevfl_crypto.engine import choose_engine
from securevfl_psi.hash_to_curve import hash_to_curve, hash_to_field

from vectors.forms import Case, Compute, Group, pseudo_random, unhex
from vectors.known_answers import EXPANDER, FIPS_180_4, NONUNIFORM, RANDOM_ORACLE

__all__ = ["COMPUTE", "blake2s_groups", "curve_groups", "sha512_groups", "x25519_groups"]

_P = int(P)
_SMALL_ORDER = (  # Bernstein, https://cr.yp.to/ecdh.html#validate
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    _P - 1,
)
_EDGES = (2, 3, 4, 8, 9, 16, 1 << 51, (1 << 51) - 1, 1 << 204, 1 << 254, (1 << 254) - 1, (_P - 1) // 2, _P - 2, _P - 9)
_SUITE = "curve25519_XMD:SHA-512_ELL2_{}_"
Fields = Mapping[str, Any]


def _write_le(value: int) -> str:
    return value.to_bytes(32, "little").hex()


def _write_be(value: mpz) -> str:
    return f"{int(value):064x}"


def _make_test(comment: str, *flags: str, **fields: object) -> Case:
    return {"comment": comment, "flags": list(flags), **fields}


def x25519_groups() -> list[Group]:
    """Vectors of RFC 7748, section 5.2, and edge cases."""
    nine = bytes([9]) + bytes(31)
    rfc = [
        _make_test(
            "first vector",
            private="a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            public="e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            shared="c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        _make_test(
            "second vector; bit 255 of the coordinate is set",
            "TopBitSet",
            private="4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            public="e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            shared="95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ]
    iterated = [
        _make_test(f"after {times} iterations", private=nine.hex(), public=nine.hex(), iterations=times, shared=shared)
        for times, shared in (
            (1, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"),
            (1000, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"),
        )
    ]
    scalars = [pseudo_random("x25519 private", 32).hex(), bytes(32).hex(), "ff" * 32, "07" + "00" * 30 + "80"]
    points = [(_write_le(v), "a point of small order", ("SmallOrder",)) for v in _SMALL_ORDER]
    points += [
        (_write_le(v + (1 << 255)), "small order, bit 255 set", ("SmallOrder", "TopBitSet")) for v in _SMALL_ORDER
    ]
    points += [
        (_write_le(_P + k), f"p + {k}: not reduced, small order", ("SmallOrder", "NonCanonical")) for k in (0, 1)
    ]
    points += [(_write_le(_P + k), f"p + {k}: not reduced", ("NonCanonical",)) for k in range(2, 19)]
    points += [(_write_le(2 * _P + k), f"2p + {k}: bit 255 is dropped", ("TopBitSet",)) for k in (2, 3, 37)]
    points += [(_write_le(v), "an extreme coordinate", ()) for v in _EDGES]
    drawn = [int.from_bytes(pseudo_random(f"x25519 u {k}", 32), "little") % _P for k in range(16)]
    for value in drawn:
        twist = pow(value * (value * (value + 486662) + 1), (_P - 1) // 2, _P) != 1
        points.append(
            (_write_le(value), f"a point of the {'twist' if twist else 'curve'}", ("Twist",) if twist else ())
        )
    made = [_make_test(comment, *flags, private=scalars[0], public=public) for public, comment, flags in points]
    made += [
        _make_test("an extreme scalar", "Clamping", private=scalar, public=_write_le(v))
        for scalar in scalars[1:]
        for v in (9, _EDGES[-1], _SMALL_ORDER[2], drawn[0], drawn[1])
    ]
    for one in made:
        one["result"] = "acceptable" if "SmallOrder" in one["flags"] else "valid"
        if one["public"] in {_write_le(v) for v in _SMALL_ORDER} and "SmallOrder" not in one["flags"]:
            one["flags"].append("SmallOrder")
            one["result"] = "acceptable"
    return [
        Group("XdhComp", "RFC 7748, section 5.2", rfc, {"curve": "curve25519"}),
        Group("XdhIterated", "RFC 7748, section 5.2", iterated, {"curve": "curve25519"}),
        Group("XdhComp", "made for this file; products by OpenSSL", made, {"curve": "curve25519"}),
    ]


def curve_groups() -> list[Group]:
    """Vectors of RFC 9380, and messages and tags at the lengths where SHA-512's blocks end."""
    full = [
        _make_test(
            f"message of {len(message)} bytes",
            msg=message.hex(),
            **dict(zip(("px", "py", "u0", "u1", "q0x", "q0y", "q1x", "q1y"), rest, strict=True)),
        )
        for message, *rest in RANDOM_ORACLE
    ]
    nonuniform = [
        _make_test(f"message of {len(message)} bytes", msg=message.hex(), u=u, qx=qx, px=px)
        for message, u, qx, px in NONUNIFORM
    ]
    expander = [
        _make_test(f"{len(message)} bytes to {length}", msg=message.hex(), length=length, uniformBytes=known)
        for message, length, known in EXPANDER
    ]
    own = [
        Group(
            "HashToCurve",
            "made for this file",
            [
                _make_test(
                    f"tag of {size} bytes, message of {length}", msg=pseudo_random(f"msg {length}", length).hex()
                )
                for length in (0, 1, 22, 78, 79, 80, 81, 126, 127, 128, 129, 255)
            ],
            {"dst": pseudo_random(f"dst {size}", size).hex(), "suite": _SUITE.format("RO")},
        )
        for size in (1, 45, 46, 255)
    ]
    edges = [0, 1, 2, 3, _P - 1, _P - 2, (_P - 1) // 2, (_P + 1) // 2, 1 << 254]
    dst, prefix = "dst", b"QUUX-V01-CS02-with-"
    return [
        Group("ExpandMessageXmd", "RFC 9380, appendix K.3", expander, {dst: (prefix + b"expander-SHA512-256").hex()}),
        Group(
            "HashToCurve",
            "RFC 9380, appendix J.4.1; engineU made for this file",
            full,
            {dst: (prefix + _SUITE.format("RO").encode()).hex(), "suite": _SUITE.format("RO")},
        ),
        Group(
            "EncodeToCurve",
            "RFC 9380, appendix J.4.2; y-coordinates made for this file",
            nonuniform,
            {dst: (prefix + _SUITE.format("NU").encode()).hex(), "suite": _SUITE.format("NU")},
        ),
        Group("MapToCurve", "made for this file", [_make_test("an edge of the map", u=_write_be(u)) for u in edges]),
        *own,
    ]


def sha512_groups() -> list[Group]:
    """Known answers of FIPS 180-4's examples, and lengths around a block's end."""
    known = [_make_test(comment, msg=message.hex(), digest=digest) for comment, message, digest in FIPS_180_4]
    lengths = (0, 1, 8, 32, 63, 64, 65, 77, 110, 111, 112, 113, 119, 120, 127, 128, 129, 238, 239, 240, 241, 255, 256)
    made = [_make_test(f"{n} bytes", msg=pseudo_random("sha512", n).hex()) for n in lengths]
    after = [
        _make_test(f"{n} bytes after a block", msg=pseudo_random("sha512", n).hex()) for n in (0, 1, 111, 112, 128)
    ]
    return [
        Group("Sha512", "NIST, examples for FIPS 180-4", known, {"prefix": ""}),
        Group("Sha512", "made for this file; digests by hashlib", made, {"prefix": ""}, ("BlockBoundary",)),
        Group("Sha512", "made for this file; digests by hashlib", after, {"prefix": bytes(128).hex()}, ("Prefix",)),
    ]


def blake2s_groups() -> list[Group]:
    """RFC 7693's example, and messages of one block with salt, personalisation and node offset."""
    abc = _make_test(
        "abc",
        msg=b"abc".hex(),
        salt="00" * 8,
        person="00" * 8,
        nodeOffset=0,
        digest="508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
    )
    made = [
        _make_test(
            f"{n} bytes, node offset {offset}",
            msg=pseudo_random(f"blake2s {n}", n).hex(),
            salt=pseudo_random(f"salt {n}", 8).hex(),
            person=pseudo_random(f"person {n}", 8).hex(),
            nodeOffset=offset,
        )
        for n, offset in [(n, n % 3) for n in (0, 1, 3, 4, 15, 16, 31, 32, 33, 55, 60, 63, 64)] + [(64, 2**32 - 1)]
    ]
    return [
        Group("Blake2sBlock", "RFC 7693, appendix B", [abc]),
        Group("Blake2sBlock", "made for this file; digests by the portable path", made, {}, ("OneBlock",)),
    ]


def _multiply_point(path: str, group: Fields, test: Fields) -> Case:
    return {"shared": choose_engine(path).x25519(bytes.fromhex(test["private"]), unhex(test["public"], 32)).tobytes()}


def _iterate_x25519(path: str, group: Fields, test: Fields) -> Case:
    engine, scalar, point = choose_engine(path), bytes.fromhex(test["private"]), bytes.fromhex(test["public"])
    for _ in range(test["iterations"]):
        product = engine.x25519(scalar, np.frombuffer(point, dtype=np.uint8).reshape(1, 32)).tobytes()
        scalar, point = product, scalar
    return {"shared": scalar}


def _expand_message(path: str, group: Fields, test: Fields) -> Case:
    return {"uniformBytes": expand_message_xmd(bytes.fromhex(test["msg"]), bytes.fromhex(group["dst"]), test["length"])}


def _hash_message(path: str, group: Fields, test: Fields) -> Case:
    message, dst = bytes.fromhex(test["msg"]), bytes.fromhex(group["dst"])
    u0, u1 = hash_to_field(message, dst)
    (q0x, q0y), (q1x, q1y) = map_to_curve([u0, u1])
    px, py = hash_to_curve(message, dst)
    rows = np.frombuffer(message, dtype=np.uint8).reshape(1, -1)
    engine = choose_engine(path)
    names = {"u0": u0, "u1": u1, "q0x": q0x, "q0y": q0y, "q1x": q1x, "q1y": q1y, "px": px, "py": py}
    if "RFC" not in group["source"]:  # the numbers on the way only where the RFC lists them
        names = {}
    return {
        **{name: _write_be(value) for name, value in names.items()},
        "expanded": engine.expand(rows, dst).tobytes(),
        "engineU": engine.hash_to_u(rows, dst).tobytes(),
    }


def _encode_input(path: str, group: Fields, test: Fields) -> Case:
    u = mpz(int.from_bytes(expand_message_xmd(bytes.fromhex(test["msg"]), bytes.fromhex(group["dst"]), 48), "big")) % P
    (point,) = map_to_curve([u])
    out = {"u": _write_be(u), "qx": _write_be(point[0]), "qy": _write_be(point[1])}
    for _ in range(3):
        point = double_point(point)
    return {**out, "px": _write_be(point[0]), "py": _write_be(point[1])}


def _map_to_curve(path: str, group: Fields, test: Fields) -> Case:
    ((x, y),) = map_to_curve([mpz(int(test["u"], 16))])
    return {"x": _write_be(x), "y": _write_be(y)}


def _hash_sha512(path: str, group: Fields, test: Fields) -> Case:
    rows = unhex(test["msg"]).reshape(1, -1)
    return {"digest": choose_engine(path).sha512(rows, bytes.fromhex(group["prefix"])).tobytes()}


def _hash_blake2s(path: str, group: Fields, test: Fields) -> Case:
    message = bytes.fromhex(test["msg"])
    rows = np.frombuffer(message.ljust(64, b"\0"), dtype=np.uint8).reshape(1, 64)
    digests = bit_loops(path).hash_rows(rows, len(message), unhex(test["salt"] + test["person"]), test["nodeOffset"])
    return {"digest": digests.tobytes()}


COMPUTE: dict[str, Compute] = {
    "XdhComp": _multiply_point,
    "XdhIterated": _iterate_x25519,
    "ExpandMessageXmd": _expand_message,
    "HashToCurve": _hash_message,
    "EncodeToCurve": _encode_input,
    "MapToCurve": _map_to_curve,
    "Sha512": _hash_sha512,
    "Blake2sBlock": _hash_blake2s,
}

"""Curve25519 on integers: X25519 (RFC 7748), the hash to the curve (RFC 9380), and what `dh` derives from points.

Written from the RFCs and from `docs/engine/specification.md`, not from the library's code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

__all__ = ["COMPUTE", "pseudo_random", "require", "session_tag", "unhex"]

P = 2**255 - 19
J = 486662
ORDER = 2**252 + 27742317777372353535851937790883648493
Fields = Mapping[str, Any]


def unhex(text: str) -> bytes:
    """The bytes of hexadecimal text."""
    return bytes.fromhex(text)


def require(holds: bool, otherwise: str) -> None:
    """Check what must hold for every input, also where Python drops assertions (``-O``).

    Raises:
        ValueError: it does not hold; the inputs contradict each other.
    """
    if not holds:
        raise ValueError(otherwise)


def pseudo_random(label: str, size: int) -> bytes:
    """The bytes that a file names by a label: SHAKE-256 of it."""
    return hashlib.shake_256(label.encode()).digest(size)


# RFC 7748, section 5


def clamp(scalar: bytes) -> int:
    """The scalar as a number: bits 0, 1, 2 and 255 cleared, bit 254 set."""
    return int.from_bytes(scalar, "little") & ~7 & (1 << 255) - 1 | 1 << 254


def ladder(k: int, u: int) -> int:
    """The u-coordinate of k times a point, as the RFC's pseudocode computes it; 0 for the point at infinity."""
    x2, z2, x3, z3, swapped = 1, 0, u, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if bit != swapped:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swapped:
        x2, z2 = x3, z3
    return x2 * pow(z2, P - 2, P) % P


def x25519(scalar: bytes, u: bytes) -> bytes:
    """X25519: bit 255 of u is dropped, and u reduced."""
    number = int.from_bytes(u, "little") & (1 << 255) - 1
    return ladder(clamp(scalar), number % P).to_bytes(32, "little")


def _multiply_numbers(group: Fields, test: Fields) -> dict[str, Any]:
    return {"shared": x25519(unhex(test["private"]), unhex(test["public"])).hex()}


def _iterate_x25519(group: Fields, test: Fields) -> dict[str, Any]:
    k, u = unhex(test["private"]), unhex(test["public"])
    for _ in range(test["iterations"]):
        k, u = x25519(k, u), k
    return {"shared": k.hex()}


# RFC 9380


def expand(message: bytes, dst: bytes, length: int) -> bytes:
    """expand_message_xmd with SHA-512, section 5.3.1."""
    suffix = dst + bytes([len(dst)])
    b0 = hashlib.sha512(bytes(128) + message + length.to_bytes(2, "big") + b"\0" + suffix).digest()
    last, out = bytes(64), b""
    for number in range(1, -(-length // 64) + 1):
        mixed = bytes(x ^ y for x, y in zip(b0, last, strict=True))
        last = hashlib.sha512(mixed + bytes([number]) + suffix).digest()
        out += last
    return out[:length]


def root(a: int) -> int | None:
    """A square root modulo p, if there is one."""
    r = pow(a, (P + 3) // 8, P)
    if r * r % P != a % P:
        r = r * pow(2, (P - 1) // 4, P) % P
    return r if r * r % P == a % P else None


def elligator2(u: int) -> tuple[int, int]:
    """map_to_curve_elligator2, section 6.7.1, with Z = 2."""
    x = -J * pow(1 + 2 * u * u, P - 2, P) % P
    y, sign = root(x**3 + J * x * x + x), 1
    if y is None:
        x = (-x - J) % P
        y, sign = root(x**3 + J * x * x + x), 0
    require(y is not None, "neither x has a y on the curve")
    return x, y if y % 2 == sign else -y % P


Point = tuple[int, int] | None
"""None is the point at infinity."""


def add(a: Point, b: Point) -> Point:
    """The sum of two points of ``y² = x³ + J x² + x`` by chords and tangents."""
    if a is None or b is None:
        return a or b
    (x0, y0), (x1, y1) = a, b
    if x0 == x1:
        if (y0 + y1) % P == 0:
            return None
        slope = (3 * x0 * x0 + 2 * J * x0 + 1) * pow(2 * y0, P - 2, P)
    else:
        slope = (y1 - y0) * pow(x1 - x0, P - 2, P)
    x = (slope * slope - J - x0 - x1) % P
    return x, (slope * (x0 - x) - y0) % P


def eight_times(point: Point) -> tuple[int, int]:
    """clear_cofactor."""
    for _ in range(3):
        point = add(point, point)
    require(point is not None, "the sum is the point at infinity")
    return point


def fields(message: bytes, dst: bytes) -> list[int]:
    """hash_to_field for two elements."""
    data = expand(message, dst, 96)
    return [int.from_bytes(part, "big") % P for part in (data[:48], data[48:])]


def hash_to_u(message: bytes, dst: bytes) -> bytes:
    """The u-coordinate of Q0 + Q1, before the cofactor is cleared."""
    u0, u1 = fields(message, dst)
    total = add(elligator2(u0), elligator2(u1))
    require(total is not None, "the sum is the point at infinity")
    return total[0].to_bytes(32, "little")


def _read_big_endian(number: int) -> str:
    return f"{number:064x}"


def _expand_message(group: Fields, test: Fields) -> dict[str, Any]:
    return {"uniformBytes": expand(unhex(test["msg"]), unhex(group["dst"]), test["length"]).hex()}


def _hash_message(group: Fields, test: Fields) -> dict[str, Any]:
    message, dst = unhex(test["msg"]), unhex(group["dst"])
    out = {"expanded": expand(message, dst, 96).hex(), "engineU": hash_to_u(message, dst).hex()}
    if "u0" in test:
        u0, u1 = fields(message, dst)
        q0, q1 = elligator2(u0), elligator2(u1)
        names = ("u0", "u1", "q0x", "q0y", "q1x", "q1y", "px", "py")
        out |= dict(zip(names, map(_read_big_endian, (u0, u1, *q0, *q1, *eight_times(add(q0, q1)))), strict=True))
    return out


def _encode_input(group: Fields, test: Fields) -> dict[str, Any]:
    u = int.from_bytes(expand(unhex(test["msg"]), unhex(group["dst"]), 48), "big") % P
    q = elligator2(u)
    return dict(zip(("u", "qx", "qy", "px", "py"), map(_read_big_endian, (u, *q, *eight_times(q))), strict=True))


def _map_to_curve(group: Fields, test: Fields) -> dict[str, Any]:
    x, y = elligator2(int(test["u"], 16))
    return {"x": _read_big_endian(x), "y": _read_big_endian(y)}


def _hash_sha512(group: Fields, test: Fields) -> dict[str, Any]:
    return {"digest": hashlib.sha512(unhex(group["prefix"]) + unhex(test["msg"])).hexdigest()}


def _hash_blake2s(group: Fields, test: Fields) -> dict[str, Any]:
    salt, person = unhex(test["salt"]), unhex(test["person"])
    message = unhex(test["msg"])
    return {"digest": hashlib.blake2s(message, salt=salt, person=person, node_offset=test["nodeOffset"]).hexdigest()}


# `dh`


def session_tag(session: Fields) -> bytes:
    """The domain separation tag of a session."""
    texts = [session["protocol"], session["version"], *session["names"], session["rulesTag"]]
    parts = [*(text.encode() for text in texts), unhex(session["nonce"])]
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return b"securevfl-psi" + hashlib.sha512(framed).digest()[:32]


def _invert_scalar(scalar: bytes) -> bytes:
    """The clamped scalar whose product with this one is 1 modulo the group's order."""
    inverse = pow(clamp(scalar), ORDER - 2, ORDER)
    for times in range(8):  # one of eight neighbours is a multiple of 8
        candidate = inverse + times * ORDER
        if candidate % 8 == 0:
            require(candidate >> 254 == 1, "the inverse scalar is not clamped")
            return candidate.to_bytes(32, "little")
    raise AssertionError


def _session_tag(group: Fields, test: Fields) -> dict[str, Any]:
    return {"tag": session_tag(test).hex()}


def _compute_output(group: Fields, test: Fields) -> dict[str, Any]:
    tag, identifier = unhex(group["tag"]), unhex(test["identifier"])
    blind, key = unhex(group["blind"]), unhex(group["key"])
    point = hash_to_u(identifier, tag)
    blinded = x25519(blind, point)
    evaluated = x25519(key, blinded)
    unblinded = x25519(_invert_scalar(blind), evaluated)
    require(unblinded == x25519(key, point), "the unblinded answer is not the key's product")
    parts = [tag, identifier, unblinded]
    text = b"".join(len(part).to_bytes(2, "big") + part for part in parts) + b"Finalize"
    output = hashlib.sha512(text).digest()
    found = {"point": point, "blinded": blinded, "evaluated": evaluated, "unblinded": unblinded}
    found |= {"token": output[:16], "proof": output[16:32], "receipt": output[32:48]}
    return {name: value.hex() for name, value in found.items()}


def _published_token(group: Fields, test: Fields) -> dict[str, Any]:
    return {"bound": hashlib.sha512(unhex(group["tag"]) + unhex(test["published"])).digest()[:32].hex()}


def _make_receipt(group: Fields, test: Fields) -> dict[str, Any]:
    text = b"securevfl-psi receipt" + unhex(group["tag"])
    for rows in test["lists"]:
        text += len(rows).to_bytes(8, "big") + b"".join(map(unhex, rows))
    return {"receipt": hashlib.sha512(text).digest()[:32].hex()}


HELLO, REFUSED = 1, 9


def _frame_header(group: Fields, test: Fields) -> dict[str, Any]:
    payload = unhex(test["payload"])
    tag = hashlib.sha512(unhex(group["tag"]) + group["writer"].encode()).digest()[:8]
    header = b"SPSI" + bytes([group["version"], test["kind"], 0, 0])
    header += test["sequence"].to_bytes(4, "big") + len(payload).to_bytes(4, "big")
    header += bytes(8) if test["kind"] in (HELLO, REFUSED) else tag
    return {"frame": (header + payload).hex()}


COMPUTE = {
    "XdhComp": _multiply_numbers,
    "XdhIterated": _iterate_x25519,
    "ExpandMessageXmd": _expand_message,
    "HashToCurve": _hash_message,
    "EncodeToCurve": _encode_input,
    "MapToCurve": _map_to_curve,
    "Sha512": _hash_sha512,
    "Blake2sBlock": _hash_blake2s,
    "SessionTag": _session_tag,
    "DhOutput": _compute_output,
    "PublishedOutput": _published_token,
    "Receipt": _make_receipt,
    "Frame": _frame_header,
}

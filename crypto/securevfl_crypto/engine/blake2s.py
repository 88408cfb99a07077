"""A kernel for BLAKE2s (RFC 7693) of one block a message, sixteen messages side by side.

Salt, personalisation and node offset are those of BLAKE2's parameter block (section 2.5 of its RFC; the fields of the
tree mode are in the BLAKE2 paper, section 2.8), so `hashlib.blake2s` gives the same digests.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function, Vec

__all__ = ["HASHED", "IV", "LANES", "ROUNDS", "SIGMA", "STEPS", "blake2s_declarations", "emit_blake2s"]

LANES = 16
HASHED = (
    "ptr noalias %out, ptr noalias %in, i64 %stride, ptr noalias %salts, i64 %apart, i64 %n, i64 %length, i64 %number"
)
IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
SIGMA = (  # RFC 7693, section 2.7
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
ROUNDS = len(SIGMA)
STEPS = (  # columns, then diagonals (section 3.2)
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)
_TYPE = f"<{LANES} x i32>"


def blake2s_declarations() -> list[str]:
    """What the kernel calls."""
    pointers, mask = f"<{LANES} x ptr>", f"<{LANES} x i1>"
    return [
        f"declare {_TYPE} @llvm.fshr.v{LANES}i32({_TYPE}, {_TYPE}, {_TYPE})",
        f"declare {_TYPE} @llvm.masked.gather.v{LANES}i32.v{LANES}p0({pointers}, i32, {mask}, {_TYPE})",
    ]


def _splat_constant(value: int) -> str:
    signed = value - (1 << 32) if value >> 31 else value
    return "<" + ", ".join([f"i32 {signed}"] * LANES) + ">"


class _Words:
    """Vectors of sixteen 32-bit words, which wrap: that is what the hash wants."""

    def __init__(self, f: Function) -> None:
        self._f = f

    def two(self, operation: str, a: str, b: str) -> str:
        return self._f.emit_scalar(f"{operation} {_TYPE} {a}, {b}")

    def rotate(self, a: str, bits: int) -> str:
        arguments = ", ".join(f"{_TYPE} {x}" for x in (a, a, _splat_constant(bits)))
        return self._f.emit_scalar(f"call {_TYPE} @llvm.fshr.v{LANES}i32({arguments})")

    def broadcast(self, number: str) -> str:
        word = self._f.emit_scalar(f"trunc i64 {number} to i32")
        one = self._f.emit_scalar(f"insertelement {_TYPE} zeroinitializer, i32 {word}, i32 0")
        return self._f.emit_scalar(
            f"shufflevector {_TYPE} {one}, {_TYPE} zeroinitializer, <{LANES} x i32> zeroinitializer"
        )

    def distances(self, step: str) -> str:
        """0, step, 2 step, … bytes."""
        one = self._f.emit_scalar(f"insertelement <{LANES} x i64> zeroinitializer, i64 {step}, i32 0")
        all_ = self._f.emit_scalar(
            f"shufflevector <{LANES} x i64> {one}, <{LANES} x i64> zeroinitializer, <{LANES} x i32> zeroinitializer"
        )
        lanes = ", ".join(f"i64 {lane}" for lane in range(LANES))
        return self._f.emit_scalar(f"mul <{LANES} x i64> {all_}, <{lanes}>")

    def gather(self, base: str, distances: str, word: int) -> str:
        """The same word of sixteen rows."""
        start = self._f.emit_scalar(f"getelementptr i8, ptr {base}, i64 {4 * word}")
        pointers = self._f.emit_scalar(f"getelementptr i8, ptr {start}, <{LANES} x i64> {distances}")
        ones = "<" + ", ".join(["i1 1"] * LANES) + ">"
        name = f"@llvm.masked.gather.v{LANES}i32.v{LANES}p0"
        return self._f.emit_scalar(
            f"call {_TYPE} {name}(<{LANES} x ptr> {pointers}, i32 1, <{LANES} x i1> {ones}, {_TYPE} zeroinitializer)"
        )


def emit_blake2s(f: Function) -> None:
    """``n`` times sixteen digests of 32 bytes, as eight planes of little-endian words.

    Messages begin ``stride`` bytes apart, ``length`` bytes each, zeros up to 64; salts of 16 bytes, salt and
    personalisation, ``apart`` bytes apart (0: all have one); ``number`` is the node offset, below 2^32.
    """
    w = _Words(f)
    rows, salts = w.distances("%stride"), w.distances("%apart")
    length, number = w.broadcast("%length"), w.broadcast("%number")
    count = f.emit_scalar(f"mul i64 %n, {LANES}")

    def body(block: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {block}, {LANES}")
        at = f.emit_scalar(f"getelementptr i8, ptr %in, i64 {f.emit_scalar(f'mul i64 {first}, %stride')}")
        salted = f.emit_scalar(f"getelementptr i8, ptr %salts, i64 {f.emit_scalar(f'mul i64 {first}, %apart')}")
        message = [w.gather(at, rows, k) for k in range(16)]
        h = [
            _splat_constant(IV[0] ^ 0x01010020),
            _splat_constant(IV[1]),
            w.two("xor", _splat_constant(IV[2]), number),
            _splat_constant(IV[3]),
        ]
        h += [w.two("xor", _splat_constant(IV[4 + k]), w.gather(salted, salts, k)) for k in range(4)]
        v = h + [_splat_constant(x) for x in IV[:4]]
        v += [
            w.two("xor", _splat_constant(IV[4]), length),
            _splat_constant(IV[5]),
            _splat_constant(IV[6] ^ 0xFFFFFFFF),
            _splat_constant(IV[7]),
        ]
        for sigma in SIGMA:
            for step, (a, b, c, d) in enumerate(STEPS):
                for word, right, left in ((sigma[2 * step], 16, 12), (sigma[2 * step + 1], 8, 7)):
                    v[a] = w.two("add", w.two("add", v[a], v[b]), message[word])
                    v[d] = w.rotate(w.two("xor", v[d], v[a]), right)
                    v[c] = w.two("add", v[c], v[d])
                    v[b] = w.rotate(w.two("xor", v[b], v[c]), left)
        for k in range(8):
            place = f.emit_scalar(f"add i64 {f.emit_scalar(f'mul i64 {count}, {k}')}, {first}")
            out = f.emit_scalar(f"getelementptr i32, ptr %out, i64 {place}")
            f.emit(f"store {_TYPE} {w.two('xor', w.two('xor', v[k], v[k + 8]), h[k])}, ptr {out}, align 4")
        return []

    f.loop("%n", body, perhaps=True)

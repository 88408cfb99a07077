"""Emits LLVM IR for kernels over vectors of 64-bit lanes, and proves during emission that no lane overflows.

Every value carries an interval that contains it for every input that the kernel accepts. Each operation computes the
interval of its result, and emission fails if the result could wrap modulo 2^64 or if bits that an instruction ignores
could be set. The bounds on limbs that the field arithmetic relies on are therefore proved, not only stated in comments.
Values that a loop carries declare their interval, which is checked on entry and at the end of the body: an induction.

No branch depends on data: the caller gives the number of rounds of a loop, and choices are lane masks. No address
depends on data except in `rows.gather_rows` and `tables.emit_entry_products`, which say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from securevfl_crypto.engine.values import MASK52, BoundError, Gain, Mask, Vec, bounded_value, grow_value

__all__ = ["MASK52", "BoundError", "Function", "Gain", "Mask", "Vec"]

_WORD = 1 << 64


class Function:
    """One function of an LLVM module that is being emitted.

    Args:
        name: its symbol.
        parameters: in LLVM's syntax, for example ``"ptr noalias %out, i64 %n"``.
        lanes: 64-bit lanes of a vector.
        attributes: in LLVM's syntax.
    """

    def __init__(self, name: str, parameters: str, lanes: int, attributes: str = "nounwind") -> None:
        self.name, self.lanes, self._attributes = name, lanes, attributes
        self.type = f"<{lanes} x i64>"
        self._mask_type = f"<{lanes} x i1>"
        self._parameters = parameters
        self._lines: list[str] = []
        self._frame: list[str] = []
        self._label = "entry"
        self._count = 0

    def to_text(self) -> str:
        """The function in LLVM IR."""
        body = "\n".join(["entry:", *self._frame, *self._lines, "  ret void"])
        return f"define void @{self.name}({self._parameters}) {self._attributes} {{\n{body}\n}}\n"

    def emit(self, line: str) -> None:
        """Emit one instruction verbatim."""
        self._lines.append("  " + line)

    def emit_scalar(self, expression: str) -> str:
        """Emit a scalar value, such as an address or a counter; returns its name."""
        self._count += 1
        name = f"%s{self._count}"
        self.emit(f"{name} = {expression}")
        return name

    def _emit_vector(self, expression: str, low: int, top: int, *, partial: bool = False) -> Vec:
        if not 0 <= low <= top < _WORD:
            raise BoundError(f"{self.name}: {expression.split(maxsplit=1)[0]} gives [{low}, {top}], outside 64 bits")
        self._count += 1
        name = f"%v{self._count}"
        self.emit(f"{name} = {expression}")
        return Vec(name, low, top, partial)

    def _require_plain(self, *values: Vec) -> None:
        for value in values:
            if not value.plain:
                raise BoundError(f"{self.name}: {value.name}, wrapped or a double, is used as an unsigned integer")

    def _require_all_lanes(self, *values: Vec) -> None:
        self._require_plain(*values)
        self._require_sums(*values)

    def _require_sums(self, *values: Vec) -> None:
        if any(value.partial or value.double for value in values):
            raise BoundError(f"{self.name}: a value of which only 52 bits count is used as a whole one; mask it first")

    # Values

    def constant(self, value: int) -> Vec:
        """The same number in all lanes."""
        if not 0 <= value < _WORD:
            raise BoundError(f"{self.name}: the constant {value} is outside 64 bits")
        signed = value - _WORD if value >> 63 else value
        return Vec("<" + ", ".join([f"i64 {signed}"] * self.lanes) + ">", value, value)

    def broadcast_below(self, pointer: str, index: str, top: int) -> Vec:
        """`broadcast` of a word that is at most `top` by the caller's contract."""
        return replace(self.broadcast(pointer, index), top=top)

    def load(self, pointer: str, index: str | int = 0, top: int = _WORD - 1) -> Vec:
        """The vector at `pointer`, `index` vectors on; its lanes are at most `top` by the caller's contract."""
        address = self.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        return self._emit_vector(f"load {self.type}, ptr {address}, align 8", 0, top)

    def broadcast(self, pointer: str, index: str) -> Vec:
        """The word `index` words on, in all lanes; the index must not depend on data."""
        word = self.emit_scalar(f"load i64, ptr {self.offset(pointer, index)}, align 8")
        one = self.emit_scalar(f"insertelement {self.type} zeroinitializer, i64 {word}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self._emit_vector(f"shufflevector {self.type} {one}, {self.type} zeroinitializer, {zeros}", 0, _WORD - 1)

    def store(self, value: Vec, pointer: str, index: str | int = 0) -> None:
        """Store a vector at `pointer`, `index` vectors on."""
        self._require_all_lanes(value)
        address = self.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        self.emit(f"store {self.type} {value.name}, ptr {address}, align 8")

    def splat_scalar(self, number: str, top: int) -> Vec:
        """An ``i64``, at most `top`, in all lanes."""
        one = self.emit_scalar(f"insertelement {self.type} zeroinitializer, i64 {number}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self._emit_vector(f"shufflevector {self.type} {one}, {self.type} zeroinitializer, {zeros}", 0, top)

    def gather_words(self, pointers: Sequence[str]) -> Vec:
        """One word, of any alignment, from each of as many addresses as there are lanes."""
        vector = f"{self.type} zeroinitializer"
        for lane, pointer in enumerate(pointers):
            word = self.emit_scalar(f"load i64, ptr {pointer}, align 1")
            vector = f"{self.type} " + self.emit_scalar(f"insertelement {vector}, i64 {word}, i32 {lane}")
        return Vec(vector.rpartition(" ")[2], 0, _WORD - 1)

    def scatter_words(self, value: Vec, pointers: Sequence[str]) -> None:
        """Store each lane at its address; the inverse of `gather_words`."""
        self._require_all_lanes(value)
        for lane, pointer in enumerate(pointers):
            word = self.emit_scalar(f"extractelement {self.type} {value.name}, i32 {lane}")
            self.emit(f"store i64 {word}, ptr {pointer}, align 1")

    def shuffle(self, a: Vec, b: Vec, lanes: Sequence[int]) -> Vec:
        """Lanes of a (from 0) and of b (from the number of lanes on), in this order."""
        self._require_all_lanes(a, b)
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {self.type} {a.name}, {self.type} {b.name}, <{self.lanes} x i32> <{order}>"
        return self._emit_vector(text, min(a.low, b.low), max(a.top, b.top))

    def type_of(self, value: Vec) -> str:
        """LLVM's type of a value."""
        return f"<{self.lanes} x double>" if value.double else self.type

    def offset(self, pointer: str, lanes: str) -> str:
        """The address `lanes` 64-bit words on."""
        return self.emit_scalar(f"getelementptr i64, ptr {pointer}, i64 {lanes}")

    # Arithmetic on lanes

    def add(self, a: Vec, b: Vec) -> Vec:
        """a + b; of wrapped lanes the offsets add up."""
        self._require_sums(a, b)
        result = self._emit_vector(f"add {self.type} {a.name}, {b.name}", a.low + b.low, a.top + b.top)
        result = replace(result, offset=((a.offset or 0) + (b.offset or 0)) % _WORD or None)
        before, by = (a, b) if b.origin is None else (b, a)
        return result if by.origin is not None else grow_value(result, before, by.top)

    def set_offset(self, a: Vec, offset: int = 0) -> Vec:
        """The same value, which is not negative, with another offset, or without any."""
        self._require_sums(a)
        if (a.offset or 0) == offset:
            return a
        more = self.constant((offset - (a.offset or 0)) % _WORD)
        return replace(
            self._emit_vector(f"add {self.type} {a.name}, {more.name}", a.low, a.top),
            origin=a.origin,
            over=a.over,
            offset=offset or None,
        )

    def add_wrapping(self, a: Vec, b: Vec) -> Vec:
        """a + b modulo 2^64, for hash functions, which want that."""
        self._require_all_lanes(a, b)
        return self._emit_vector(f"add {self.type} {a.name}, {b.name}", 0, _WORD - 1)

    def sub(self, a: Vec, b: Vec) -> Vec:
        """a − b, which must not be negative for any lanes of these bounds."""
        self._require_all_lanes(a, b)
        return self._emit_vector(f"sub {self.type} {a.name}, {b.name}", a.low - b.top, a.top - b.low)

    def mask(self, a: Vec, bits: int) -> Vec:
        """The `bits` low bits of a."""
        top = (1 << bits) - 1
        if (a.partial and bits > 52) or a.double or a.low < 0 or (a.offset or 0) & top:
            raise BoundError(f"{self.name}: {bits} bits of a value of which fewer count")
        return self._emit_vector(f"and {self.type} {a.name}, {self.constant(top).name}", 0, min(a.top, top))

    def _shift_vector(self, bits: int) -> str:
        if not 0 <= bits < 64:  # LLVM leaves the result undefined
            raise BoundError(f"{self.name}: a shift by {bits} bits; 0 to 63 are possible")
        return self.constant(bits).name

    def shift_right(self, a: Vec, bits: int) -> Vec:
        """a // 2^bits."""
        self._require_all_lanes(a)
        return self._emit_vector(f"lshr {self.type} {a.name}, {self._shift_vector(bits)}", a.low >> bits, a.top >> bits)

    def shift_left(self, a: Vec, bits: int) -> Vec:
        """a · 2^bits."""
        self._require_all_lanes(a)
        return self._emit_vector(f"shl {self.type} {a.name}, {self._shift_vector(bits)}", a.low << bits, a.top << bits)

    def shift_left_wrapping(self, a: Vec, bits: int) -> Vec:
        """a · 2^bits modulo 2^64, to put words together."""
        self._require_all_lanes(a)
        return self._emit_vector(f"shl {self.type} {a.name}, {self._shift_vector(bits)}", 0, _WORD - 1)

    def bitwise(self, operation: str, a: Vec, b: Vec) -> Vec:
        """``and``, ``or`` or ``xor``."""
        self._require_all_lanes(a, b)
        bits = max(a.top, b.top).bit_length()
        top = min(a.top, b.top) if operation == "and" else (1 << bits) - 1
        return self._emit_vector(f"{operation} {self.type} {a.name}, {b.name}", 0, top)

    def rotate_right(self, a: Vec, bits: int) -> Vec:
        """The 64 bits of a, rotated."""
        self._require_all_lanes(a)
        call = f"call {self.type} @llvm.fshr.v{self.lanes}i64"
        arguments = ", ".join(f"{self.type} {x}" for x in (a.name, a.name, self.constant(bits).name))
        return self._emit_vector(f"{call}({arguments})", 0, _WORD - 1)

    # Products

    def mul32(self, a: Vec, b: Vec) -> Vec:
        """a · b of values below 2^32 (``vpmuludq``)."""
        self._require_all_lanes(a, b)
        if a.top >> 32 or b.top >> 32:
            raise BoundError(f"{self.name}: a factor of up to {max(a.top, b.top):#x} is not below 2^32")
        names = []
        for x in (a, b):  # the instruction reads 32 bits; the mask tells the compiler so, and is dropped
            self._count += 1
            names.append(f"%v{self._count}")
            self.emit(f"{names[-1]} = and {self.type} {x.name}, {self.constant((1 << 32) - 1).name}")
        return self._emit_vector(f"mul {self.type} {names[0]}, {names[1]}", a.low * b.low, a.top * b.top)

    def mul_wrapping(self, a: Vec, b: Vec) -> Vec:
        """a · b modulo 2^64, for the ring of shares, which wants that."""
        self._require_all_lanes(a, b)
        return self._emit_vector(f"mul {self.type} {a.name}, {b.name}", 0, _WORD - 1)

    def low52(self, a: Vec) -> Vec:
        """The same register, of which only the 52 low bits are meant: products ignore the rest."""
        self._require_plain(a)
        return Vec(a.name, 0, min(a.top, MASK52), partial=True)

    def _multiply_add(self, half: str, acc: Vec, a: Vec, b: Vec, top: int) -> Vec:
        self._require_all_lanes(acc)
        self._require_plain(a, b)
        if max(a.top, b.top) > MASK52:
            raise BoundError(f"{self.name}: a factor of up to {max(a.top, b.top):#x} is not below 2^52")
        call = f"call {self.type} @llvm.x86.avx512.vpmadd52{half}.uq.512"
        arguments = ", ".join(f"{self.type} {x.name}" for x in (acc, a, b))
        return grow_value(self._emit_vector(f"{call}({arguments})", acc.low, acc.top + top), acc, top)

    def madd_low(self, acc: Vec, a: Vec, b: Vec) -> Vec:
        """acc + (a·b mod 2^52) (``vpmadd52luq``)."""
        return self._multiply_add("l", acc, a, b, min(a.top * b.top, MASK52))

    def madd_high(self, acc: Vec, a: Vec, b: Vec) -> Vec:
        """acc + a·b // 2^52 (``vpmadd52huq``)."""
        return self._multiply_add("h", acc, a, b, a.top * b.top >> 52)

    def madd_wrapping(self, half: str, acc: Vec, a: Vec, b: Vec) -> Vec:
        """acc + the low ("l") or high ("h") 52 bits of the product of the low 52 bits of a and b, modulo 2^64."""
        self._require_all_lanes(acc)
        self._require_plain(a, b)
        call = f"call {self.type} @llvm.x86.avx512.vpmadd52{half}.uq.512"
        arguments = ", ".join(f"{self.type} {x.name}" for x in (acc, a, b))
        return self._emit_vector(f"{call}({arguments})", 0, _WORD - 1)

    def madd_small(self, acc: Vec, a: Vec, b: Vec) -> Vec:
        """acc + a·b, where the product is below 2^52."""
        self._require_all_lanes(a, b)
        if a.top * b.top > MASK52:
            raise BoundError(f"{self.name}: a product of up to {a.top * b.top:#x} is not below 2^52")
        return self.madd_low(acc, a, b)

    # Choices

    def _emit_mask(self, expression: str) -> Mask:
        self._count += 1
        name = f"%m{self._count}"
        self.emit(f"{name} = {expression}")
        return Mask(name)

    def equals(self, a: Vec, value: int) -> Mask:
        """Which lanes of a are `value`."""
        self._require_all_lanes(a)
        return self._emit_mask(f"icmp eq {self.type} {a.name}, {self.constant(value).name}")

    def xor_masks(self, a: Mask, b: Mask) -> Mask:
        """Lanes in which the masks differ."""
        return self._emit_mask(f"xor {self._mask_type} {a.name}, {b.name}")

    def load_flag(self, pointer: str, index: str) -> Mask:
        """All lanes set or none, by the lowest bit of the byte at `pointer` + `index`."""
        address = self.emit_scalar(f"getelementptr i8, ptr {pointer}, i64 {index}")
        bit = self.emit_scalar(f"trunc i8 {self.emit_scalar(f'load i8, ptr {address}')} to i1")
        one = self.emit_scalar(f"insertelement {self._mask_type} zeroinitializer, i1 {bit}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self._emit_mask(f"shufflevector {self._mask_type} {one}, {self._mask_type} zeroinitializer, {zeros}")

    def select(self, mask: Mask, a: Vec, b: Vec) -> Vec:
        """Lanes of a where the mask is set, of b elsewhere; both are of the same kind."""
        if (a.offset, a.double) != (b.offset, b.double):
            raise BoundError(f"{self.name}: a choice between {a.name} and {b.name}, which are of two kinds")
        kind, low, top = self.type_of(a), min(a.low, b.low), max(a.top, b.top)
        text = f"select {self._mask_type} {mask.name}, {kind} {a.name}, {kind} {b.name}"
        if a.plain:
            return self._emit_vector(text, low, top, partial=a.partial or b.partial)
        return replace(a, name=self.emit_scalar(text), low=low, top=top)

    def permutation(self, index: Vec) -> Vec:
        """The operand of `permute` for an index below 2^31: with four lanes, the places of a word's two halves."""
        if self.lanes == 8:
            return index
        if index.top >> 31:
            raise BoundError(f"{self.name}: an index of up to {index.top:#x} is not below 2^31")
        first = self.shift_left(index, 1)
        return self.add(self.add(first, self.shift_left(first, 32)), self.constant(1 << 32))

    def permute(self, table: Sequence[Vec], index: Vec) -> Vec:
        """For each lane the word of a table at an index, of which the lowest bits count: a permutation of registers.

        Args:
            table: 16 words in two vectors of eight lanes, or 4 words in one of four lanes.
            index: what `permutation` returned.
        """
        self._require_all_lanes(*table, index)
        if self.lanes == 8:
            first, second = table
            call = f"call {self.type} @llvm.x86.avx512.vpermi2var.q.512"
            arguments = ", ".join(f"{self.type} {x.name}" for x in (first, index, second))
            return self._emit_vector(f"{call}({arguments})", 0, max(x.top for x in table))
        halves = [self.emit_scalar(f"bitcast {self.type} {x.name} to <8 x i32>") for x in (*table, index)]
        words = self.emit_scalar(
            "call <8 x i32> @llvm.x86.avx2.permd(" + ", ".join(f"<8 x i32> {x}" for x in halves) + ")"
        )
        return self._emit_vector(f"bitcast <8 x i32> {words} to {self.type}", 0, table[0].top)

    # Structure

    def allocate(self, vectors: int) -> str:
        """Scratch of the function's frame; allocated once, also when asked for in a loop."""
        self._count += 1
        self._frame.append(f"  %s{self._count} = alloca [{vectors} x {self.type}], align 64")
        return f"%s{self._count}"

    def call(self, function: str, *arguments: str) -> None:
        """Calls another function of the module; arguments with their types."""
        self.emit(f"call void @{function}({', '.join(arguments)})")

    def interleave(self, *jobs: Callable[[], Any]) -> list[Any]:
        """Independent computations, their instructions taken in turns, so that latencies overlap.

        No job may use what another computes.
        """
        outer, streams, results = self._lines, [], []
        for job in jobs:
            self._lines = []
            results.append(job())
            streams.append(self._lines)
        self._lines = outer
        for lines in zip_longest(*streams):
            outer.extend(line for line in lines if line is not None)
        return results

    def _check_carried(self, value: Vec, bound: int | Gain | Vec) -> None:
        if isinstance(bound, Vec):
            if (value.offset, value.double, value.partial) != (bound.offset, bound.double, bound.partial):
                raise BoundError(f"{self.name}: {value.name} in a loop for values of another kind")
            if value.low < bound.low or value.top > bound.top:
                raise BoundError(f"{self.name}: [{value.low}, {value.top}] in a loop for [{bound.low}, {bound.top}]")
            return
        self._require_sums(value)
        if value.offset != (None if isinstance(bound, int) else bound.offset):
            raise BoundError(f"{self.name}: {value.name} in a loop for values with another offset")
        if isinstance(bound, int):
            if value.top > bound:
                raise BoundError(f"{self.name}: a value of up to {value.top:#x} in a loop for {bound:#x}")
        elif value.origin is not bound.origin or value.over > bound.over:
            raise BoundError(f"{self.name}: a value that gains {value.over:#x} in a loop for {bound.over:#x}")

    def loop(
        self,
        count: str | int,
        body: Callable[[str, list[Vec]], Sequence[Vec]],
        carried: Sequence[tuple[Vec, int | Gain | Vec]] = (),
        *,
        perhaps: bool = False,
    ) -> list[Vec]:
        """`body` `count` times, at least once.

        Args:
            count: a number, or the name of an ``i64``.
            body: takes the counter (from 0) and the carried values; returns the next ones, or nothing.
            carried: for each value its start and the bound that holds in every round: the most of a plain value, or a
                value of the same kind and interval.
            perhaps: the count may be 0; then nothing is carried.

        Raises:
            BoundError: the start or what the body returns can exceed the bound.
        """
        self._count += 1
        number = self._count
        head, done, index = f"loop{number}", f"done{number}", f"%i{number}"
        phis = [bounded_value(f"%c{number}_{k}", bound) for k, (_, bound) in enumerate(carried)]
        outer, before = self._lines, self._label
        self._lines, self._label = [], head
        results = list(body(index, phis))
        inner, after = self._lines, self._label
        self._lines = outer
        for (start, bound), result in zip(carried, results, strict=True):
            for value in (start, result):
                self._check_carried(value, bound)
        if perhaps and carried:
            raise BoundError(f"{self.name}: what a loop carries that may not run has no value after it")
        if perhaps:
            self.emit(f"br i1 {self.emit_scalar(f'icmp ugt i64 {count}, 0')}, label %{head}, label %{done}")
        else:
            self.emit(f"br label %{head}")
        self._lines.append(f"{head}:")
        self.emit(f"{index} = phi i64 [ 0, %{before} ], [ {index}n, %{after} ]")
        for phi, (start, _), result in zip(phis, carried, results, strict=True):
            self.emit(f"{phi.name} = phi {self.type_of(phi)} [ {start.name}, %{before} ], [ {result.name}, %{after} ]")
        self._lines += inner
        self.emit(f"{index}n = add i64 {index}, 1")
        self.emit(f"{index}c = icmp ult i64 {index}n, {count}")
        self.emit(f"br i1 {index}c, label %{head}, label %{done}")
        self._lines.append(f"{done}:")
        self._label = done
        return results

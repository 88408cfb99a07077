"""Kernels that solve a system over GF(2) with three ones a row, as an OKVS has it: peeling, and setting slots after it.

Scalar loops, in which branches and addresses depend on the keys' positions: they run on a party's own set, alone.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function, Vec

__all__ = ["AHEAD", "COUNTED", "PEELED", "SUBSTITUTED", "emit_slot_counts", "emit_substitution", "peeled_text"]

AHEAD = 16
"""Places of a queue or an order that are read ahead of what is needed."""
COUNTED = "ptr noalias %state, ptr noalias %positions, i64 %n"
PEELED = (
    "ptr noalias %state, ptr noalias %positions, i64 %waiting, ptr noalias %queue, ptr noalias %order, "
    "ptr noalias %owned, ptr noalias %found"
)
SUBSTITUTED = (
    "ptr noalias %slots, ptr noalias %values, ptr noalias %positions, ptr noalias %order, ptr noalias %owned, "
    "i64 %n, i64 %width"
)


def emit_slot_counts(f: Function) -> None:
    """A word for each slot: how many keys touch it, in the upper half, and the xor of their numbers, in the lower."""

    def body(key: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {key}, 3")
        for k in range(3):
            at = f.emit_scalar(f"getelementptr i32, ptr %positions, i64 {f.emit_scalar(f'add i64 {first}, {k}')}")
            slot = f.emit_scalar(f"zext i32 {f.emit_scalar(f'load i32, ptr {at}')} to i64")
            place = f.emit_scalar(f"getelementptr i64, ptr %state, i64 {slot}")
            more = f.emit_scalar(f"add i64 {f.emit_scalar(f'load i64, ptr {place}')}, {1 << 32}")
            f.emit(f"store i64 {f.emit_scalar(f'xor i64 {more}, {key}')}, ptr {place}")
        return []

    f.loop("%n", body, perhaps=True)


def peeled_text() -> str:
    """The kernel ``peeled``: takes keys away that touch a slot which no other key touches, as long as there are any.

    Those slots wait in a queue, which holds `AHEAD` zeros more than there are slots: each enters when its count becomes
    one, so once at most. What will be needed is fetched some places ahead, with key 0 for a slot that is not single.
    Writes the keys in this order and the slot that each owns, and how many to ``found``.
    """
    word, single = (1 << 32) - 1, 1 << 32
    fetched = [
        "  %qa = add i64 %head, 12",
        "  %qap = getelementptr i32, ptr %queue, i64 %qa",
        "  %qaj = load i32, ptr %qap",
        "  %qaw = zext i32 %qaj to i64",
        "  %qas = getelementptr i64, ptr %state, i64 %qaw",
        "  call void @llvm.prefetch.p0(ptr %qas, i32 1, i32 3, i32 1)",
    ]
    for name, ahead in (("m", 8), ("n", 4)):
        fetched += [
            f"  %{name}q = add i64 %head, {ahead}",
            f"  %{name}qp = getelementptr i32, ptr %queue, i64 %{name}q",
            f"  %{name}j = load i32, ptr %{name}qp",
            f"  %{name}w = zext i32 %{name}j to i64",
            f"  %{name}sp = getelementptr i64, ptr %state, i64 %{name}w",
            f"  %{name}v = load i64, ptr %{name}sp",
            f"  %{name}d = lshr i64 %{name}v, 32",
            f"  %{name}one = icmp eq i64 %{name}d, 1",
            f"  %{name}k = and i64 %{name}v, {word}",
            f"  %{name}key = select i1 %{name}one, i64 %{name}k, i64 0",
            f"  %{name}three = mul i64 %{name}key, 3",
            f"  %{name}p = getelementptr i32, ptr %positions, i64 %{name}three",
        ]
    fetched.append("  call void @llvm.prefetch.p0(ptr %mp, i32 0, i32 3, i32 1)")
    touched = []
    for k in range(3):
        fetched += [
            f"  %np{k} = getelementptr i32, ptr %np, i64 {k}",
            f"  %nj{k} = load i32, ptr %np{k}",
            f"  %nw{k} = zext i32 %nj{k} to i64",
            f"  %ns{k} = getelementptr i64, ptr %state, i64 %nw{k}",
            f"  call void @llvm.prefetch.p0(ptr %ns{k}, i32 1, i32 3, i32 1)",
        ]
        touched += [
            f"  %p{k} = getelementptr i32, ptr %place, i64 {k}",
            f"  %j{k} = load i32, ptr %p{k}",
            f"  %w{k} = zext i32 %j{k} to i64",
            f"  %s{k} = getelementptr i64, ptr %state, i64 %w{k}",
            f"  %v{k} = load i64, ptr %s{k}",
            f"  %less{k} = sub i64 %v{k}, {single}",
            f"  %now{k} = xor i64 %less{k}, %key",
            f"  store i64 %now{k}, ptr %s{k}",
            f"  %d{k} = lshr i64 %now{k}, 32",
            f"  %one{k} = icmp eq i64 %d{k}, 1",
            f"  %more{k} = zext i1 %one{k} to i64",
            f"  %q{k} = getelementptr i32, ptr %queue, i64 %tail{k}",
            f"  %old{k} = load i32, ptr %q{k}",
            f"  %new{k} = select i1 %one{k}, i32 %j{k}, i32 %old{k}",
            f"  store i32 %new{k}, ptr %q{k}",
            f"  %tail{k + 1} = add i64 %tail{k}, %more{k}",
        ]
    return "\n".join(
        [
            f"define void @peeled({PEELED}) nounwind {{",
            "entry:",
            "  br label %next",
            "next:",
            "  %head = phi i64 [ 0, %entry ], [ %head1, %look ], [ %head1, %take ]",
            "  %tail0 = phi i64 [ %waiting, %entry ], [ %tail0, %look ], [ %tail3, %take ]",
            "  %c = phi i64 [ 0, %entry ], [ %c, %look ], [ %c1, %take ]",
            "  %left = icmp ult i64 %head, %tail0",
            "  br i1 %left, label %look, label %done",
            "look:",
            *fetched,
            "  %jp = getelementptr i32, ptr %queue, i64 %head",
            "  %j = load i32, ptr %jp",
            "  %jw = zext i32 %j to i64",
            "  %sp = getelementptr i64, ptr %state, i64 %jw",
            "  %v = load i64, ptr %sp",
            "  %head1 = add i64 %head, 1",
            "  %degree = lshr i64 %v, 32",
            "  %one = icmp eq i64 %degree, 1",
            "  br i1 %one, label %take, label %next",
            "take:",
            f"  %key = and i64 %v, {word}",
            "  %key32 = trunc i64 %key to i32",
            "  %op = getelementptr i32, ptr %order, i64 %c",
            "  store i32 %key32, ptr %op",
            "  %wp = getelementptr i32, ptr %owned, i64 %c",
            "  store i32 %j, ptr %wp",
            "  %c1 = add i64 %c, 1",
            "  %three = mul i64 %key, 3",
            "  %place = getelementptr i32, ptr %positions, i64 %three",
            *touched,
            "  br label %next",
            "done:",
            "  store i64 %c, ptr %found",
            "  ret void",
            "}",
            "",
        ]
    )


def emit_substitution(f: Function) -> None:
    """Sets the owned slots, the last one first: its key's value, less the other two slots of its row.

    The owned slots hold zeros before, so all three are summed; ``width`` words a slot, at least one.
    """

    last = f.emit_scalar("add i64 %n, -1")

    def body(number: str, _: list[Vec]) -> list[Vec]:
        at = f.emit_scalar(f"sub i64 {last}, {number}")
        _prefetch_key(f, f.emit_scalar(f"add i64 {at}, {-AHEAD}"), f.emit_scalar(f"add i64 {at}, {-AHEAD // 2}"))
        key = _word_address(f, "%order", at)
        own = f.emit_scalar(f"mul i64 {_word_address(f, '%owned', at)}, %width")
        first = f.emit_scalar(f"mul i64 {key}, 3")
        starts = [
            f.emit_scalar(f"mul i64 {_word_address(f, '%positions', f.emit_scalar(f'add i64 {first}, {k}'))}, %width")
            for k in range(3)
        ]
        value = f.emit_scalar(f"mul i64 {key}, %width")

        def word(place: str, _: list[Vec]) -> list[Vec]:
            total = _load_slot(f, "%values", value, place)
            for start in starts:
                total = f.emit_scalar(f"xor i64 {total}, {_load_slot(f, '%slots', start, place)}")
            target = f.offset("%slots", f.emit_scalar(f"add i64 {own}, {place}"))
            f.emit(f"store i64 {total}, ptr {target}")
            return []

        f.loop("%width", word)
        return []

    f.loop("%n", body, perhaps=True)


def _prefetch_key(f: Function, far: str, near: str) -> None:
    """Of the key at `far` its positions and value, of that at `near` its slots; key 0 where an order has ended."""
    keys = []
    for place in (far, near):
        there = f.emit_scalar(f"icmp sge i64 {place}, 0")
        index = f.emit_scalar(f"select i1 {there}, i64 {place}, i64 0")
        keys.append(_word_address(f, "%order", index))
    first = f.emit_scalar(f"mul i64 {keys[0]}, 3")
    wanted = [_word32_address(f, "%positions", first), f.offset("%values", f.emit_scalar(f"mul i64 {keys[0]}, %width"))]
    first = f.emit_scalar(f"mul i64 {keys[1]}, 3")
    for k in range(3):
        slot = _word_address(f, "%positions", f.emit_scalar(f"add i64 {first}, {k}"))
        wanted.append(f.offset("%slots", f.emit_scalar(f"mul i64 {slot}, %width")))
    for address in wanted:
        f.emit(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")


def _word_address(f: Function, base: str, index: str) -> str:
    return f.emit_scalar(f"zext i32 {f.emit_scalar(f'load i32, ptr {_word32_address(f, base, index)}')} to i64")


def _word32_address(f: Function, base: str, index: str) -> str:
    return f.emit_scalar(f"getelementptr i32, ptr {base}, i64 {index}")


def _load_slot(f: Function, base: str, start: str, place: str) -> str:
    return f.emit_scalar(f"load i64, ptr {f.offset(base, f.emit_scalar(f'add i64 {start}, {place}'))}")

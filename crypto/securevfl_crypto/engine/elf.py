"""Reads what a build checks of a shared object: 64-bit little-endian ELF, as the System V ABI describes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["SharedObject", "read_shared_object"]

_LOAD, _GNU_STACK = 1, 0x6474E551
_EXECUTE, _WRITE = 1, 2
_DYNAMIC, _DYNSYM, _SYMTAB = 6, 11, 2
_NEEDED, _INIT, _TEXTREL, _INIT_ARRAY, _FLAGS = 1, 12, 22, 25, 30
_TEXTREL_FLAG = 4
_LOCAL = 0


@dataclass(frozen=True)
class SharedObject:
    """What a shared object offers, and what it asks of the loader.

    Attributes:
        defined: the symbols that others can look up.
        undefined: the symbols that it takes from others.
        needed: how many other libraries it names.
        runs_at_load: whether it has code that runs when it is loaded.
        writes_code: whether the loader must write into its code, or a segment is both writable and executable.
        stack_executable: whether it asks for a stack that is executable.
        stripped: whether it has no table of symbols for debuggers.
    """

    defined: frozenset[str]
    undefined: frozenset[str]
    needed: int
    runs_at_load: bool
    writes_code: bool
    stack_executable: bool
    stripped: bool


def read_shared_object(data: bytes) -> SharedObject:
    """Describe a shared object.

    Raises:
        ValueError: this is not a 64-bit little-endian ELF shared object.
    """
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 16)[0] != 3:
        raise ValueError("not a 64-bit little-endian ELF shared object")
    (program, section), counts = struct.unpack_from("<QQ", data, 32), struct.unpack_from("<HHHH", data, 54)
    segments = [struct.unpack_from("<II", data, program + k * counts[0]) for k in range(counts[1])]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section + k * counts[2]) for k in range(counts[3])]
    symbols = [one for table in sections if table[1] == _DYNSYM for one in _symbols(data, table, sections[table[6]][4])]
    entries = [
        struct.unpack_from("<QQ", data, table[4] + at)
        for table in sections
        if table[1] == _DYNAMIC
        for at in range(0, table[5], 16)
    ]
    tags = [tag for tag, _ in entries]
    stacks = [flags for kind, flags in segments if kind == _GNU_STACK]
    return SharedObject(
        defined=frozenset(name for name, where in symbols if where),
        undefined=frozenset(name for name, where in symbols if not where),
        needed=tags.count(_NEEDED),
        runs_at_load=_INIT in tags or _INIT_ARRAY in tags,
        writes_code=_TEXTREL in tags
        or any(tag == _FLAGS and value & _TEXTREL_FLAG for tag, value in entries)
        or any(kind == _LOAD and flags & _WRITE and flags & _EXECUTE for kind, flags in segments),
        stack_executable=not stacks or any(flags & _EXECUTE for flags in stacks),
        stripped=all(table[1] != _SYMTAB for table in sections),
    )


def _symbols(data: bytes, table: tuple[int, ...], names: int) -> Iterator[tuple[str, int]]:
    """The names of a table's symbols, and the section of each: 0 for what others must define."""
    for at in range(table[4] + 24, table[4] + table[5], 24):  # the first is empty
        name, info, _, where = struct.unpack_from("<IBBH", data, at)
        if info >> 4 != _LOCAL:
            yield data[names + name : data.index(b"\0", names + name)].decode("ascii"), where

"""Whatever bytes come: what was meant, or an error of the project, in little memory. Seeds are fixed; an input that
fails is printed in hexadecimal, to be added to `regressions`."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from fuzz.decoders import DECODERS, Decoder, decoder
from fuzz.regressions import REGRESSIONS

INPUTS = 300  # `benchmarks.fuzz` tries other ones for minutes
MEMORY = 65 << 20  # 64 MB, and what the interpreter itself takes


def _read(one: Decoder, decode: object, data: bytes) -> bool:
    """Whether it was accepted."""
    try:
        decode(data)  # type: ignore[operator]
    except one.errors:
        return False
    except Exception as error:
        raise AssertionError(f"{one.name}: {type(error).__name__}: {error}\n{data.hex()}") from error
    return True


@pytest.fixture(scope="module")
def _traced() -> Iterator[None]:
    """Memory is traced for the whole file: to stop it can crash Python before 3.12.9 while another thread allocates."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
@pytest.mark.parametrize("one", DECODERS, ids=lambda one: one.name)
def test_inputs_that_were_changed(one: Decoder) -> None:
    corpus, decode = one.make()
    for data in corpus if one.exact else ():
        assert _read(one, decode, data), "the corpus itself is refused"
    luck = random.Random(f"{one.name} 1")
    refused = 0
    count = max(8, int(one.weight * INPUTS))
    for _ in range(count):
        data = one.change(luck.choice(corpus), luck)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        refused += not _read(one, decode, data)
        taken = tracemalloc.get_traced_memory()[1] - before
        assert taken < 2 * len(data) + MEMORY, f"{taken} bytes for {data.hex()}"
    assert refused > count // 20, "the mutators change nothing that matters"


@pytest.mark.parametrize(("name", "data"), REGRESSIONS)
def test_inputs_that_once_failed(name: str, data: str) -> None:
    one = decoder(name)
    assert not _read(one, one.make()[1], bytes.fromhex(data))

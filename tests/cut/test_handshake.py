"""What parties tell each other before a cut: widths that no cut has are refused."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import securevfl_crypto as crypto
from support.cuts import link_in_memory, sealed

from securevfl.cut.handshake import announce_width, read_key, receive_widths
from securevfl.cut.spec import CutSpec
from securevfl.errors import ProtocolError
from securevfl.transport import Kind

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


def test_a_width_that_is_no_number_is_refused() -> None:
    world = link_in_memory(passive=("p1",))
    meta: dict[str, str | int | bool] = {
        "job": "j",
        "protection": "bfv",
        "h": SPEC.width,
        "width": True,
        "trainable": False,
    }

    async def together() -> None:
        await world["p1"].links["a"].send(Kind.CONTROL, "cut/setup", meta=meta)
        with pytest.raises(ProtocolError, match="True wide"):
            await sealed(crypto.BFV()).active(world["a"], SPEC).setup()

    asyncio.run(together())


@pytest.mark.parametrize(("width", "fits"), [(1 << 19, True), ((1 << 19) + 1, False)])
def test_a_block_of_too_many_weights_is_refused_before_it_is_drawn(width: int, fits: bool) -> None:
    world, spec = link_in_memory(passive=("p1",)), CutSpec(width=32, lr=0.5, batch_size=8)

    async def received() -> object:
        await announce_width(world["p1"], spec, "bfv", width, trainable=False)
        return await receive_widths(world["a"], spec, "bfv")

    if fits:
        assert asyncio.run(received()) == {"p1": (width, False)}
    else:
        with pytest.raises(ProtocolError, match=f"{width * 32} weights for a cut 32 wide; 16777216 are possible"):
            asyncio.run(received())


@pytest.mark.parametrize(
    "key", [np.zeros((1 << 20) + 1, np.uint8), np.zeros(32, np.int64), np.zeros((2, 16), np.uint8)], ids=str
)
def test_keys_longer_than_any_and_no_bytes_are_refused_before_they_are_copied(key: np.ndarray) -> None:
    """Neither a scheme's parser nor X25519 sees them."""
    with pytest.raises(ProtocolError, match="'p1' sent a public key as"):
        read_key("p1", key)
    assert read_key("p1", np.arange(32, dtype=np.uint8)) == bytes(range(32))


@pytest.mark.parametrize("kit", ["bfv", "ckks", "paillier"])
def test_a_cut_refuses_a_key_of_a_megabyte_unread(kit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, scheme = (
        link_in_memory(passive=("p1",)),
        {"bfv": crypto.BFV(), "ckks": crypto.CKKS()}.get(kit, crypto.Paillier(2048)),
    )
    monkeypatch.setattr(type(scheme), "read_public", lambda self, data: pytest.fail("read"))

    async def together() -> None:
        key = np.zeros(1 << 21, dtype=np.uint8)
        await world["a"].links["p1"].send(Kind.PUBLIC_KEY, "cut/public key", meta={"widest": 4}, key=key)
        await sealed(scheme).passive(world["p1"], SPEC).setup(4, trainable=False)

    with pytest.raises(ProtocolError, match=r"public key as uint8 \(2097152,\)"):
        asyncio.run(together())

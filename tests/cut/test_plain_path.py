"""What makes the plain path fast must not show: tensors that pass by reference stay what they were."""

from __future__ import annotations

import asyncio

import numpy as np
import torch
from torch import nn

from securevfl.cut import CutSpec, Plain
from securevfl.testing import link_in_memory
from securevfl.training import NumberedRows, Split
from securevfl.training.optimizers import forget_gradients
from securevfl.training.rows import Features
from securevfl.transport import Array, Message


def test_steps_leave_snapshots_and_what_was_sent_as_they_were() -> None:
    world, spec = link_in_memory(passive=("shop",)), CutSpec(width=3, lr=0.5, batch_size=4)
    a, sent = torch.randn(4, 2), list[Array]()
    top, bottom = Plain().active_cut(world["a"], spec), Plain().passive_cut(world["shop"], spec)
    channel = world["shop"].links["a"]._channel
    original = channel.send

    async def send(message: Message) -> int:
        sent.extend(message.arrays.values())
        return await original(message)

    channel.send = send  # type: ignore[method-assign]

    async def active() -> None:
        await top.setup()
        z = (await top.forward(4, train=True)).requires_grad_()
        torch.autograd.backward((z**2).sum())
        assert z.grad is not None
        await top.backward(z.grad)

    async def passive() -> None:
        await bottom.setup(2, trainable=True)
        await bottom.forward(a, train=True)
        before = bottom.snapshot()
        kept = _weights(before).clone()
        back = await bottom.backward()
        assert torch.equal(_weights(before), kept)
        gradient = 2 * (a @ kept)
        assert back is not None
        torch.testing.assert_close(back, gradient @ kept.T)
        torch.testing.assert_close(_weights(bottom.snapshot()), kept - 0.5 * (a.T @ gradient))

    async def both() -> None:
        await asyncio.gather(active(), passive())

    asyncio.run(both())
    assert not any(isinstance(array, torch.Tensor) and array.requires_grad for array in sent)


def _weights(state: object) -> torch.Tensor:
    found = state[0] if isinstance(state, tuple) else state
    assert isinstance(found, torch.Tensor)
    return found


def test_features_of_rows_that_a_party_lacks_are_the_fill() -> None:
    x = torch.arange(12.0).reshape(6, 2) + 1
    table = NumberedRows(
        x=x,
        split=Split(np.arange(2), np.arange(2, 3), np.arange(3, 4)),
        name="bank",
        rest={"bank": 2, "shop": 3},
    )
    features = Features(table, "cpu")
    rows = np.array([5, 0, 6, 8, -1, 4])
    expected = torch.stack([x[5], x[0], *(torch.zeros(2) for _ in range(3)), x[4]])
    assert torch.equal(features(rows), expected)
    assert torch.equal(features(rows[:2]), x[[5, 0]])
    assert features(rows[:0]).shape == (0, 2)


def test_a_step_forgets_gradients_that_were_left_on_its_parameters() -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    torch.autograd.backward(layer(torch.ones(1, 2)).sum())
    forget_gradients(optimizer)
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_batches_that_are_parts_of_one_array_find_their_rows_wherever_the_others_lie() -> None:
    x = torch.arange(12.0).reshape(6, 2) + 1
    split = Split(np.arange(2), np.arange(2, 3), np.arange(3, 4))
    features = Features(NumberedRows(x=x, split=split, name="bank", rest={"shop": 3, "bank": 2}), "cpu")
    known, mixed = np.array([3, 0, 2, 1]), np.array([1, 0, 4, 7, 5, -1])  # this party's own rows are numbered from 7
    for _ in range(2):
        assert torch.equal(features(known[1:3]), x[[0, 2]])
        assert torch.equal(features(mixed[:2]), x[[1, 0]])
        assert torch.equal(features(mixed[2:]), torch.stack([torch.zeros(2), x[4], *torch.zeros(2, 2)]))
        assert features.find_places(mixed[2:4]).tolist() == [4]
        assert torch.equal(features(known[::2]), x[[3, 2]])
        assert torch.equal(features(known[3:]), x[[1]])
    halves = known.astype(np.int32)
    assert torch.equal(features(halves[:2]), x[[3, 0]])

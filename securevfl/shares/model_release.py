"""A model that is handed out: at the end of training each data party gets the weights that its own columns enter by,
and the active party those above; nobody gets a weight of another party's columns. To predict, each deals its part
again, so that `z` of a row stays in shares then, too.

A weight of the first layer stands in the row of the column that it is multiplied with: the rows of a party's columns
are its part. With perceptron bottoms its bottom is. Biases of joined layers, and all layers above, are the active
party's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated import Opening, Share, concatenate
from securevfl_crypto.ring import FRACTION, decode_words, encode_words

from securevfl.errors import InputError, ProtocolError, RangeError
from securevfl.privacy import Link, fan_out
from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.release_exchanges import PART
from securevfl.shares.share_party import ShareParty
from securevfl.shares.wire import MASKED
from securevfl.transport import Kind

__all__ = ["ModelRelease", "WeightBlock", "receive_sum", "send_summand", "split_weights"]

_WHAT = "this party's part of the model"
_SLACK = 2.0
"""Norms may be this many times what the last check of the range found: products are proved for that."""


@dataclass(frozen=True, slots=True)
class WeightBlock:
    """Rows of one layer's weights.

    Attributes:
        layer: its name.
        first: row, counted from 0.
        last: row after the last one.
        outputs: columns.
        norm: largest Frobenius norm that the layer may have.
    """

    layer: str
    first: int
    last: int
    outputs: int
    norm: float

    @property
    def name(self) -> str:
        """In saved parts: ``"layer 0, rows 0 to 13"``."""
        return f"{self.layer}, rows {self.first} to {self.last}"

    @property
    def shape(self) -> tuple[int, int]:
        """Of its weights."""
        return self.last - self.first, self.outputs


def split_weights(shape: NetworkShape) -> list[list[WeightBlock]]:
    """For each data party, the active one first, its part of the weights; together all of them, each once.

    Args:
        shape: of the network.
    """
    found: list[list[WeightBlock]] = [[] for _ in shape.inputs]
    for level in shape.bottom_layers():
        for layer in level:
            party = int(layer.name.removeprefix("bottom ").split(".")[0])
            found[party].append(WeightBlock(layer.name, 0, layer.inputs + 1, layer.outputs, layer.max_norm))
    first, *above = shape.top_layers()
    start = 0
    if not shape.bottom:
        for party, width in enumerate(shape.inputs):
            if width:
                found[party].append(WeightBlock(first.name, start, start + width, first.outputs, first.max_norm))
            start += width
    found[0].append(WeightBlock(first.name, start, first.inputs + 1, first.outputs, first.max_norm))
    found[0] += [WeightBlock(layer.name, 0, layer.inputs + 1, layer.outputs, layer.max_norm) for layer in above]
    return found


class HasWeights(Protocol):
    """What is handed out: shares of weights, by layer."""

    weights: dict[str, Share]


@dataclass
class ModelRelease:
    """One party's part in handing a model out, and in dealing it again.

    Attributes:
        member: what it deals and computes.
        shape: of the network.
        network: at a computing party.
        counted: is called before the model is handed out.
    """

    member: ShareParty
    shape: NetworkShape
    network: HasWeights | None
    counted: Callable[[], None]

    @staticmethod
    def openings(shape: NetworkShape, sources: Sequence[str], computing: Sequence[str]) -> dict[str, Opening]:
        """What handing out opens inside the three: each one's own part, once, to it alone.

        Args:
            shape: of the network.
            sources: names of the data parties, the active one first.
            computing: names of the three.
        """
        found = {}
        for party, mine in enumerate(split_weights(shape)):
            if mine and sources[party] in computing:
                values = sum(block.shape[0] * block.shape[1] for block in mine)
                found[_opening_name(party)] = Opening(1, (computing.index(sources[party]),), values)
        return found

    async def hand_out(self) -> dict[str, np.ndarray]:
        """Open to each data party its part. This party's own, block → float64 weights; nothing at a coordinator.

        Raises:
            UndeclaredOpening: a part that was not declared, or was opened before.
            ProtocolError: to a party that does not compute, summands were sent that do not fit together.
        """
        self.counted()
        member, own = self.member, {}
        for party, (name, mine) in enumerate(zip(member.sources, split_weights(self.shape), strict=True)):
            if not mine:
                continue
            words = await self._open_part(party, name, mine)
            if words is not None and name == member.site.name:
                ends = np.cumsum([block.shape[0] * block.shape[1] for block in mine])[:-1]
                parts = np.split(words.reshape(-1), ends)
                own = {
                    block.name: decode_words(part, FRACTION).reshape(block.shape)
                    for block, part in zip(mine, parts, strict=True)
                }
        return own

    async def _open_part(self, party: int, name: str, mine: Sequence[WeightBlock]) -> np.ndarray | None:
        member, network = self.member, self.network
        if network is None or member.engine is None:
            if name != member.site.name:
                return None
            count = sum(block.shape[0] * block.shape[1] for block in mine)
            return await receive_sum([member.site.links[one] for one in member.computing], count, PART, _WHAT)
        whole = concatenate(
            [network.weights[block.layer][block.first : block.last].reshape(-1) for block in mine], axis=0
        )
        if name in member.computing:
            return await member.engine.open(_opening_name(party), whole, [member.computing.index(name)])
        await send_summand(member.site.links[name], whole, PART)
        return None

    async def deal_again(self, own: Mapping[str, np.ndarray]) -> None:
        """Share out what was handed out, so that the computing parties have the model again.

        Args:
            own: this party's part; empty at a coordinator.

        Raises:
            InputError: a part of another network.
            RangeError: weights so large that products on shares could wrap.
        """
        member, every = self.member, split_weights(self.shape)
        names = dict(zip(member.sources, every, strict=True))
        mine = names.get(member.site.name, [])
        if own.keys() != {block.name for block in mine}:
            raise InputError(f"the model has {', '.join(own) or 'no weights'}; this job's network has other blocks")
        words = [_encode_block(block, own[block.name]) for block in mine]
        shapes = {name: [block.shape for block in part] for name, part in names.items() if part}
        dealt = await member.share_arrays(words or None, shapes)
        if self.network is None:
            return
        rows: dict[str, list[tuple[int, Share]]] = {}
        for name, part in names.items():
            for block, share in zip(part, dealt.get(name, []), strict=True):
                rows.setdefault(block.layer, []).append((block.first, share))
        weights = self.network.weights
        self.network.weights = {
            layer: concatenate([share for _, share in sorted(rows[layer], key=lambda one: one[0])], axis=0)
            for layer in weights
        }


def _opening_name(party: int) -> str:
    return f"part {party}"


def _encode_block(block: WeightBlock, values: np.ndarray) -> np.ndarray:
    if values.shape != block.shape:
        raise InputError(f"the model's {block.name} has shape {values.shape}; {block.shape} was expected")
    bound = _SLACK * block.norm
    norm = float(np.linalg.norm(values))
    if not norm <= bound:
        raise RangeError(
            f"the model's {block.name} have norm {norm:.4g}; up to {bound:.4g} no product on shares wraps: take the "
            "part that training saved"
        )
    try:
        return encode_words(values, FRACTION)
    except MalformedError as error:
        raise RangeError(f"the model's {block.name}: {error}") from error


def _digest_words(words: np.ndarray) -> np.ndarray:
    found = hashlib.sha256(f"handed out {words.shape}".encode() + np.asarray(words, order="C").tobytes())
    return np.frombuffer(found.digest(), np.uint8)


async def send_summand(link: Link, x: Share, step: str) -> None:
    """Open x, (n,), to a data party that does not compute: this party's part of it.

    Args:
        link: to the receiver.
        x: the value; each summand's digest goes along with another party's summand.
        step: of the message.
    """
    words = np.asarray(x.mine, order="C")
    await link.send(Kind.SHARE, step, meta={}, guard=MASKED, share=words, digest=_digest_words(x.next))


async def receive_sum(
    links: Sequence[Link], count: int, step: str, what: str, *, multiple_of: int | None = None
) -> np.ndarray:
    """What the three computing parties open to this party, which is none of them, (count,).

    Args:
        links: to the three, in their order.
        count: words; or the most of them.
        step: of the messages.
        what: is opened, for errors.
        multiple_of: what the number of words is a multiple of, where only the most is known before.

    Raises:
        ProtocolError: a summand of another shape, or two parties with different summands.
    """
    summands: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    async def receive_summand(link: Link) -> None:
        message = await link.receive(Kind.SHARE, step, "share", "digest")
        share, digest = np.asarray(message.arrays["share"]), np.asarray(message.arrays["digest"])
        fits = share.shape == (count,) or (
            multiple_of is not None and share.ndim == 1 and len(share) <= count and len(share) % multiple_of == 0
        )
        if share.dtype != np.uint64 or not fits or digest.dtype != np.uint8:
            raise ProtocolError(
                f"{link.peer!r} sent {share.dtype} {share.shape} of {what}; uint64 ({count},)"
                + ("" if multiple_of is None else f", or fewer by multiples of {multiple_of},")
                + " was expected"
            )
        summands[link.peer] = share, digest

    await fan_out(links, receive_summand)
    order = [link.peer for link in links]
    for holder, after in zip(order, [*order[1:], order[0]], strict=True):
        if not np.array_equal(summands[holder][1], _digest_words(summands[after][0])):
            raise ProtocolError(
                f"{holder!r} and {after!r} hold different summands of {what}: start all again from one checkpoint"
            )
    lengths = {len(share) for share, _ in summands.values()}
    if len(lengths) != 1:
        raise ProtocolError(f"{', '.join(order)} sent {sorted(lengths)} words of {what}: expected as many of each")
    return np.asarray(sum((share for share, _ in summands.values()), start=np.zeros(lengths.pop(), np.uint64)))

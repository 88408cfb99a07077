"""Both halves of a block whose long work is done by a pool, in parts of whole tiles.

Messages are the same as without a pool: a peer cannot tell, and need not know. What is masked is masked here, by one
party's one stream of shares of zero; workers encrypt, multiply, re-randomise and decrypt, with randomness of their own
operating system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.pools import Pool
from securevfl_crypto.rlwe.crew import Crew
from securevfl_crypto.rlwe.envelopes import Content
from securevfl_crypto.rlwe.holder import RlweHolder
from securevfl_crypto.rlwe.keys import RlwePublicKey, RlweSecretKey
from securevfl_crypto.rlwe.owner import RlweOwner
from securevfl_crypto.rlwe.plan import Plan, tile_length
from securevfl_crypto.rlwe.tiling import CHECKS

__all__ = ["PooledHolder", "PooledOwner"]


class PooledHolder(RlweHolder):
    """The feature holder's half on a pool. See `Holder`.

    Args:
        key: the owner's public key.
        plan: the layout of the block.
        zero: this holder's shares of zero with the other holders.
        pool: the workers: of this party alone.
        scheme: the scheme's name.
    """

    def __init__(self, key: RlwePublicKey, plan: Plan, zero: ZeroShares, pool: Pool, scheme: str) -> None:
        super().__init__(key, plan, zero)
        self._crew = Crew(pool, scheme, plan.block, key.fingerprint, key.to_bytes)

    def product_of(self, sealed: np.ndarray, x: np.ndarray, masks: np.ndarray, checks: np.ndarray) -> np.ndarray:
        """See `RlweHolder.product_of`: some rows in each part."""
        plan, outs = self._plan, len(self._plan.output_tiles)
        parts, answers = [], 0
        for group in self._crew.cut_tiles(plan.row_tiles(len(x))):
            rows, more = slice(group[0].start, group[-1].stop), answers + len(group) * outs
            parts.append([sealed, x[rows], masks[..., rows, :], checks[..., answers:more, :]])
            answers = more
        return plan.create_envelope(Content.PRODUCT, plan.products, len(x)).join_parts(
            self._crew.run_task("answer_product", parts)
        )

    def gradient_of(self, sealed: np.ndarray, x: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """See `RlweHolder.gradient_of`: some columns in each part."""
        plan = self._plan
        groups = [
            slice(group[0].start, group[-1].stop) for group in self._crew.cut_tiles(plan.column_tiles(x.shape[1]))
        ]
        found = self._crew.run_task("answer_gradient", [[sealed, x[:, part], masks[..., part, :]] for part in groups])
        return plan.create_envelope(Content.GRADIENT, plan.gradients).join_parts(found)


class PooledOwner(RlweOwner):
    """The key owner's half on a pool, which gets the key pair. See `Owner`.

    Args:
        key: the key pair.
        plan: the layout of the block.
        pool: the workers: of this party alone.
        scheme: the scheme's name.
    """

    def __init__(self, key: RlweSecretKey, plan: Plan, pool: Pool, scheme: str) -> None:
        super().__init__(key, plan)
        digest = hashlib.sha256(b"own workers" + key.public.to_bytes()).hexdigest()
        self._crew = Crew(pool, scheme, plan.block, digest, key.unsafe_to_bytes)

    def sealed_weights(self, messages: np.ndarray) -> np.ndarray:
        """See `RlweOwner.sealed_weights`: some rows of V in each part."""
        plan = self._plan
        found = self._crew.run_task("seal_weights", self._cut_messages(messages, plan.column_tiles(messages.shape[-2])))
        return plan.create_envelope(Content.WEIGHTS, plan.products).join_parts(found)

    def sealed_steps(self, messages: np.ndarray) -> np.ndarray:
        """See `RlweOwner.sealed_steps`: some rows in each part."""
        plan, rows = self._plan, messages.shape[-2]
        found = self._crew.run_task("seal_steps", self._cut_messages(messages, plan.row_tiles(rows)))
        return plan.create_envelope(Content.STEPS, plan.gradients, rows).join_parts(found)

    def _cut_messages(self, messages: np.ndarray, tiles: list[slice]) -> list[list[np.ndarray]]:
        return [[messages[..., group[0].start : group[-1].stop, :]] for group in self._crew.cut_tiles(tiles)]

    def opened_product(self, messages: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """See `RlweOwner.opened_product`: some rows in each part."""
        plan, encoding = self._plan, self._plan.products
        sizes = [len(places.index) + CHECKS for *_, places in plan.product_tiles(rows)]
        groups = self._crew.cut_tiles(plan.row_tiles(rows))
        counts = [sum(tile_length(tile) for tile in group) for group in groups]
        parts = [
            (plan.create_envelope(Content.PRODUCT, encoding, count), len(group) * len(plan.output_tiles))
            for group, count in zip(groups, counts, strict=True)
        ]
        envelope = plan.create_envelope(Content.PRODUCT, encoding, rows)
        split = [envelope.split_answers(message, sizes, parts) for message in messages]
        found = self._crew.run_task(
            "open_product", [[c, *of] for c, of in zip(counts, zip(*split, strict=True), strict=True)]
        )
        return np.concatenate(found)

    def opened_gradient(self, message: np.ndarray, columns: int) -> np.ndarray:
        """See `RlweOwner.opened_gradient`: some rows of W in each part."""
        plan, envelope = self._plan, self._plan.create_envelope(Content.GRADIENT, self._plan.gradients)
        sizes = [len(places.index) for *_, places in plan.gradient_tiles(columns)]
        groups = self._crew.cut_tiles(plan.column_tiles(columns))
        split = envelope.split_answers(
            message, sizes, [(envelope, len(group) * len(plan.output_tiles)) for group in groups]
        )
        counts = [sum(tile_length(tile) for tile in group) for group in groups]
        return np.concatenate(
            self._crew.run_task("open_gradient", [list(part) for part in zip(counts, split, strict=True)])
        )

"""Scores of rows between two parties: the passive party's sum of shapes of a row, sealed for the active party alone.

The active party adds it to its own sum, so it learns that number exactly, as it would from any prediction whose own
part it knows. It is rounded to 2⁻⁸, a quarter of what a step of 2⁻⁴ of log-odds is at a probability of one half (a
sixty-fourth), and clipped at ±2.

The message is a product of the sealed cut, by the identity: the active party sends an encrypted zero ``[[V]]`` once a
session, and gets ``[[x (V + 1)]]``.
"""

from __future__ import annotations

import numpy as np
import securevfl_crypto as crypto

from securevfl.algorithms.additive.sealed_keys import SealedKeys
from securevfl.cut.blocks import SIGMA
from securevfl.cut.hiding_count import HidingCount
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import ProtocolError
from securevfl.transport import Kind

__all__ = ["SCORES", "TERM_BITS", "ZERO", "SealedScores", "round_terms"]

ZERO, SCORES = "additive/sealed zero", "additive/sealed terms"

TERM_BITS = 8
"""Fractional bits of a passive party's sum of shapes."""

_BOUND = 2 << TERM_BITS
_BITS = TERM_BITS + 2
_ROWS = 2048


class SealedScores:
    """One party's end.

    Args:
        keys: of the session.
        outputs: K.
    """

    def __init__(self, keys: SealedKeys, outputs: int) -> None:
        self._keys, self._outputs = keys, outputs
        self._site = keys.site
        self._hidden = HidingCount(keys.site.notes, keys.site.name, keys.scheme.name, SIGMA)
        self._owner: crypto.Owner | None = None
        self._holder: crypto.Holder | None = None
        self._zero = np.empty(0, dtype=np.uint8)

    async def setup(self) -> None:
        """Send the encrypted zero, or receive it, once keys are exchanged."""
        keys, scheme, outputs = self._keys, self._keys.scheme, self._outputs
        block = crypto.Block(
            batch=_ROWS,
            width_in=outputs,
            width_out=outputs,
            x_bits=_BITS,
            s_bits=1,
            w_bits=1,
            z_bits=_BITS + outputs.bit_length() + 2,
            sigma=SIGMA,
        )
        if keys.is_active:
            with count_as_encryption(self._site.clock):
                self._owner = scheme.create_owner(keys.own.secret, block)
                sealed = self._owner.seal_weights(np.full((outputs, outputs), 0, dtype=object))
            await keys.link.send(Kind.CIPHERTEXT, ZERO, guard=keys.own.guard, c=sealed)
            return
        with count_as_encryption(self._site.clock):
            self._holder = scheme.create_holder(keys.theirs.public, block, crypto.ZeroShares([]))
        message = await keys.link.receive(Kind.CIPHERTEXT, ZERO, "c")
        self._zero = np.asarray(message.arrays["c"])

    async def send(self, terms: np.ndarray) -> None:
        """Send the sums of this party's shapes for some rows.

        Args:
            terms: float64 (n, outputs).
        """
        holder = self._holder
        if holder is None:
            raise ProtocolError("scores were asked for before their setup")
        identity = np.array(np.eye(self._outputs, dtype=np.int64), dtype=object)
        with count_as_encryption(self._site.clock):
            sealed = holder.answer_product(self._zero, round_terms(terms), identity)
        self._hidden.add(holder.statistical_masks(len(terms))[0])
        await self._keys.link.send(Kind.CIPHERTEXT, SCORES, guard=self._keys.theirs.guard, c=sealed)

    async def receive(self, rows: int) -> np.ndarray:
        """Sums of the other party's shapes for some rows, float64 (rows, outputs).

        Raises:
            ProtocolError: the other party sent something else.
        """
        owner, link = self._owner, self._keys.link
        if owner is None:
            raise ProtocolError("scores were asked for before their setup")
        message = await link.receive(Kind.CIPHERTEXT, SCORES, "c")
        with count_as_encryption(self._site.clock):
            found = owner.open_product([np.asarray(message.arrays["c"])], rows).astype(np.int64)
        if np.abs(found).max(initial=0) > _BOUND:
            raise ProtocolError(f"{link.peer!r} sent sums of shapes beyond ±{_BOUND >> TERM_BITS}")
        terms: np.ndarray = found / (1 << TERM_BITS)
        return terms


def round_terms(terms: np.ndarray) -> np.ndarray:
    """Sums of shapes as they are sent, int64 in units of 2⁻⁸."""
    scaled = np.rint(np.asarray(terms) * (1 << TERM_BITS))
    units: np.ndarray = np.clip(scaled, -_BOUND, _BOUND).astype(np.int64)
    return units

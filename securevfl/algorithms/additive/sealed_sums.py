"""The sums of an epoch between two parties, and nobody else, by the gradient of a sealed cut.

Of ``r = q_A − p_B``, the active party A holds ``q_A``, targets less its own part, and the passive party B ``p_B``. For
the sums over B's columns:

1. A sends ``[[q_A]]`` under its key.
2. B answers ``[[s_Bᵀ q_A − Φ]]``, re-randomised and drowned, with a fresh Φ, uniform modulo the plaintext modulus.
3. A decrypts, adds noise of its own and sends the result, which only B can unmask.
4. B adds Φ, subtracts ``s_Bᵀ p_B`` and adds noise of its own.

For the sums over A's columns both exchange their roles, with B's key. A party knows the noise that it added, so what
protects it is its own noise in the other's sums: each party adds all of σ to every sum.

A party that deviates, and seals numbers beyond one, reads more than ε states: nobody can see it under encryption. The
other refuses a sum that no rows and noise could give, which stops the crudest.
"""

from __future__ import annotations

import math

import numpy as np
import securevfl_crypto as crypto

from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.sealed_keys import SealedKeys
from securevfl.algorithms.additive.shapes import PublicPlan
from securevfl.algorithms.additive.units import CONTRAST_BITS, CONTRAST_ONE, PART_BITS, PART_ONE, SUM_ONE
from securevfl.cut.blocks import SIGMA
from securevfl.cut.hiding_count import HidingCount
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import PolicyError, ProtocolError, RangeError
from securevfl.privacy.discrete_gaussian import draw_discrete_gaussian
from securevfl.privacy.sums_budget import SumsBudget
from securevfl.transport import NO_GUARD, Array, Guard, Kind

__all__ = ["ANSWER", "OPENED", "PART", "SealedSums"]

PART, ANSWER, OPENED = "additive/sealed part", "additive/sealed sums", "additive/opened sums"
"""Steps of an epoch, each in both directions."""

_DEVIATIONS = 8.0
_WORD = 1 << 64


class SealedSums:
    """One party's end. See `SumsChannel`.

    Args:
        keys: of both parties, exchanged before the first epoch.

    Attributes:
        loss: not a number: no party learns it.
    """

    def __init__(self, keys: SealedKeys) -> None:
        self._keys = keys
        self._site = keys.site
        self._hidden = HidingCount(keys.site.notes, keys.site.name, keys.scheme.name, SIGMA)
        self._ends: tuple[crypto.Owner, crypto.Holder] | None = None
        self._plan: PublicPlan | None = None
        self._own_sigma = 0
        self._last = 0
        self.loss = math.nan

    def begin(self, plan: PublicPlan, budget: SumsBudget | None) -> None:
        """Fix the sizes of the sums, once keys are exchanged.

        Args:
            plan: of the training.
            budget: of the training; None without noise.

        Raises:
            ProtocolError: a party without columns.
        """
        own = plan.parties.index(self._site.name)
        if not min(plan.columns):
            raise ProtocolError(f"{plan.parties[plan.columns.index(0)]!r} has no columns to add sums up for")
        blocks = [_plan_block(plan, columns) for columns in plan.columns]
        with count_as_encryption(self._site.clock):
            owner = self._keys.scheme.create_owner(self._keys.own.secret, blocks[1 - own])
            holder = self._keys.scheme.create_holder(self._keys.theirs.public, blocks[own], crypto.ZeroShares([]))
        if owner.ring.modulus != _WORD or holder.ring.modulus != _WORD:
            raise ProtocolError(f"sums of {plan.rows} rows need more than words of 64 bits")
        self._plan, self._ends = plan, (owner, holder)
        self._own_sigma = 0 if budget is None else budget.own_units(SUM_ONE)

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """See `SumsChannel.exchange`.

        Raises:
            PolicyError: sums of an epoch that were opened before.
            RangeError: a part or a contrast beyond one.
            ProtocolError: the other party sent something else, or a sum that no rows and noise could give.
        """
        plan, ends = self._plan, self._ends
        if plan is None or ends is None:
            raise ProtocolError("sums were asked for before their setup")
        if epoch <= self._last:
            raise PolicyError(f"{self._site.name!r} refuses to open the sums of epoch {epoch} again")
        self._last = epoch
        _check_bounds(contrasts, part)
        owner, holder = ends
        with count_as_encryption(self._site.clock):
            sealed = owner.seal_steps(part)
        theirs = await self._swap(Kind.CIPHERTEXT, PART, sealed, self._keys.own.guard)
        with count_as_encryption(self._site.clock):
            answer, mask = holder.answer_gradient(theirs, contrasts)
        self._hidden.add(holder.statistical_masks(plan.rows)[1])
        answered = await self._swap(Kind.CIPHERTEXT, ANSWER, answer, self._keys.theirs.guard)
        with count_as_encryption(self._site.clock):
            opened = owner.open_gradient(answered)
        words = _to_words(opened + self.draw_noise(opened.shape))
        returned = await self._swap(Kind.STATISTIC, OPENED, words)
        size = (contrasts.shape[1], plan.outputs)
        if returned.dtype != np.uint64 or returned.shape != size:
            raise ProtocolError(
                f"{self._keys.link.peer!r} sent opened sums as {returned.dtype} {returned.shape}; uint64 {size} is "
                "needed"
            )
        of_other = (returned + _to_words(mask)).view(np.int64)
        difference = sum_contrasts(contrasts, part) - of_other
        sums: np.ndarray = (difference if self._keys.is_active else -difference) + self.draw_noise(size)
        most = plan.rows * float(SUM_ONE) + _DEVIATIONS * plan.noise * SUM_ONE
        if np.abs(sums.astype(np.float64)).max(initial=0.0) > most:
            raise ProtocolError(
                f"a sum of epoch {epoch} that {self._site.name!r} unmasked is larger than {plan.rows} rows and their "
                f"noise can make it: {self._keys.link.peer!r} sealed, or added, something else"
            )
        return sums

    def draw_noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """This party's noise on some sums, int64, in units of 2⁻²⁰."""
        return draw_discrete_gaussian(shape, self._own_sigma) if self._own_sigma else np.zeros(shape, dtype=np.int64)

    async def _swap(self, kind: Kind, step: str, content: np.ndarray, guard: Guard = NO_GUARD) -> np.ndarray:
        """Send this party's message of a step and receive the other's; the active party sends first, so that neither
        waits for room at the other."""
        link, first = self._keys.link, self._keys.is_active
        if first:
            await link.send(kind, step, guard=guard, c=content)
        message = await link.receive(kind, step, "c")
        if not first:
            await link.send(kind, step, guard=guard, c=content)
        return _as_numpy(message.arrays["c"])


def _plan_block(plan: PublicPlan, columns: int) -> crypto.Block:
    """Sizes of the sums over the columns of one party; products of the block are not used."""
    return crypto.Block(
        batch=plan.rows,
        width_in=columns,
        width_out=plan.outputs,
        x_bits=CONTRAST_BITS + 1,
        s_bits=PART_BITS + 1,
        w_bits=1,
        z_bits=1,
        sigma=SIGMA,
    )


def _check_bounds(contrasts: np.ndarray, part: np.ndarray) -> None:
    """Check the bounds that the noise is sized for.

    Raises:
        RangeError: a contrast or a part beyond one.
    """
    for what, values, one in (("contrast", contrasts, CONTRAST_ONE), ("part", part, PART_ONE)):
        largest = int(np.abs(values).max(initial=0))
        if largest > one:
            raise RangeError(f"a {what} of {largest} units would be sealed; {one}, which stand for one, are the most")


def _to_words(values: np.ndarray) -> np.ndarray:
    """Integers modulo 2⁶⁴, uint64."""
    return (values.astype(object) % _WORD).astype(np.uint64)


def _as_numpy(array: Array) -> np.ndarray:
    """A received array as numpy, whatever it came as."""
    return np.asarray(array)

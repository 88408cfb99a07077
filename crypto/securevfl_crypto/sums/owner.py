"""The owner's half of sealed sums: encrypts the rows, opens the sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.modular import Batch
from securevfl_crypto.paillier.private_key import PaillierPrivateKey
from securevfl_crypto.sums.answer import SealedSums
from securevfl_crypto.sums.plan import SumPlan, group_offsets
from securevfl_crypto.sums.slots import pack_slots, unpack_slots

__all__ = ["SumOwner"]

_WINDOW, _NARROW = 12, 8
"""Bits of a digit in the tables of h_s. 12 take 2/3 of the products of 8, and 110 MB for each half of a key of 2048."""
_MANY = 4096
"""From this many rows, wide tables are made: building them costs what some 30,000 rows save, a few trees' worth."""


class _BlindingStock:
    """A stock of blindings: encryptions of zero, each given out once. Several threads may use it."""

    def __init__(self, key: PaillierPrivateKey, window: int) -> None:
        self._key, self._window, self._lock = key, window, Lock()
        self._kept, self._count = deque[Batch](), 0

    def __len__(self) -> int:
        return self._count

    def make_blindings(self, count: int) -> None:
        made = self._key.make_blindings(count, window=self._window)
        with self._lock:
            self._kept.append(made)
            self._count += count

    def take_blindings(self, count: int) -> Batch:
        """Take `count` blindings from the stored ones, and make the missing ones."""
        modulus, parts, missing = self._key.public.modulus, list[Batch](), count
        with self._lock:
            while missing and self._kept:
                first = self._kept.popleft()
                used = min(missing, len(first))
                parts.append(modulus.take(first, np.arange(used)))
                if used < len(first):
                    self._kept.appendleft(modulus.take(first, np.arange(used, len(first))))
                missing -= used
                self._count -= used
        if missing:
            parts.append(self._key.make_blindings(missing, window=self._window))
        return modulus.concat(parts)


class SumOwner:
    """The half of the party that has integers for each row, and the key.

    Args:
        key: the private key.
        plan: the parameters that both parties agreed on.

    Raises:
        MalformedError: the plan is for keys of another size.
    """

    def __init__(self, key: PaillierPrivateKey, plan: SumPlan) -> None:
        plan.check_key(key.public.bits)
        self.plan, self._key, self._ahead = plan, key, _BlindingStock(key, _WINDOW if plan.rows >= _MANY else _NARROW)

    def with_plan(self, plan: SumPlan) -> SumOwner:
        """This owner under another plan, with the same key, tables and blindings made ahead."""
        other = SumOwner(self._key, plan)
        other._ahead = self._ahead
        return other

    @property
    def blindings_in_stock(self) -> int:
        """Number of blindings in stock."""
        return len(self._ahead)

    def make_blindings(self, count: int) -> None:
        """Make blindings for `count` rows ahead: most of the work of `encrypt_rows`. Another thread may call it."""
        self._ahead.make_blindings(count)

    def encrypt_rows(self, values: np.ndarray, node: np.ndarray | None = None) -> np.ndarray:
        """A fresh ciphertext for each row.

        Args:
            values: int64 (rows, integers), within the plan's bounds.
            node: the block of the plaintext that each row fills, int64 (rows,), or −1 for a row outside all nodes,
                which becomes a fresh encryption of zero. None: block 0 for all rows.

        Returns:
            The message, uint8 (rows, ciphertext_bytes).

        Raises:
            MalformedError: a type or shape differs, there are more rows than planned, or a node does not exist.
            OverflowRefused: an integer is beyond its bound; nothing was encrypted.
        """
        plan, width = self.plan, len(self.plan.bounds)
        if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape[1:] != (width,):
            raise MalformedError(f"rows as {_describe_shape(values)}; expected int64 (rows, {width})")
        if not 1 <= len(values) <= plan.rows:
            raise MalformedError(f"{len(values)} rows; the plan has 1 to {plan.rows}")
        for slot, bound in enumerate(plan.bounds):
            least, most = int(values[:, slot].min()), int(values[:, slot].max())
            if max(-least, most) > bound:
                raise OverflowRefused(
                    f"integers from {least} to {most} in place {slot} of a row; the plan has ±{bound}: clip them, or "
                    "plan for more"
                )
        plaintexts = pack_slots(values, plan.slot_widths)
        if node is not None:
            if node.dtype != np.int64 or node.shape != (len(values),):
                raise MalformedError(f"nodes as {_describe_shape(node)}; expected int64 ({len(values)},)")
            if not -1 <= int(node.min()) <= int(node.max()) < plan.nodes:
                raise MalformedError(f"nodes from {node.min()} to {node.max()}; the plan has −1 to {plan.nodes - 1}")
            block = plan.block_bits
            plaintexts = [
                plain << (block * at) if at >= 0 else plain * 0
                for plain, at in zip(plaintexts, node.tolist(), strict=True)
            ]
        public = self._key.public
        blinded = public.modulus.mul(self._ahead.take_blindings(len(plaintexts)), public.raw_batch(plaintexts))
        return public.store_ciphertexts(blinded)

    def open_sums(self, answer: SealedSums, bins: Sequence[int], totals: np.ndarray, nodes: int = 1) -> np.ndarray:
        """Decrypt the sums by node, column and bin.

        Args:
            answer: as the holder made it.
            bins: the number of bins of each of the holder's columns.
            totals: int64 (nodes, integers), the sums over all rows of each node, which give the omitted bins.
            nodes: number of nodes if the holder knows them; 1 if they are blocks of the plaintext.

        Returns:
            int64 (nodes, bins of all columns, integers); nodes is that of the plan if they are blocks.

        Raises:
            MalformedError: the answer has another type, shape or content than one of these sizes.
            OverflowRefused: a sum is larger than any that the plan allows.
        """
        plan, first = self.plan, group_offsets(bins, nodes)
        columns, each, integers = len(first) - 1, int(first[-1]), len(plan.bounds)
        segments = nodes * plan.nodes
        if nodes > 1 and plan.nodes > 1:
            raise MalformedError(f"{nodes} nodes that the holder knows, and {plan.nodes} blocks; one of them must be 1")
        if totals.dtype != np.int64 or totals.shape != (segments, integers):
            raise MalformedError(f"totals as {_describe_shape(totals)}; expected int64 ({segments}, {integers})")
        omitted = answer.check_omitted(bins, nodes)
        left = np.ones((nodes, each), dtype=bool)
        at, column = np.nonzero(omitted >= 0)
        left[at, first[column] + omitted[at, column]] = False
        groups = int(left.sum())
        public = self._key.public
        plaintexts = self._key.decrypt_batch(public.load_ciphertexts(answer.ciphertexts, plan.pack_count(groups)))
        per = -(-groups // max(1, len(plaintexts)))
        read = unpack_slots(plaintexts, plan.slot_widths * (plan.nodes * per)).reshape(
            len(plaintexts), per, plan.nodes, integers
        )
        # place k of pack i holds group k · packs + i
        flat = read.transpose(1, 0, 2, 3).reshape(-1, plan.nodes, integers)
        if flat[groups:].any():
            raise OverflowRefused("a sum in an unused place: a party did not follow the protocol")
        found = np.zeros((nodes, each, plan.nodes, integers), dtype=np.int64)
        found[left] = flat[:groups]
        sums = found.transpose(0, 2, 1, 3).reshape(segments, each, integers)
        for j in range(columns):
            part = slice(int(first[j]), int(first[j + 1]))
            for node in range(nodes):
                if (bin_ := int(omitted[node, j])) >= 0:
                    here = slice(node * plan.nodes, (node + 1) * plan.nodes)
                    sums[here, part][:, bin_] = totals[here] - sums[here, part].sum(axis=1)
        self._check_range(sums)
        return np.ascontiguousarray(sums)

    def _check_range(self, sums: np.ndarray) -> None:
        for slot, bound in enumerate(self.plan.bounds):
            largest = max(int(sums[..., slot].max()), -int(sums[..., slot].min()))
            if largest > self.plan.rows * bound:
                raise OverflowRefused(
                    f"a sum of {largest} in place {slot}; {self.plan.rows} rows reach {self.plan.rows * bound}: a "
                    "party did not follow the protocol"
                )


def _describe_shape(array: object) -> str:
    return f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__

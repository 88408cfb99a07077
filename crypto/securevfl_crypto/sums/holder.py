"""The holder's half of sealed sums: multiplies the encrypted rows of each bin, packs the products and blinds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Batch
from securevfl_crypto.paillier.public_key import PaillierPublicKey
from securevfl_crypto.sums.answer import SealedSums
from securevfl_crypto.sums.hiding import check_symbols
from securevfl_crypto.sums.plan import SumPlan, group_offsets

__all__ = ["SumHolder"]


class SumHolder:
    """The half of the party that has each row's bins.

    Args:
        key: the owner's public key, as `PaillierPublicKey.from_bytes` read it (which verifies its proof).
        plan: the parameters that both parties agreed on.

    Raises:
        MalformedError: the plan is for keys of another size.
    """

    def __init__(self, key: PaillierPublicKey, plan: SumPlan) -> None:
        plan.check_key(key.bits)
        self.plan, self._key = plan, key

    def with_plan(self, plan: SumPlan) -> SumHolder:
        """This holder under another plan, with the same key and tables."""
        return SumHolder(self._key, plan)

    def load_rows(self, message: np.ndarray, rows: int | None = None) -> Batch:
        """Read the owner's rows.

        Args:
            message: as `SumOwner.encrypt_rows` wrote it.
            rows: how many rows there must be; None for the plan's number.

        Raises:
            MalformedError: the type, shape or number of rows differs, a number is not a ciphertext, or an answer's
                randomness could not hide a row's.
        """
        batch = self._key.load_ciphertexts(message, self.plan.rows if rows is None else rows)
        check_symbols(self._key, message)
        return batch

    def compute_sums(
        self,
        batch: Batch,
        codes: np.ndarray,
        bins: Sequence[int],
        node: np.ndarray | None = None,
        nodes: int = 1,
        *,
        complete: bool = True,
    ) -> SealedSums:
        """Compute the encrypted sums by node, column and bin; packed, and blinded so that they reveal nothing else.

        Args:
            batch: the rows that `load_rows` read.
            codes: each row's bin in each column, int64 (rows, columns), or −1 for none.
            bins: the number of bins of each column.
            node: if the holder knows the nodes, each row's, int64 (rows,), or −1 for none; None for one node.
            nodes: number of nodes.
            complete: whether each row that has a node has a bin in every column; then the holder omits the fullest bin
                of each node and column, and the owner learns which bin that is.

        Raises:
            MalformedError: a type, shape or content differs, or a row lacks a bin though `complete`.
        """
        first = group_offsets(bins, nodes)
        columns, each = len(first) - 1, int(first[-1])
        wide = _check_codes(codes, (len(batch), columns), np.asarray(bins, dtype=np.int64), "bins")
        place = np.zeros(len(batch), dtype=np.int64)
        if node is not None:
            place = _check_codes(node, (len(batch),), np.int64(nodes), "nodes")
        elif nodes != 1:
            raise MalformedError(f"{nodes} nodes, but no node of any row: give `node`")
        groups = place[:, None] * each + first[:-1] + wide
        groups[(place < 0)[:, None] | (wide < 0)] = -1
        tally = np.bincount(groups[groups >= 0], minlength=nodes * each).reshape(nodes, each)
        omitted = np.full((nodes, columns), -1, dtype=np.int32)
        if complete:
            if (wide[place >= 0] < 0).any():
                raise MalformedError("a row has a node and no bin in a column: set complete to False, or give it a bin")
            for j in range(columns):
                omitted[:, j] = tally[:, first[j] : first[j + 1]].argmax(axis=1)
        left = np.ones((nodes, each), dtype=bool)
        if complete:
            left[np.arange(nodes)[:, None], first[:-1] + omitted] = False
        number = np.append(np.where(left, np.cumsum(left.reshape(-1)).reshape(left.shape) - 1, -1).reshape(-1), -1)
        return SealedSums(self._pack_sums(batch, number[groups], int(left.sum())), omitted)

    def _pack_sums(self, batch: Batch, groups: np.ndarray, count: int) -> np.ndarray:
        """Pack and blind the sums of these groups: place k of pack i contains group k · packs + i."""
        key, plan, modulus = self._key, self.plan, self._key.modulus
        packs = plan.pack_count(count)
        if not packs:
            return np.zeros((0, key.ciphertext_bytes), dtype=np.uint8)
        each = -(-count // packs)
        sums = modulus.group_products(batch, groups, packs * each)  # the last ones are empty
        value = modulus.horner(sums, each, plan.nodes * plan.block_bits)
        return key.store_ciphertexts(modulus.mul(value, key.make_answer_blindings(packs)))


def _check_codes(codes: np.ndarray, shape: tuple[int, ...], counts: np.ndarray | np.int64, what: str) -> np.ndarray:
    """Codes as int64, from −1 to count − 1 each."""
    if not isinstance(codes, np.ndarray) or codes.dtype.kind not in "iu" or codes.shape != shape:
        found = f"{codes.dtype} {codes.shape}" if isinstance(codes, np.ndarray) else type(codes).__name__
        raise MalformedError(f"{what} as {found}; expected integers {shape}")
    wide = codes.astype(np.int64)
    if (wide < -1).any() or (wide >= counts).any():
        raise MalformedError(f"{what} from {wide.min()} to {wide.max()}; expected −1 to the number of {what} − 1")
    return wide

"""What each column of a party adds to the log-odds of a scorecard, from the party's own part of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from securevfl.algorithms.linear_terms import STAYS_IN_SHARES, handed_out_blocks, name_sum, owns_start
from securevfl.algorithms.scorecard.binning import EvidenceEncoder, codes_of
from securevfl.data.column_terms import ColumnTerms, multiply_columns
from securevfl.errors import InputError
from securevfl.training.state import as_dict, as_list, as_pair, as_tensor

__all__ = ["read_terms"]


def read_terms(part: Mapping[str, Any], x: np.ndarray, party: str, *, points: float) -> ColumnTerms:
    """Terms of the log-odds of the second class. Under a sealed cut the party has its coefficients from its card; on
    shares it has coefficient times weight of evidence of each bin, where the job handed its model out.

    Args:
        part: the party's part of the model.
        x: encoded columns of some rows, (n, columns).
        party: its name, for messages.
        points: of one unit of log-odds.

    Raises:
        InputError: the part has neither.
    """
    parts = as_dict(part["parts"])
    if "shares" in parts:
        return _terms_of_bins(as_dict(parts["shares"]), x, party, active=owns_start(part, party), points=points)
    below, _ = as_pair(parts["half"])
    state, bias = as_dict(below), 0.0
    if owns_start(part, party):
        bias = float(as_tensor(state["1.bias"])[0])
        state = {name.removeprefix("0."): value for name, value in state.items() if name.startswith("0.")}
    card = as_list(as_dict(part["scorecard"]).get("columns", []))
    coefficients = np.array([float(str(as_dict(one)["coefficient"])) for one in card])
    woe = as_tensor(state["woe"])
    if len(coefficients) != x.shape[1]:
        raise InputError(f"the card of {party!r} has {len(coefficients)} columns, its table {x.shape[1]}: no such card")
    encoder = EvidenceEncoder(*woe.shape)
    encoder.load_state_dict({name: as_tensor(value) for name, value in state.items()})
    evidence = encoder(torch.from_numpy(np.asarray(x, np.float32))).double().numpy()
    return ColumnTerms(
        values=multiply_columns(evidence, coefficients[:, None]),
        start=np.array([bias]),
        unit=name_sum(None),
        points=points,
    )


def _terms_of_bins(shares: Mapping[str, Any], x: np.ndarray, party: str, *, active: bool, points: float) -> ColumnTerms:
    blocks = handed_out_blocks(shares["regression"]) if "regression" in shares else None
    if blocks is None:
        raise InputError(f"{party!r} cannot see the terms of its own columns: {STAYS_IN_SHARES}")
    flat = np.concatenate([np.zeros((0, 1)), *blocks])[:, 0]
    values, bias = (flat[:-1], float(flat[-1])) if active else (flat, 0.0)
    cuts: Sequence[np.ndarray] = [as_tensor(cut).numpy() for cut in as_list(shares["cuts"])]
    first = np.concatenate([[0], np.cumsum([len(cut) + 1 for cut in cuts])]).astype(np.int64)
    if first[-1] != len(values):
        raise InputError(f"{party!r} has points of {len(values)} bins, and its columns have {first[-1]}: damaged")
    found = values[codes_of(np.asarray(x, np.float32), cuts) + first[:-1]]
    return ColumnTerms(values=found[:, :, None], start=np.array([bias]), unit=name_sum(None), points=points)

"""Shares as they are kept in checkpoints and models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from securevfl_crypto.replicated import Share

from securevfl.errors import InputError
from securevfl.training.state import State, as_list, as_tensor

__all__ = ["pack_share", "pack_shares", "unpack_share", "unpack_shares"]


def pack_share(share: Share) -> list[torch.Tensor]:
    """Both parts of a share."""
    return [torch.from_numpy(part.view(np.int64).copy()) for part in (share.mine, share.next)]


def pack_shares(shares: Mapping[str, Share]) -> State:
    """Shares by their names."""
    return {name: pack_share(one) for name, one in shares.items()}


def unpack_share(kept: object) -> Share:
    """One kept share.

    Raises:
        InputError: it is none.
    """
    parts = [np.ascontiguousarray(as_tensor(part).numpy()).view(np.uint64) for part in as_list(kept)]
    if len(parts) != 2 or parts[0].shape != parts[1].shape:
        raise InputError("a share has two parts of one shape, and what was kept has not")
    return Share(parts[0].copy(), parts[1].copy())


def unpack_shares(state: Mapping[str, object], like: Mapping[str, Share]) -> dict[str, Share]:
    """Kept shares.

    Raises:
        InputError: they are of another network.
    """
    if state.keys() != like.keys():
        raise InputError(f"the model has shares of {', '.join(state)}; this job's network has {', '.join(like)}")
    found = {name: unpack_share(kept) for name, kept in state.items()}
    for name, share in found.items():
        if share.shape != like[name].shape:
            raise InputError(f"the model's {name} has shares of other shapes than {like[name].shape}")
    return found

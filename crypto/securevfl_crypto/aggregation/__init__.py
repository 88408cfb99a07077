"""Secure aggregation: several parties seal vectors of integers, anyone adds them, one party opens the sum.

`base` implements the protocol and its checks; `paillier` and `ckks` are the two schemes that can run it.

This folder imports `paillier`, `rlwe` and the shared modules. Nothing else in `securevfl_crypto` may import it.
"""

from securevfl_crypto.aggregation.base import Addends, Aggregation, Aggregator
from securevfl_crypto.aggregation.ckks import CkksAggregation, CkksAggregator
from securevfl_crypto.aggregation.paillier import PaillierAggregation, PaillierAggregator

__all__ = [
    "Addends",
    "Aggregation",
    "Aggregator",
    "CkksAggregation",
    "CkksAggregator",
    "PaillierAggregation",
    "PaillierAggregator",
]

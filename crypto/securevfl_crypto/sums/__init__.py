"""Sealed sums: sums of encrypted rows by bin, as boosted trees and scorecards need them.

One party, the owner, has a few integers for each row (gradients, labels). Another, the holder, has each row's bin in
each of its columns. The owner learns the sums of its integers over the rows of each bin; the holder learns nothing.
`plan` defines the public parameters and proves that no sum overflows; `slots` puts many integers into one plaintext;
`owner` and `holder` are the two halves, `answer` is the message between them; `hiding` checks the owner's rows.

This folder imports `paillier`, `modular` and `errors`.
"""

from securevfl_crypto.sums.answer import SealedSums
from securevfl_crypto.sums.holder import SumHolder
from securevfl_crypto.sums.owner import SumOwner
from securevfl_crypto.sums.plan import SumPlan

__all__ = ["SealedSums", "SumHolder", "SumOwner", "SumPlan"]

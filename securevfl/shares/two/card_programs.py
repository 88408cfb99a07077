"""The programs of a scorecard of two parties on shares: a logistic regression on the bins of both parties' columns.

Each bin has a weight of its own, which nobody sees. Between three parties it has a coefficient times its weight of
evidence, a product of two secrets. Between two it takes no product, no count of labels and no further exchange: what
weights of evidence are for, that bins with few rows follow the others, `cells` does by the party's own encoding.
"""

from __future__ import annotations

from securevfl.errors import InputError
from securevfl.shares.scorecard.card_model import CardModel, cuts_of_model
from securevfl.shares.sharing import Sharing
from securevfl.shares.two.cells import HeldCells, check_bins
from securevfl.shares.two.kept import TwoModel
from securevfl.shares.two.programs import ProgramOfTwo, TwoActive, TwoPassive
from securevfl.training.active_role import ActiveRole
from securevfl.training.binned import BinnedAlgorithm, BinnedRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.state import State, as_dict, as_int

__all__ = ["CardOfTwo", "TwoCardActive", "TwoCardModel", "TwoCardPassive"]


_ROWS = "rows"


class TwoCardModel(CardModel, TwoModel):
    """A party's summands of all weights, the ends of its own bins, and how many rows trained.

    Args:
        role: whose columns are cut.
        cells: how its rows are encoded.
    """

    def __init__(self, role: BinnedRole, cells: HeldCells) -> None:
        super().__init__(role)
        self._cells = cells

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return as_dict(super().snapshot()) | {_ROWS: self._cells.rows}

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return super().get_state() | {_ROWS: self._cells.rows}

    def load_state(self, state: State) -> None:
        """See `CardModel.load_state`.

        Raises:
            InputError: bins, or a number of training rows, that this party's table does not give.
        """
        if as_int(state[_ROWS]) != self._cells.rows:
            raise InputError(
                f"the checkpoint is of {as_int(state[_ROWS])} training rows, and there are {self._cells.rows}: the "
                "table changed since; start the job again in another folder"
            )
        super().load_state(state)


class CardOfTwo(ProgramOfTwo):
    """What both parties' programs of a scorecard do alike."""

    binned: BinnedRole
    fed: HeldCells

    def make_dealer(self) -> HeldCells:  # type: ignore[override]
        """See `ProgramOfTwo.make_dealer`: cells of this party's bins."""
        self.binned = _require_bins(self.role)
        return HeldCells(self.binned)

    async def setup(self) -> None:
        """Cut this party's columns, then as for other models."""
        _cut_columns(self.role, self.binned, self.fed, self.sharing)
        await super().setup()  # type: ignore[misc]

    async def come_back(self, model: State) -> None:
        """Take this party's bins from its part of a trained model, then as for other models."""
        _take_bins(self.binned, self.fed, model["parts"])
        await super().come_back(model)  # type: ignore[misc]


class TwoCardActive(CardOfTwo, TwoActive):  # type: ignore[misc]
    """The active party's program."""

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.keep_model(TwoCardModel(self.binned, self.fed))


class TwoCardPassive(CardOfTwo, TwoPassive):  # type: ignore[misc]
    """The passive party's program."""

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.keep_model(TwoCardModel(self.binned, self.fed))


def _require_bins(role: Role) -> BinnedRole:
    """The role, with its bins.

    Raises:
        TypeError: it has none.
    """
    if not isinstance(role, BinnedRole):
        raise TypeError(f"a {type(role).__name__} has no bins to compute with")
    return role


def _take_bins(binned: BinnedRole, cells: HeldCells, parts: object) -> None:
    """Take this party's bins from its part of a trained model."""
    binned.cuts = list(cuts_of_model(parts))
    cells.rows = as_int(as_dict(as_dict(parts)["shares"])[_ROWS])


def _cut_columns(role: Role, binned: BinnedRole, cells: HeldCells, sharing: Sharing) -> None:
    """Cut the columns by the training rows, where the job trains, and check that no bin has too few of them.

    Raises:
        InputError: no column can be cut.
        PolicyError: a bin has too few rows.
    """
    if not sharing.trains:
        return
    binned.cut_training_rows()
    if not isinstance(sharing.algorithm, BinnedAlgorithm):
        raise InputError(f"a {type(sharing.algorithm).__name__} does not say how few rows a bin may have")
    rows = role.table.split.train
    check_bins(binned.find_bins(rows), binned.cuts, sharing.algorithm.least, role.site.name)
    cells.rows = len(rows)

"""Boosting's settings and message declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from securevfl.algorithms.boosting.directions import split_name
from securevfl.cut import CutUse, Paillier, Plain, Protection
from securevfl.errors import InputError, UnknownNameError
from securevfl.training.algorithm import Algorithm
from securevfl.training.plan import Budget, tree_budget
from securevfl.training.tree_terms import CELLS, TreeTerms, fit_bin_count
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["BoostingSettings"]

_LEAST_L2 = 2.0**-4
_LEAST_LR = 2.0**-10
_MOST_DEPTH = 7
_SIDES = Sight(of="features", severity="leak", through="on which side of chosen splits a row lies")
_CELLS = Sight(
    of="features", severity="leak", through="sums of gradients over bins, down to single rows", view="sums over bins"
)
_MERGED = Sight(
    of="features",
    severity="leak",
    through="sums of gradients over bins, of one tree after another",
    view="sums over merged bins",
)
_FULLEST = Sight(of="features", severity="note", through="which bin of a column has the most rows")
_CHOSEN = Sight(of="labels", severity="leak", through="which of its splits help to tell labels apart")
_NODES = Sight(of="labels", severity="leak", through="which rows stand in one node")
_LARGE = Sight(of="labels", severity="leak", through="which rows have large gradients")
_PART = "shares/open part"  # of `securevfl.shares.release_exchanges`, which stands above this room
_OWN_SPLITS = "the splits of the reader's own columns (tree, node, column and threshold)"
_HANDED: dict[PartyRole, str] = {
    ACTIVE: f"{_OWN_SPLITS}, and how many nodes of a tree are not its own; leaves stay in shares",
    PASSIVE: (
        f"{_OWN_SPLITS}, by which it ranks its rows by label better than its columns alone can, about as well as under "
        "Paillier with hidden nodes; and how many nodes of a tree are not its own. Leaves stay in shares"
    ),
}
"""What each receiver of its own splits learns."""
_GRADIENTS = Sight(of="labels", severity="leak", through="gradients of the loss")


class BoostingSettings(Algorithm):
    """The settings of boosting as roles use them: see `Boosting`."""

    lr: Annotated[float, Meta(gt=0, le=1)] = 0.1
    depth: Annotated[int, Meta(ge=1, le=12)] = 5
    leaves: Annotated[int, Meta(ge=0, le=4096)] = 0
    bins: Annotated[int, Meta(ge=2, le=255)] | None = None
    l1: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    l2: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    min_gain: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    min_hessian: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    rows: Annotated[float, Meta(gt=0, le=1)] = 1.0
    columns: Annotated[float, Meta(gt=0, le=1)] = 1.0
    goss: tuple[float, float] | None = None
    rising: tuple[str, ...] = ()
    falling: tuple[str, ...] = ()
    bits: Annotated[int, Meta(ge=6, le=24)] = 12
    nodes: Literal["hidden", "shown"] = "hidden"
    merge: Annotated[int, Meta(ge=1, le=1_000_000)] = 20

    def problems(self) -> list[str]:
        found = super().problems()
        if self.leaves == 1:
            found += ["boosting.leaves is 1; a tree of one leaf splits nothing: give 2 or more, or 0 for no bound"]
        if self.goss is not None:
            large, other = self.goss
            if not (0 < large < 1 and 0 < other <= 1 - large):
                found += [f"boosting.goss is {self.goss}; two positive shares of at most 1 together are needed"]
            if self.rows < 1:
                found += ["boosting.goss and boosting.rows both draw rows: leave one of them out"]
        for name in (*self.rising, *self.falling):
            if not split_name(name)[0]:
                found += [f"boosting.rising or boosting.falling names {name!r}: write it as 'party.column'"]
        for name in sorted(set(self.rising) & set(self.falling)):
            found += [f"boosting.rising and boosting.falling both name {name!r}: leave one of them out"]
        return found

    @property
    def title(self) -> str:
        return f"{self.label}, nodes shown" if self.nodes == "shown" else self.label

    def fit_budget(self, rows: int) -> Budget:
        return tree_budget(rows)

    @property
    def trainable(self) -> bool:
        return False

    def check_protection(self, protection: Protection) -> None:
        if protection.on_shares:
            self._check_on_shares(protection)
            super().check_protection(protection)
            return
        super().check_protection(protection)
        if type(protection) is not Paillier and not isinstance(protection, Plain):
            raise InputError(
                f"{self.title} adds up single rows under encryption, which is built for Paillier alone: use protection "
                f"'paillier' or 'plain' in the place of {protection.name!r}"
            )
        if isinstance(protection, Plain) and protection.fixed_point:
            raise InputError(f"{self.title} computes in the same integers either way: leave fixed_point out")
        dp = protection.dp
        if dp is not None and (dp.features or dp.gradient_noise):
            raise InputError(
                f"{self.title} has no noise on features or gradients: the noise on a sum would have to grow with the "
                "rows of a bin. Draw labels by dp=sv.DP(labels=sv.RandomisedResponse(…)), or leave dp out"
            )

    def _check_on_shares(self, protection: Protection) -> None:
        """Refuse what trees on shares cannot do.

        Raises:
            InputError: the setting, its bound and the cure.
        """
        rest = "or name protection 'paillier'"
        told = [
            (
                self.leaves > 0,
                f"boosting.leaves is {self.leaves}: which leaf is the best tells of the rows; leave it out, {rest}",
            ),
            (
                self.goss is not None,
                f"boosting.goss is {self.goss}: the rows that it picks tell labels; draw rows by boosting.rows, {rest}",
            ),
            (
                self.nodes == "shown",
                f"boosting.nodes is 'shown', and on shares nobody sees a node: leave it out, {rest}",
            ),
            (
                self.l1 > 0,
                f"boosting.l1 is {self.l1:g}, and on shares l2 alone is a penalty: set it to 0, {rest}",
            ),
            (
                self.l2 < _LEAST_L2,
                f"boosting.l2 is {self.l2:g}, and on shares it has to be {_LEAST_L2:g} or more, so that an empty node "
                f"has a denominator: raise it, {rest}",
            ),
            (
                self.lr < _LEAST_LR,
                f"boosting.lr is {self.lr:g}, and on shares it has to be {_LEAST_LR:g} or more, because leaves have 16 "
                f"fractional bits and would be rounded to nothing: raise it, {rest}",
            ),
            (
                self.depth > _MOST_DEPTH,
                f"boosting.depth is {self.depth}, and on shares it is at most {_MOST_DEPTH}, because traffic doubles "
                f"with each level: take {_MOST_DEPTH} or less, {rest}",
            ),
            (
                protection.changes_optimiser,
                "protection.lr, momentum and weight_decay are those of a network; the shrinkage of trees is "
                "boosting.lr: leave them out",
            ),
            (
                protection.dp is not None and protection.dp.model is not None,
                f"{self.title} has no noise on shares: draw labels by dp=sv.DP(labels=sv.RandomisedResponse(…)), or "
                "leave dp out",
            ),
        ]
        found = [text for wrong, text in told if wrong]
        if found:
            raise InputError(f"{self.title} cannot be trained on shares as set: {'; '.join(found)}")

    @property
    def tree_terms(self) -> TreeTerms:
        """What growing trees on shares has to know."""
        return TreeTerms(
            depth=self.depth,
            bins=self.bins or fit_bin_count(0, costly=True),
            l2=self.l2,
            min_gain=self.min_gain,
            min_hessian=self.min_hessian,
            rate=self.lr,
            rows=self.rows,
            columns=self.columns,
            own_start=self.begins_at_own_scores,
        )

    def bin_count(self, protection: Protection, rows: int) -> int:
        """The most bins of a column: as the job states, or what fits the protection's cost and the rows that train."""
        return self.bins or fit_bin_count(rows, costly=not isinstance(protection, Plain))

    @property
    def splits_own_columns(self) -> bool:
        """Whether trees split by the active party's columns too, and not only by those of its partners."""
        return True

    @property
    def begins_at_own_scores(self) -> bool:
        """Whether rows begin at scores of the active party's own model."""
        return False

    def shows_nodes(self, protection: Protection) -> bool:
        """Whether the active party sends passive parties the node of each row."""
        return not protection.is_sealed or self.nodes == "shown"

    def tells_rows(self, protection: Protection) -> bool:
        """Whether passive parties learn which rows a tree uses, so that nobody encrypts or adds up the others.

        Rows drawn by chance reveal no label. Rows chosen for large gradients do, as nodes do.
        """
        return self.goss is None or self.shows_nodes(protection)

    @property
    def most_splits(self) -> int:
        """The most splits of a tree."""
        whole = (1 << self.depth) - 1
        return min(whole, self.leaves - 1) if self.leaves else whole

    @property
    def most_summed(self) -> int:
        """The most nodes of a tree that are summed: those that may be split further."""
        return min((1 << self.depth) - 1, 1 + 2 * self.most_splits)

    @property
    def merges_small_bins(self) -> bool:
        """Whether passive parties merge small bins before they answer."""
        return self.nodes == "shown"

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        if protection.on_shares:
            told = protection.exchanges(CutUse(trainable=False), passive)
            return (*(_describe_splits(one) if one.step == _PART else one for one in told), *_shared_exchanges())
        sealed, shown = protection.is_sealed, self.shows_nodes(protection)
        ciphers, bits = (protection.ciphers, protection.key_bits) if sealed else (frozenset[str](), 0)
        sums = "sums of gradients over the rows of each of its bins"
        what = (
            f"of {self.merge} rows or more"
            if self.merges_small_bins
            else "where a bin has one row, its place in a column"
        )
        what += "; each sum is an equation, and from enough trees it computes which bin every row is in"
        found = [
            Exchange(
                "boost/columns",
                Kind.CONTROL,
                PASSIVE,
                ACTIVE,
                "how many bins its columns have",
                reveals="how many columns it has, how many distinct values up to the number of bins, and whether these "
                "are categories; which of them the job lets scores only rise or fall along",
            ),
            Exchange(
                "boost/next",
                Kind.CONTROL,
                ACTIVE,
                PASSIVE,
                "what to do next in a tree",
                reveals="how many nodes of a tree are summed at a time, and so roughly its shape",
            ),
            Exchange(
                "boost/gradients",
                Kind.CIPHERTEXT if sealed else Kind.GRADIENT,
                ACTIVE,
                PASSIVE,
                "gradients of the loss of each row",
                reveals="" if sealed else "the gradient of each row's loss, and with it the label",
                severity="ok" if sealed else "leak",
                ciphers=ciphers,
                key_bits=bits,
                sights=() if sealed else (_GRADIENTS,),
            ),
            Exchange(
                "boost/sums",
                Kind.CIPHERTEXT if sealed else Kind.STATISTIC,
                PASSIVE,
                ACTIVE,
                sums,
                reveals=f"{sums}, {what}",
                severity="leak",
                ciphers=ciphers,
                key_bits=bits,
                opened=Kind.STATISTIC if sealed else None,
                sights=(_MERGED if self.merges_small_bins else _CELLS,),
            ),
            Exchange(
                "boost/splits",
                Kind.CONTROL,
                ACTIVE,
                PASSIVE,
                "which of its splits were chosen",
                reveals="which of its own columns, thresholds and categories tell labels apart: enough to rank "
                "labels about as well as its columns can",
                severity="leak",
                sights=(_CHOSEN,),
            ),
            Exchange(
                "boost/sides",
                Kind.CONTROL,
                PASSIVE,
                ACTIVE,
                "on which side of its chosen splits each row lies",
                reveals="for each chosen split, which rows lie on either side of a threshold that it does not know",
                severity="leak",
                sights=(_SIDES,),
            ),
            Exchange(
                "boost/paths",
                Kind.CONTROL,
                PASSIVE,
                ACTIVE,
                "on which side of its splits each scored row lies",
                reveals="for each of its splits in the model, on which side each scored row lies",
                severity="leak",
                sights=(_SIDES,),
            ),
        ]
        if sealed:
            found += [
                Exchange("boost/key", Kind.PUBLIC_KEY, ACTIVE, PASSIVE, "public key"),
                Exchange(
                    "boost/fullest",
                    Kind.CONTROL,
                    PASSIVE,
                    ACTIVE,
                    "which bin of each column has the most rows",
                    reveals="which bin of each column has the most rows" + (" of a node" if shown else ""),
                    severity="note",
                    sights=(_FULLEST,),
                ),
            ]
        if self.columns < 1:
            found.append(
                Exchange(
                    "boost/drawn",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    "which of its columns a tree may split by, drawn by chance",
                )
            )
        if shown and self.goss is not None:
            found.append(
                Exchange(
                    "boost/rows",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    "which rows a tree sees",
                    reveals="which rows have large gradients and which do not: in the first trees these are rows of "
                    "the rarer label, later those whose label is a surprise",
                    severity="leak",
                    sights=(_LARGE,),
                )
            )
        if shown:
            found.append(
                Exchange(
                    "boost/nodes",
                    Kind.CONTROL,
                    ACTIVE,
                    PASSIVE,
                    "which row stands in which node",
                    reveals="which rows stand in one node, from which their labels can be ranked",
                    severity="leak",
                    sights=(_NODES,),
                )
            )
        return tuple(found)

    def column_mistakes(self, columns: Mapping[str, Sequence[str]]) -> list[str]:
        found = []
        for key in ("rising", "falling"):
            for name in getattr(self, key):
                party, column = split_name(name)
                if party not in columns:
                    found.append(
                        f"boosting.{key} names {name!r}, and no party is {party!r}: they are {', '.join(columns)}"
                    )
                elif column not in columns[party]:
                    found.append(str(UnknownNameError(f"boosting.{key}: column of {party!r}:", column, columns[party])))
        return found

    def notes(self, protection: Protection) -> list[str]:
        found = []
        if protection.is_sealed and self.shows_nodes(protection):
            found += ["passive parties see which rows stand in one node: from that they rank labels (nodes = 'hidden')"]
            if self.goss is not None:
                found += [
                    "passive parties see which rows goss picks for their large gradients: these tell labels, most of "
                    "all in the first trees (rows in the place of goss draws by chance)"
                ]
        elif self.goss is not None and protection.is_sealed:
            found += [
                "goss saves no work with hidden nodes: the rows that it picks tell labels, so all rows are sent, most "
                "of them as zeros (rows in the place of goss draws by chance, and saves)"
            ]
        return found


def _describe_splits(exchange: Exchange) -> Exchange:
    """The message with a party's part of the model, which is its own splits."""
    told = _HANDED.get(exchange.receiver, "") if exchange.reveals else ""
    sights = tuple(replace(one, through="its own splits") for one in exchange.sights)
    return replace(exchange, words="shares of the receiver's own splits", reveals=told, sights=sights)


def _shared_exchanges() -> tuple[Exchange, ...]:
    """The messages of trees on shares beside those of the protection."""
    what = (
        "how many bins each column has, which lack values, which are categories with few levels, and along which "
        "scores may only rise or fall"
    )
    told = (
        "how many distinct values up to the number of bins, which of them lack values, which are categories with few "
        "levels, and which of them the job lets scores only rise or fall along"
    )
    own, all_have = f"how many columns it has, {told}", f"how many columns each party has, {told}"
    return (
        Exchange(CELLS, Kind.CONTROL, PASSIVE, ACTIVE, f"of its columns: {what}", reveals=own),
        Exchange(CELLS, Kind.CONTROL, ACTIVE, PASSIVE, f"of all columns: {what}", reveals=all_have),
        Exchange(CELLS, Kind.CONTROL, ACTIVE, COORDINATOR, f"of all columns: {what}", optional=True),
    )

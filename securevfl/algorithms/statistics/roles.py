"""The roles of statistics: what each party computes of its own columns, and what the active party makes of the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import msgspec
import numpy as np
import torch

from securevfl.algorithms.additive.named import own_entries
from securevfl.algorithms.statistics.columns import (
    ONE,
    OwnColumns,
    clip_of,
    encode_scores,
)
from securevfl.algorithms.statistics.figures import ColumnNames, OwnFigures, compose_statistics
from securevfl.algorithms.statistics.noisy_columns import cut_privately, score_by_bins
from securevfl.algorithms.statistics.role import StatisticsRole
from securevfl.algorithms.statistics.settings import OWN
from securevfl.data.prepare.coded import CodedDate
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.privacy.noise import draw_gaussian
from securevfl.privacy.statistics_budget import StatisticsUses
from securevfl.training.active_role import ActiveRole
from securevfl.training.crossing import COLUMNS, LAYOUT, CrossPlan, read_layouts
from securevfl.training.passive_role import PassiveRole
from securevfl.training.rows import Trained
from securevfl.transport import Kind

__all__ = ["StatisticsActive", "StatisticsPassive"]

_MOST_NAMES = 1 << 22
_ROUNDED = 1000.0
"""Steps per unit to which a party rounds the exact correlations among its own columns."""


class StatisticsActive(StatisticsRole, ActiveRole):
    """The active party: it has the classes, and gets all statistics."""

    async def agree_layout(self, others: Sequence[Link]) -> CrossPlan:
        """Receive the passive parties' layouts and names, and send all layouts without names.

        Args:
            others: links to all other parties.

        Raises:
            InputError: a class has too few rows.
            ProtocolError: impossible layouts.
        """
        self.begin()
        self.site.clock.lap()
        self._count_classes()
        self.columns = OwnColumns(self.cut_exactly(), means=False)
        if self.budget is not None:
            score_by_bins(self.columns.columns)
        label = self._label_column()
        self.label_score = label
        own = self.columns.layout()
        own = msgspec.structs.replace(own, scores=own.scores + (label is not None), bins=(), missing=())
        layouts, self.names = [own], list[ColumnNames]()
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, COLUMNS)
            (layout,) = read_layouts(message.meta.get("layout"), name, 1)
            layouts.append(layout)
            self.names.append(_read_names(message.meta.get("names"), name))
            self.names[-1].check(layout, name)
        if not any(one.scores or one.bins for one in layouts[1:]):
            why = [
                f"{party}.{name!r}: {words}"
                for party, one in zip(self.site.passive, self.names, strict=True)
                for name, words in one.left_out.items()
            ]
            raise InputError(
                f"no column of another party can be described ({'; '.join(why) or 'none has declared levels'}): give "
                "columns whose values differ in more rows, or declare levels (statistics.levels)"
            )
        rows, classes = len(self.rows), len(self.class_counts)
        self.cross = self.config.plan_products(self.protection, rows=rows, classes=classes, layouts=layouts)
        meta: dict[str, str | int] = {
            "layouts": msgspec.json.encode(layouts).decode(),
            "rows": rows,
            "classes": classes,
        }
        await fan_out(others, lambda link: link.send(Kind.CONTROL, LAYOUT, meta=meta))
        return self.cross

    async def tell_own(self) -> None:
        """Receive the correlations among each passive party's own columns, if the job asks for them."""
        counts = [one.scores for one in self.cross.layouts[1:]]
        self.blocks = [await self._receive_own(*one) for one in zip(self.site.passive, counts, strict=True)]

    async def _receive_own(self, name: str, scores: int) -> np.ndarray | None:
        if not self.config.vif:
            return None
        message = await self.site.links[name].receive(Kind.STATISTIC, OWN, "correlations")
        found = np.asarray(message.arrays["correlations"])
        if found.dtype != np.float64 or found.shape != (scores, scores):
            raise ProtocolError(f"{name!r} sent correlations {found.dtype} {found.shape}; {(scores, scores)} expected")
        return found

    def _count_classes(self) -> None:
        self.class_counts = np.zeros(0, np.int64)
        if self.plan.number is not None:
            return
        labels = self.labels(self.rows).cpu().numpy()
        self.class_counts = np.bincount(labels[labels >= 0], minlength=self.table.classes)
        fewest = int(self.class_counts.min())
        if fewest < self.config.least:
            raise InputError(
                f"a class has {fewest} common rows, and statistics by class need {self.config.least} of each "
                "(statistics.least): find more rows, or merge classes"
            )

    def _label_column(self) -> np.ndarray | None:
        """Standardised labels, (n,), where the target is a number or has two classes."""
        if self.plan.number is None and len(self.class_counts) != 2:
            return None
        values = self.labels(self.rows).double().cpu().numpy()
        known = (values >= 0) if self.plan.number is None else ~np.isnan(values)
        scores = np.zeros(len(values))
        centred = values[known] - values[known].mean()
        spread = np.sqrt(np.square(centred).sum() / len(values))
        if not spread > 0:
            raise InputError("the label has one value alone among the common rows")
        scores[known] = centred / spread
        return scores

    def begin_release(self) -> None:
        """Count nothing: the active party releases nothing of its rows to others."""

    def score_matrix(self) -> np.ndarray:
        """Its columns z, the label's last, float64 (n, scores)."""
        parts = [self.columns.score_matrix()] if self.columns.columns else []
        parts += [self.label_score[:, None]] if self.label_score is not None else []
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(self.rows), 0))

    def matrix(self) -> np.ndarray:
        """Its rows, int64 (n, active width)."""
        scores = encode_scores(self.score_matrix(), clip_of(self.budget, self.cross.layouts[0].scores))
        labels = self.labels(self.rows).cpu().numpy() if len(self.class_counts) else np.zeros(len(self.rows))
        classes = labels[:, None] == np.arange(len(self.class_counts))
        return np.ascontiguousarray(np.concatenate([scores, classes.astype(np.int64)], axis=1))

    def take_sums(self, opened: np.ndarray) -> None:
        """Compute the statistics from the opened sums."""
        labels = None if not len(self.class_counts) else self.labels(self.rows).cpu().numpy()
        self.trained.statistics = compose_statistics(
            plan=self.cross,
            opened=opened,
            own=OwnFigures(
                party=self.site.name,
                columns=self.columns,
                scores=self.score_matrix(),
                labels=labels,
                class_counts=self.class_counts,
                has_label=self.label_score is not None,
            ),
            passive=list(zip(self.site.passive, self.names, self.blocks, strict=True)),
            settings=self.config,
            budget=self.budget,
            between_two=self.protection.between_two,
        )

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        """Not possible: nothing is trained."""
        raise InputError("statistics leave no model to score rows with")


class StatisticsPassive(StatisticsRole, PassiveRole):
    """A passive party: it sends column names and bin counts, and takes part in the sums.

    Attributes:
        numbers: how many numbers of each row the release counts as, without a budget.
    """

    def begin(self) -> None:
        """See `StatisticsRole.begin`; rows are counted, too.

        Raises:
            PolicyError: the party's policy allows no further number of a row, or less ε.
        """
        super().begin()
        budget = self.budget
        self.numbers = 1 if self.protection.on_shares else max(self.opened.columns, 1)
        if budget is None:
            self.opened.check_plan(self.numbers)
            return
        mechanism = self.protection.dp.model if self.protection.dp is not None else None
        if mechanism is None:
            raise InputError("the job has no dp.model, and so no budget of ε")
        self.uses = StatisticsUses(budget, self.books.release_rows())  # type: ignore[arg-type]
        self.releases.plan_release(self.uses, mechanism)
        self.releases.compose_over_jobs(self.spending, self.rows, self.features.find_places(self.rows))
        self.releases.begin_attempt(self.site.keeper.journal, 0, self.site.keeper.scope)

    async def agree_layout(self, others: Sequence[Link]) -> CrossPlan:
        """Cut this party's columns into bins, send their layout and receive those of all parties.

        Args:
            others: links to all other parties.

        Raises:
            ProtocolError: the active party sent another layout of this party's columns.
        """
        self.begin()
        self.site.clock.lap()
        budget = self.budget
        if budget is None:
            self.columns = OwnColumns(self.cut_exactly())
        else:
            self._count_use()
            ranges = own_entries(self.site.name, self.config.ranges)
            if unknown := sorted(ranges.keys() - set(self.table.encoded)):
                self.trained.notes.append(
                    f"statistics.ranges names {', '.join(unknown)} of {self.site.name!r}, and it has no such column of "
                    "numbers: noisy counts found the ranges of its columns"
                )
            kept = self._find_blind_columns()
            cut = cut_privately(
                [self.table.encoded[j] for j in kept],
                [self.table.codes[j] for j in kept],
                self.config.declared_levels(self.site.name),
                self.own_rows()[:, kept],
                bins=self.config.bins,
                ranges=ranges,
                budget=budget,
            )
            self.columns = OwnColumns(cut, means=False)
        own = self.columns.layout()
        meta = {"layout": msgspec.json.encode([own]).decode(), "names": ColumnNames.of(self.columns).encode()}
        await self.upstream.send(Kind.CONTROL, COLUMNS, meta=meta)
        message = await self.upstream.receive(Kind.CONTROL, LAYOUT)
        layouts = read_layouts(message.meta.get("layouts"), self.upstream.peer, 1 + len(self.site.passive))
        place = 1 + list(self.site.passive).index(self.site.name)
        told, agreed = (message.meta.get("rows"), message.meta.get("classes")), (len(self.rows), self.class_count)
        if layouts[place] != own or told != agreed:
            raise ProtocolError(
                f"{self.upstream.peer!r} sent another layout of the columns of {self.site.name!r}, or {told!r:.60} "
                f"rows and classes in the place of {agreed}; no row was sent"
            )
        rows, classes = agreed
        self.cross = self.config.plan_products(self.protection, rows=rows, classes=classes, layouts=layouts)
        if budget is None and self.protection.on_shares:
            self.numbers = self.cross.count_numbers(place, own=self.config.vif)
            self._check_numbers()
        return self.cross

    def _check_numbers(self) -> None:
        try:
            self.opened.check_plan(self.numbers)
        except PolicyError as error:
            if self.numbers == 1:
                raise
            raise PolicyError(
                f"{str(error).partition(', ever: ')[0]}, ever. Its sums, divided by {len(self.rows)} rows, count as "
                f"{self.numbers} numbers of each: leave columns out (drop), take fewer bins or vif = false, find more "
                "rows, add noise (dp.model), or ask for a grant"
            ) from error

    def _find_blind_columns(self) -> list[int]:
        """Columns whose codes do not depend on rows: numbers, and categories whose levels the job declares."""
        encoder = self.table.encoder
        dates = {
            name
            for one, encoding in ({} if encoder is None else encoder.columns).items()
            if isinstance(getattr(encoding, "how", None), CodedDate)
            for name in encoding.how.encoded_names(one)  # type: ignore[union-attr]
        }
        declared = self.config.declared_levels(self.site.name)
        kept = [
            j
            for j, (name, codes) in enumerate(zip(self.table.encoded, self.table.codes, strict=True))
            if name not in dates and (not codes or name in declared)
        ]
        out = [name for j, name in enumerate(self.table.encoded) if j not in kept]
        if out:
            self.trained.notes.append(
                f"{self.site.name!r} left out {', '.join(out)}: levels, and ends of dates, would come from its "
                "rows, which no budget covers; declare levels in statistics.levels"
            )
        return kept

    def _count_use(self) -> None:
        if self.uses is not None:
            self.uses.count_epoch(self.rows)

    def begin_release(self) -> None:
        """Count the numbers of each row, before anything of them is dealt."""
        if self.budget is None:
            self.opened.count_opening(self.features.find_places(self.rows), self.numbers)
            self.site.ledger.record_note("results", self.opened.ledger_facts())

    def matrix(self) -> np.ndarray:
        """Its rows, int64 (n, width)."""
        return self.columns.passive_matrix(clip_of(self.budget, len(self.columns.scored)))

    async def tell_own(self) -> None:
        """Send the correlations among this party's own columns, if the job asks for them."""
        if not self.config.vif:
            return
        budget, scores = self.budget, len(self.columns.scored)
        units = encode_scores(self.columns.score_matrix(), clip_of(budget, scores))
        found = (units.T @ units).astype(np.float64) / (len(self.rows) * float(ONE) ** 2)
        if budget is not None and scores:
            noise = draw_gaussian((scores, scores), budget.own_sigma(scores)).numpy() / len(self.rows)
            found = found + np.triu(noise) + np.triu(noise, 1).T
            np.fill_diagonal(found, 1.0)
        found = np.rint(found * _ROUNDED) / _ROUNDED if budget is None else np.rint(found * 1e6) / 1e6
        await self.upstream.send(Kind.STATISTIC, OWN, correlations=np.ascontiguousarray(found))

    async def finish(self) -> Trained:
        self.trained.statistics = describe_own(self.columns, exact=self.budget is None)
        if self.budget is not None:
            self.trained.notes.append(self.budget.summary_sentence())
        return await super().finish()

    async def answer(self, rows: np.ndarray) -> NoReturn:
        """Not possible: nothing is trained."""
        raise InputError("statistics leave no model to score rows with")


def _read_names(text: object, peer: str) -> ColumnNames:
    if not isinstance(text, str) or len(text) > _MOST_NAMES:
        raise ProtocolError(f"{peer!r} sent no names of its columns")
    try:
        return msgspec.json.decode(text.encode(), type=ColumnNames)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"{peer!r} sent impossible names of columns: {error}") from error


def describe_own(columns: OwnColumns, *, exact: bool) -> dict[str, object]:
    """A party's figures of its own columns, as plain values for its own report."""
    return {
        "own": [
            {
                "column": one.name,
                "kind": "numbers" if one.is_number else "categories",
                "missing": one.missing if exact else None,
                "mean": None if np.isnan(one.mean) else one.mean,
                "deviation": None if np.isnan(one.deviation) else one.deviation,
                "levels": [one.merge_labels(level) for level in range(len(one.levels))],
                "left_out": one.left_out,
            }
            for one in columns.columns
        ]
    }

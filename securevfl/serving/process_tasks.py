"""What a party's process does with its server: answer HTTP, or score all common rows once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np

from securevfl.agreement import Address
from securevfl.errors import InputError, PolicyError, RowsSpent
from securevfl.party import Alone, answer_price
from securevfl.process.bounds_reader import BoundsReader, tell_bounds
from securevfl.process.metrics import serve_metrics
from securevfl.serving.active import ServeActive
from securevfl.serving.helper import ServeHelper
from securevfl.serving.passive import ServePassive
from securevfl.serving.policy import SPENT, Refusal, ScoringRefused
from securevfl.serving.questions import BrokenOff, Outcome
from securevfl.serving.settings import ServingFile

if TYPE_CHECKING:
    from securevfl.serving.metrics import ServingMetrics

__all__ = ["Scored", "predict_all", "serve_http", "show_metrics"]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The active party's result of a prediction.

    Attributes:
        classes: their names; of a regression the target's alone.
        ids: identifiers of the rows, common rows first.
        probabilities: of each row, (classes,), or (1,) of a regression, in the target's units.
        used: of each row the parties whose columns it was scored from, the active one first.
        kept: how many rows were answered from what the party holds, without asking.
        older: how many of these answers are from before a partner's table changed.
        skipped: identifiers of the rows that were left out, because a party answers nothing more about them.
        refused: party → about how many of them.
        numbers: how many numbers of a row one answer costs; None where the algorithm does not count them.
    """

    classes: tuple[str, ...]
    ids: tuple[str, ...]
    probabilities: list[list[float]]
    used: tuple[tuple[str, ...], ...]
    kept: int = 0
    older: int = 0
    skipped: tuple[str, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    numbers: int | None = 1

    @property
    def asked(self) -> int:
        """How many rows the parties were asked about."""
        return sum(len(who) > 1 for who in self.used) - self.kept


_T = TypeVar("_T")
_ASKED = 10
"""How often a prediction is begun again because a partner was restarted."""
_NO_EXTRA = "answering HTTP needs more packages: pip install 'securevfl[serve]'"


@asynccontextmanager
async def serve_http(
    server: ServeActive, file: ServingFile, bounds: BoundsReader | None = None
) -> AsyncIterator[tuple[str, str]]:
    """Answer HTTP and show metrics as long as the block lasts; yields both addresses, the second empty without one.

    Args:
        server: whose model answers.
        file: its serving file.
        bounds: for metrics of what is left.

    Raises:
        InputError: the extra packages are not there, or a file or an address cannot be used.
    """
    try:
        from securevfl.serving.access import AccessControl
        from securevfl.serving.listening import serve_application
        from securevfl.serving.metrics import ServingMetrics
        from securevfl.serving.scoring import ScoringRouter
    except ImportError as error:
        raise InputError(f"{_NO_EXTRA} ({error.name} is missing)") from None
    from securevfl.serving.process import local_part
    from securevfl.serving.tokens import TokenFile

    http, metrics = file.http, ServingMetrics(server)
    tokens = None if http.tokens is None else TokenFile(file.folder / http.tokens)
    away = file.local is not None and file.local.away
    desk = ScoringRouter(server, local_part(file, server.place.name), away=away)
    front = AccessControl(desk, metrics, tokens=tokens, limits=file.limits)
    with ExitStack() as held:
        figures = ""
        if http.metrics is not None:
            place = Address.parse(http.metrics)
            port = held.enter_context(serve_metrics(metrics.registry, place.port, host=place.host))
            figures = f"http://{Address(place.host, port)}/metrics"
        async with _telling(bounds, metrics), serve_application(front, file) as address:
            yield f"{'http' if http.certificate is None else 'https'}://{address}", figures


@asynccontextmanager
async def show_metrics(
    server: ServeActive | ServePassive | ServeHelper, port: int, bounds: BoundsReader | None = None
) -> AsyncIterator[str]:
    """Show the metrics of a party that answers no HTTP, as long as the block lasts; yields their address.

    Args:
        server: the party's.
        port: on the loopback address; 0 for one that is free.
        bounds: for metrics of what is left.

    Raises:
        InputError: the extra packages are not there, or the port cannot be opened.
    """
    try:
        from securevfl.serving.metrics import ServingMetrics
    except ImportError as error:
        raise InputError(f"metrics need more packages: pip install 'securevfl[serve]' ({error.name})") from None
    metrics = ServingMetrics(server)
    with serve_metrics(metrics.registry, port) as opened:
        async with _telling(bounds, metrics):
            yield f"http://127.0.0.1:{opened}/metrics"


@asynccontextmanager
async def _telling(bounds: BoundsReader | None, metrics: ServingMetrics) -> AsyncIterator[None]:
    if bounds is None:
        yield
        return
    telling = asyncio.ensure_future(tell_bounds(bounds, metrics.bounds_changed))
    try:
        yield
    finally:
        telling.cancel()


async def predict_all(
    server: ServeActive | ServePassive | ServeHelper,
    task: asyncio.Task[None],
    *,
    everyone: bool = False,
    skip_spent: bool = False,
    ask_again: bool = False,
    deliver: Callable[[Scored], None] = lambda scored: None,
) -> Scored | None:
    """Score all common rows once; at a passive party, take part until the active one is done.

    The active party asks about no row whose answer it holds, and about none at all if a party would refuse some.

    Args:
        server: the party's, which runs.
        task: in which it runs.
        everyone: at the active party, whether it then scores its other rows alone.
        skip_spent: at the active party, whether to leave out the rows about which a party answers nothing more.
        ask_again: at the active party, whether to ask about rows whose answers it holds, too.
        deliver: receives the scores at the active party before any other party may end: to write them.

    Returns:
        The scores at the active party, None elsewhere, or if the prediction was over before this process began.

    Raises:
        InputError: the parties' parts are not of one model, or the algorithm is not fit for rows of one party.
        RowsSpent: a party answers nothing more about some rows.
        ScoringRefused: a party's serving policy forbids it.
        SecureVFLError: whatever ended it.
    """
    if everyone:
        if server.place.job.protection.on_shares and not server.place.job.algorithm.alone_on_shares:
            raise InputError("the model is in shares, so no party can score rows alone: leave --everyone out")
        server.place.job.algorithm.check_subset((), server.place.passive)
    if not isinstance(server, ServeActive):
        await task
        return None
    working = asyncio.ensure_future(
        _all_scores(server, deliver, everyone=everyone, skip_spent=skip_spent, ask_again=ask_again)
    )
    await asyncio.wait({task, working}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        task.result()
        if server.was_over:
            return None
        raise PolicyError("the server ended before the prediction was done")
    found = working.result()
    await task  # until the others have received the end
    return found


async def _all_scores(
    server: ServeActive, deliver: Callable[[Scored], None], *, everyone: bool, skip_spent: bool, ask_again: bool
) -> Scored:
    await server.wait_for_session()
    if server.problem:
        await server.finish()
        raise InputError(server.problem)
    names = sorted(server.common_customers)
    held = {} if ask_again else server.held_answers(names)
    outcomes: dict[str, Outcome] = {name: values for name, (values, _) in held.items()}
    rest = [name for name in names if name not in held]
    # All parties first: if some rows would be refused, no number may have been spent on the others.
    refused = await _repeat(server, lambda: server.find_refusals(rest)) if rest else {}
    if not _stops(refused, skip_spent=skip_spent):
        asked = [name for name in rest if name not in refused]
        outcomes |= refused | await _repeat(server, lambda: _ask_rest(server, asked, anew=ask_again))
        server.sync_answers()
    classes, model = server.classes, server.shelf.committed
    wrong = {name: one for name, one in (refused | outcomes).items() if isinstance(one, Refusal)}
    if _stops(wrong, skip_spent=skip_spent):
        await _repeat(server, server.finish)
        _raise_refusals(wrong, len(names))
    scored = [name for name in names if name not in wrong]
    rows = [outcomes[name].tolist() for name in scored]  # type: ignore[union-attr]
    place = server.place
    used = [(place.active, *place.passive)] * len(rows)
    if everyone and model is not None:
        others = [row for row, name in enumerate(server.table.ids) if name not in server.common_customers]
        alone = Alone(server.table, place.job, server.shelf.read_part(model.run).tree)
        rows += alone.scores(np.array(others, np.int64)).tolist()
        scored += [server.table.ids[row] for row in others]
        used += [(place.active,)] * len(others)
    found = Scored(
        classes=classes,
        ids=tuple(scored),
        probabilities=rows,
        used=tuple(used),
        kept=len(held),
        older=sum(older for _, older in held.values()),
        skipped=tuple(wrong),
        refused=Counter(one.party for one in wrong.values()),
        numbers=answer_price(place.job, place.passive, len(classes)),
    )
    deliver(found)
    await _repeat(server, server.finish)
    return found


async def _ask_rest(server: ServeActive, names: Sequence[str], *, anew: bool) -> dict[str, Outcome]:
    """Customer → outcome; a batch that was answered before a session broke off is not asked again, unless `anew`."""
    found: dict[str, Outcome] = {} if anew else {name: one for name, (one, _) in server.held_answers(names).items()}
    rest = [name for name in names if name not in found]
    return found | dict(zip(rest, await server.scores(rest, again=True), strict=True))


async def _repeat(server: ServeActive, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask, and ask again in the next session if a partner's process ends meanwhile.

    Raises:
        BrokenOff: too often.
        SecureVFLError: whatever else ended it.
    """
    for _ in range(_ASKED):
        try:
            return await ask()
        except BrokenOff:
            await server.wait_for_session()
    return await ask()


def _stops(refused: Mapping[str, Outcome], *, skip_spent: bool) -> bool:
    """Whether refusals end a prediction."""
    return any(isinstance(one, Refusal) and not (skip_spent and one.rule == SPENT) for one in refused.values())


def _raise_refusals(refused: Mapping[str, Refusal], rows: int) -> NoReturn:
    """Raise the refusals of rows.

    Raises:
        ScoringRefused: some rule other than the bound of numbers.
        RowsSpent: the bound of numbers.
    """
    other = next((one for one in refused.values() if one.rule != SPENT), None)
    if other is not None:
        raise ScoringRefused(other)
    raise RowsSpent(Counter(one.party for one in refused.values()), spent=len(refused), rows=rows)

"""One party's whole program: consent, alignment, numbering, training and prediction, on its own table and links.

A simulation runs one such program for each party over memory; a process runs one over a network. None of these
functions sees another party's table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from securevfl_net.errors import fault_behind

from securevfl.align import Alignment, check_fields
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.data.snapshots import describe_snapshots, find_ending
from securevfl.errors import InputError, MachineFault, PeerEnded, PolicyError
from securevfl.export.drift import count_columns, count_scores
from securevfl.export.raw_columns import raw_columns
from securevfl.party.aligning import Alignments, align_party, only_links, with_link_weights
from securevfl.party.candidate_keeper import CandidateKeeper
from securevfl.party.candidates import agreed_candidates, candidate_ends
from securevfl.party.choosing import Candidate, agree_choice, leave_epsilon
from securevfl.party.consent import exchange_consent
from securevfl.party.default_protection import refuse_unnamed
from securevfl.party.diverging import DIVERGENCE, agree_diverged, explain_all_diverged, settle_candidate
from securevfl.party.eligibility import check_labels, check_roster, too_many_classes
from securevfl.party.job import Job
from securevfl.party.ledger_heads import exchange_ledger_heads
from securevfl.party.liveness import run_with_liveness
from securevfl.party.numbering import agree_rows, coded_columns, encode_features, fit_rows, number_rows
from securevfl.party.planning import plan_epsilon
from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Accountant, Ledger, Spent
from securevfl.privacy.outcomes import BoundBroken
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.training import (
    ActiveProgram,
    HelperProgram,
    NumberedRows,
    PassiveProgram,
    Plan,
    Program,
    Setting,
    Split,
    Trained,
)
from securevfl.training.calibration import FEWEST_TO_CHOOSE
from securevfl.training.program import StagedProgram
from securevfl.transport import PASSIVE

__all__ = [
    "Alignments",
    "align_party",
    "consent_party",
    "helping_program",
    "note_spent",
    "predict_party",
    "run_and_close",
    "run_party",
    "scoring_program",
    "train_party",
]

T = TypeVar("T")

FEWER = "fewer parties"
"""The ledger's note that some of a model's parties aligned and scored rows without the others: they learn which rows
they share, whether the others have them or not.
"""


async def run_party(site: PartyContext, table: PartyTable | None, job: Job) -> Trained:
    """Run one party's part in a job, from consent to the trained model.

    Args:
        site: its context, linked with every other party.
        table: the party's table; None at a coordinator.
        job: what all parties agreed to run.

    Raises:
        PolicyError: this party's policy forbids the job, or a peer refuses it.
        AlignmentError: no common rows, or the parties do not agree which they are.
        InputError: a table that the job cannot use.
        ProtocolError: a peer sent what no part of the job declares.
    """
    await consent_party(site, table, job)
    return await train_party(site, table, await align_party(site, table, job), job)


async def consent_party(
    site: PartyContext,
    table: PartyTable | None,
    job: Job,
    *,
    among: Sequence[str] = (),
    pairwise: bool = False,
    classes: int = 0,
    predicts: bool = False,
) -> None:
    """Check the job against the party's policy, send the decision to the peers, and receive theirs; see `consent`.

    Args:
        site: its place.
        table: the party's table; None at a coordinator.
        job: the job to consent to.
        among: all passive parties that the job's model was trained with, where fewer take part in a prediction.
        pairwise: whether fewer are going to, in what follows.
        classes: how many classes the label has, where the parties agreed on that; 0 otherwise.
        predicts: whether the job is trained, and rows are predicted by its model.

    Raises:
        InputError: parties that the algorithm cannot serve.
        PolicyError, ProtocolError: see `consent`.
    """
    _check_fit(site, table, job, among or site.passive)
    if job.link is not None and table is not None and site.passive:
        check_fields(job.link, table.link, site.name)
    book, columns = pairwise or (table is not None and table.book is not None), 0 if table is None else table.values
    await exchange_consent(site, job, book=book, among=among, columns=columns, classes=classes, predicts=predicts)
    if site.role == PASSIVE:
        _note_grants(site)
    if len(among) > len(site.passive):
        missing = ", ".join(name for name in among if name not in site.passive)
        site.ledger.record_note(FEWER, {"parties": ", ".join((*site.label_owners, *site.passive)), "without": missing})


def _check_fit(site: PartyContext, table: PartyTable | None, job: Job, passive: Sequence[str]) -> None:
    """Refuse labels and parties that the job is not for; of a choice, that any candidate is not for.

    Raises:
        InputError: see `check_labels`, `check_roster` and `too_many_classes`.
        PolicyError: the party's own table has fewer rows than the algorithm needs.
    """
    check_labels(table, job)
    check_roster(site.label_owners, passive, job, site.coordinator)
    if table is not None and (why := job.algorithm.refuse_rows(table.rows)):
        raise PolicyError(f"{site.name!r} refuses: its table has {table.rows} rows, so no more are common, and {why}")
    for name, one in agreed_candidates(job).items() if job.algorithm.chooses else ():
        why = too_many_classes(one, site.name, 0 if table is None else len(table.classes))
        try:
            check_labels(table, one)
            check_roster(site.label_owners, passive, one, site.coordinator)
        except InputError as error:
            why = str(error)
        if why:
            raise InputError(f"algorithm is 'auto', and {name!r} cannot be tried: {why}")


def _note_grants(site: PartyContext) -> None:
    """Write the grants that allow the askers of this run more into the ledger."""
    now = time.time()
    for asker in dict.fromkeys(map(site.organisation_of, site.label_owners)):
        for grant in site.results.grants(asker):
            if now < grant.until:
                site.ledger.record_note("grant", {**msgspec.structs.asdict(grant)})


async def train_party(
    site: PartyContext, table: PartyTable | None, alignments: Alignments, job: Job, *, split: Split | None = None
) -> Trained:
    """Number this party's rows with the others', then run its program in the algorithm.

    Args:
        site: its place.
        table: the party's table; None at a coordinator.
        alignments: its own, verified.
        job: the job.
        split: at an active party without peers, which of its rows train, validate and test.

    Raises:
        AlignmentError: rows that were not verified with every peer.
        SecureVFLError: the training failed.
    """
    _check_fit(site, table, job, site.passive)
    refuse_unnamed(job, site.passive)
    if table is None and only_links(job, site):
        return Trained()
    if job.algorithm.chooses:
        return await _train_candidates(site, table, alignments, job, split=split)
    ready = await _prepare_party(site, table, alignments, job, split=split)
    trained = await _run_program(site, ready.program)
    return ready.complete(trained, site.notes)


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A party's program for a job, and what its result is completed with.

    Attributes:
        program: not yet run.
        job: what it trains.
        table: the party's; None at a party without data.
        encoder: of its columns.
        fit_on: places of the rows that the encoder was fitted on.
        rows: label owner → the party's numbered rows.
        classes: of the label.
    """

    program: Program
    job: Job
    table: PartyTable | None = None
    encoder: FeatureEncoder | None = None
    fit_on: np.ndarray = field(default_factory=lambda: np.arange(0), repr=False)
    rows: Mapping[str, NumberedRows] = field(default_factory=dict, repr=False)
    classes: int = 0

    def complete(self, trained: Trained, notes: Sequence[str]) -> Trained:
        """The program's result, with what the party alone knows of it."""
        table, encoder = self.table, self.encoder
        if table is None or encoder is None:
            return trained
        if trained.model:
            names = [table.label_name or "prediction"] if self.classes == 1 else list(map(str, table.classes))
            names = [] if table.label is None else names
            trained.model |= {"encoder": encoder.state(), "classes": self.classes, "names": names}
            trained.model |= _count_for_drift(self.job, table, self.fit_on, encoder, _scores_to_compare(trained))
        _with_labels(trained, table, next(iter(self.rows.values()), None))
        trained.prepared = encoder.lines
        trained.notes += notes
        return trained


async def _prepare_party(
    site: PartyContext,
    table: PartyTable | None,
    alignments: Alignments,
    job: Job,
    *,
    split: Split | None = None,
    own: PartyContext | None = None,
) -> _Ready:
    """Number the party's rows, encode its columns and make its program.

    Args:
        site: the party's context, for what all candidates of a job have in common: which rows train.
        table: the party's table; None at a party without data.
        alignments: its own.
        job: what the program trains.
        split: see `train_party`.
        own: the program's context; `site` unless given.
    """
    own = own or site
    if table is None:
        return _Ready(program=job.protection.program(job.algorithm, own, job.plan, {}), job=job)
    if site.name in alignments:
        table = with_link_weights(table, alignments[site.name])
    members = {owner: site.federation(owner) for owner in alignments}
    agreed = {}
    for owner, member in members.items():
        alignments[owner].require_verified(member)
        evaluates = owner == site.label_owners[0]
        alone = replace(member, owners=site.owners)  # how rows are split depends on who else has labels
        agreed[owner] = await agree_rows(alone, table, alignments[owner], job, evaluates=evaluates, split=split)
    fit_on = np.concatenate([fit_rows(alignments[owner], agreed[owner]) for owner in members])
    first = own.keeper.first_part
    if first is None:
        encoder = encode_features(table, fit_on, job, own.secret)
    else:
        encoder = FeatureEncoder.from_state(first["encoder"])
        own.notes.append(_describe_start(site.name))
    if site.role == PASSIVE and not len(table.persons) and (ending := find_ending(table.ids)):
        own.notes.append(describe_snapshots(f"the table of {site.name!r}", ending))
    members = {owner: own.federation(owner) for owner in alignments}
    tables = {
        owner: number_rows(member, table, alignments[owner], job, agreed[owner], encoder)
        for owner, member in members.items()
    }
    if site.observer.listening:
        for owner, rows in tables.items():
            site.observer.rows_numbered(site.name, owner, rows)
    settings = {
        owner: Setting(
            site=member, plan=job.plan, protection=job.protection, table=tables[owner], widest=_widest_before(member)
        )
        for owner, member in members.items()
    }
    return _Ready(
        program=job.protection.program(job.algorithm, own, job.plan, settings),
        job=job,
        table=table,
        encoder=encoder,
        fit_on=fit_on,
        rows={owner: tables[owner] for owner in site.label_owners[:1] if owner in tables},
        classes=next(iter(agreed.values())).classes,
    )


async def _run_program(site: PartyContext, program: Program) -> Trained:
    with _noted_on_error(site, [program]):
        return await program.run()


@contextmanager
def _noted_on_error(site: PartyContext, programs: Sequence[Program]) -> Iterator[None]:
    """Note what these programs released in the ledger if the block fails: it cost that much, however the run ended."""
    try:
        yield
    except BaseException as error:
        with _attach_error(error, "what was released until then could not be noted in the ledger"):
            note_spent(site.ledger, [one for program in programs for one in program.privacy_spent()])
            for program in programs:
                program.record_opened_values()
        raise


async def _train_candidates(
    site: PartyContext, table: PartyTable | None, alignments: Alignments, job: Job, *, split: Split | None
) -> Trained:
    """Train the candidates of a choice one after the other, and test the one that the active party keeps.

    A candidate whose training diverges, at whichever party, is left out by all of them. An attempt that resumes takes
    each candidate that was over from its last checkpoint: it is set up again, and trains no further. One that diverged
    in an earlier attempt is left out, and counted is what it released then.
    """
    jobs = agreed_candidates(job)
    ready: dict[str, _Ready] = {}
    tried: dict[str, Candidate] = {}
    programs: list[Program] = []
    mine = site.role != PASSIVE
    shares = [plan_epsilon(one, mine=mine, passive=len(site.passive)).epsilon for one in jobs.values()]
    links = [link for link in site.other_links if link.peer != site.coordinator or not only_links(job, site)]
    left_out = dict(site.keeper.read_diverged())
    if told := await agree_diverged(left_out, jobs, links):
        left_out |= told
        site.keeper.store_diverged(left_out)
    with _noted_on_error(site, programs):
        for (name, one), end in zip(jobs.items(), candidate_ends(job), strict=True):
            keeper = CandidateKeeper(site.keeper, name, end - one.plan.epochs, one.plan.epochs)
            secret = PartySecret(int.from_bytes(site.secret.keystream(32, "candidate", name), "big"))
            policy = leave_epsilon(site.policy, shares, [one.planned_epsilon for one in programs])
            own = replace(site, keeper=keeper, secret=secret, policy=policy, notes=[])
            ready[name] = await _prepare_party(site, table, alignments, one, split=split, own=own)
            program = ready[name].program
            if not isinstance(program, StagedProgram):
                raise InputError(
                    f"{one.algorithm.title} tests while it trains, so it cannot be a candidate of a choice"
                )
            programs.append(program)
            if name in left_out:
                program.count_earlier()
                continue
            tried[name] = Candidate(one, program, own.notes)
            site.observer.phase(f"candidate {name}")
            for link in links:
                link.begin_part(name)
            why = await settle_candidate(name, await _train_candidate(site, tried[name], name, left_out), links)
            if why:
                site.ledger.drop_checks()  # its numbers are used by nobody
                left_out[name] = why
                del tried[name]
                site.keeper.store_diverged(left_out)
            site.ledger.catch_up()
        for name in left_out:
            site.ledger.record_note("candidate diverged", {"name": name})
        if not tried:
            raise explain_all_diverged(left_out)
        choice = await agree_choice(
            site, tried, classes=max((one.classes for one in ready.values()), default=0), links=links, left_out=left_out
        )
        site.ledger.record_note("candidate kept", {"name": choice.kept, "of": ", ".join(tried)})
        kept = tried[choice.kept]
        site.clock.lap()  # what the others took since is no part of its test
        trained = await kept.program.finish()
    for program in programs:
        if program is not kept.program:
            trained.spent += program.privacy_spent()
            program.record_opened_values()
    trained.choice = choice.summary
    return ready[choice.kept].complete(trained, [*site.notes, *kept.notes])


async def _train_candidate(site: PartyContext, candidate: Candidate, name: str, left_out: Mapping[str, str]) -> str:
    """Train a candidate: why it diverged, empty if it did not. That is kept beside those `left_out` before it, and
    before a peer learns it: an attempt that resumes must not train it again."""
    try:
        await candidate.train()
        site.ledger.catch_up()
    except BoundBroken:
        raise
    except DIVERGENCE as error:
        site.ledger.drop_checks()
        why = " ".join(str(error).split())
        site.keeper.store_diverged({**left_out, name: why})
        return why
    return ""


def _describe_start(party: str) -> str:
    return (
        f"training of {party!r} began from an earlier model, with its encoding of columns: rows that trained it may be "
        "among the validation and test rows now, whose figures are then too good; a column of folds keeps them apart"
    )


def _count_for_drift(
    job: Job, table: PartyTable, rows: np.ndarray, encoder: FeatureEncoder, scores: np.ndarray
) -> dict[str, object]:
    """The party's counts of its own training rows by bin, and of known scores, to compare later rows with.

    They stay in the party's part of the model and no message has them. Where even the bins of a column must not depend
    on exact rows, none are kept: the part would no longer be covered by ε.
    """
    if job.algorithm.encodes_blindly(job.protection):
        return {}
    kept: dict[str, object] = {"training counts": count_columns(raw_columns(encoder, table, rows))}
    if len(scores) >= FEWEST_TO_CHOOSE:
        kept["score counts"] = count_scores(scores)
    return kept


def _scores_to_compare(trained: Trained) -> np.ndarray:
    """Scores with which later ones are compared: of the validation rows, or of the test rows where no others were
    opened, as on shares. None where classes alone were."""
    scores = trained.valid_scores if len(trained.valid_scores) else trained.scores
    only_classes = scores.ndim == 2 and scores.shape[1] > 1 and len(scores) and scores.max(axis=1).min() == 1.0
    return scores[:0] if only_classes else scores


def _widest_before(site: PartyContext) -> int:
    """The largest width that a party fed the cut which has left since: a checkpoint's shares are sized by it."""
    saved = site.keeper.load() if site.gone else None
    found = None if saved is None else saved.get("widest")
    return found if isinstance(found, int) else 0


def _with_labels(trained: Trained, table: PartyTable, rows: NumberedRows | None) -> None:
    """Add the labels of the test rows, with which the first label owner evaluates them, and of the validation rows."""
    if rows is None or rows.y is None:
        return
    if trained.statistics:
        trained.classes, trained.target = tuple(map(str, table.classes)), table.label_name
    if not len(trained.scores):
        return
    trained.labels = rows.y[torch.from_numpy(rows.split.test)].cpu().numpy()
    trained.valid_labels = rows.y[torch.from_numpy(rows.split.valid)].cpu().numpy()
    trained.weight = None if rows.weight is None else rows.weight[torch.from_numpy(rows.split.test)].numpy()
    trained.classes, trained.target = tuple(map(str, table.classes)), table.label_name


async def predict_party(
    site: PartyContext, table: PartyTable | None, alignment: Alignment | None, job: Job, model: Mapping[str, Any]
) -> np.ndarray:
    """This party's part in predicting the aligned rows, all of them, once; see `scoring_program`.

    Args:
        site: its context, with one label owner.
        table: the party's table; the active party needs no labels. None at a coordinator.
        alignment: its own, verified. None at a coordinator.
        job: that trained the model.
        model: this party's part of it.

    Returns:
        Probabilities of the aligned rows at the active party, (n, classes); nothing at the others, (0, classes).

    Raises:
        PolicyError: as in training, and before anything is sent: the party's policy allows less than the plan spends.
        InputError: other columns than in training.
    """
    if table is None or alignment is None:
        helper = helping_program(site, job, model)
        return await helper.predict(dict(model), np.arange(0))
    program = scoring_program(site, table, alignment, job, model)
    found = await program.predict(dict(model), np.arange(len(alignment.rows)))
    note_spent(site.ledger, program.privacy_spent())
    program.record_opened_values()
    return found


def scoring_program(
    site: PartyContext, table: PartyTable, alignment: Alignment, job: Job, model: Mapping[str, Any]
) -> ActiveProgram | PassiveProgram:
    """Build the program that scores aligned rows with a trained model at one party, encoded as in training.

    With noise, predicting a row releases it once more. Noise on activations repeats if the same row is predicted with
    the same features, so another score discloses nothing more; noise on z is drawn independently for each score.

    Args:
        site: its context, with one label owner.
        table: its own; the active party needs no labels.
        alignment: its own, verified with all peers that have a table.
        job: that trained the model.
        model: this party's part of it.

    Returns:
        The program; call its `come_back` to the model, or `predict`, before it scores.

    Raises:
        AlignmentError: rows that were not verified with every peer.
        PolicyError: the party's policy allows less than the plan spends.
        InputError: other columns than in training.
    """
    member = site.federation(site.active)
    alignment.require_verified(member)
    encoder = FeatureEncoder.from_state(model["encoder"])
    x = torch.from_numpy(encoder.transform(table, alignment.rows))
    rows, classes = np.arange(len(x)), int(model["classes"])
    y = None if site.role == PASSIVE else torch.full((len(x),), -1)
    names = table.ids_of(alignment.rows)
    mine = NumberedRows(
        x=x,
        **coded_columns(encoder),
        split=Split(rows[:0], rows[:0], rows),
        name=site.name,
        names=table.persons_of(alignment.rows) if site.role == PASSIVE else (),
        columns=table.values,
        y=y,
        classes=classes,
    )
    if site.observer.listening:
        site.observer.rows_numbered(site.name, site.active, mine)
    repeated = _repeated_noise(model, names)
    setting = Setting(
        site=member,
        plan=_plan_of(job, model),
        protection=job.protection,
        table=mine,
        repeated=repeated,
        trained_with=tuple(map(str, model.get("passive", ()))),
        widest=int(model.get("widest", 0)),
    )
    program: ActiveProgram | PassiveProgram = job.protection.scorer(job.algorithm, site, setting, model)
    return program


def helping_program(site: PartyContext, job: Job, model: Mapping[str, Any]) -> HelperProgram:
    """The program by which a party without data takes part in scoring rows.

    Args:
        site: its context, linked with all parties.
        job: that trained the model.
        model: this party's part of it.

    Raises:
        InputError: a protection under which such a party has no part of a model.
    """
    program: HelperProgram = job.protection.helper_program(job.algorithm, site, _plan_of(job, model))
    return program


def _plan_of(job: Job, model: Mapping[str, Any]) -> Plan:
    """The plan of the trained model: its number of uses of a row, since a prediction has no training rows to derive it
    from.
    """
    return replace(job.plan, batch_size=int(model["batch_size"]), epochs=int(model["times"]), steps=None)


def _repeated_noise(model: Mapping[str, Any], names: Sequence[str]) -> RepeatedNoise | None:
    """The source of repeatable noise on predicted rows; None if the job has no noise on rows.

    Raises:
        InputError: a part of a model whose secret is damaged.
    """
    key = model.get("noise key")
    if key is None:
        return None
    try:
        return RepeatedNoise(bytes.fromhex(key), names)
    except (TypeError, ValueError) as error:
        raise InputError(f"the secret that noise on predictions is made from is damaged: {error}") from None


async def run_and_close(site: PartyContext, work: Awaitable[T]) -> T:
    """Run a party's `work` with liveness checks on its links and exchange signed ledger heads with all peers. Close the
    ledger and the links at the end, also after an error; but not the links after a fault of this machine, because peers
    would take their end for the job's: they wait until this party is back.

    Raises:
        ProtocolError: a peer was silent for too long, or sent a message that nothing reads.
    """
    try:
        result = await run_with_liveness(site, _finish_work(site, work))
        site.ledger.close("done")
    except BaseException as error:
        outcome = f"failed: {type(error).__name__}: {error}"
        if isinstance(error, asyncio.CancelledError | PeerEnded):
            outcome = "cancelled: another party failed, or the run was interrupted"
        with _attach_error(error, "the ledger could not be closed"):
            site.ledger.close(outcome)
        if not isinstance(error, MachineFault) and fault_behind(error) is None:
            site.close()
        raise
    site.close()
    return result


@contextmanager
def _attach_error(error: BaseException, what: str) -> Iterator[None]:
    """Attach an error inside the block to the error that ends the run, instead of replacing it."""
    try:
        yield
    except Exception as second:
        error.add_note(f"besides, {what}: {type(second).__name__}: {second}")


async def _finish_work(site: PartyContext, work: Awaitable[T]) -> T:
    result = await work
    if isinstance(result, Trained):
        note_spent(site.ledger, result.spent)
    await exchange_ledger_heads(site)
    return result


def note_spent(ledger: Ledger, spent: Sequence[Spent]) -> None:
    """Write these releases of the ledger's party, and what they cost together, into it."""
    if not spent:
        return
    accountant = Accountant(ledger.party, max(one.delta for one in spent))
    for one in spent:
        release = {f"release.{name}": value for name, value in asdict(one.release).items()}
        kind = type(one.release).__name__
        ledger.record_note("epsilon", _only_scalars({**asdict(one), "release.kind": kind, **release}))
        accountant.add(one.release, one.protects)
    for total in accountant.compute_totals():
        ledger.record_note("epsilon total", _only_scalars(asdict(total)))


def _only_scalars(values: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}

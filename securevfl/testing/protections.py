"""`check_protection`: the contract of a protection and of both sides of its cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from securevfl.cut import CutSpec, CutUse, Protection
from securevfl.errors import SecureVFLError
from securevfl.party_context import PartyContext
from securevfl.privacy import DP, READABLE_KINDS, Gaussian, JointNoise, Policy, Releases, strip_noise_mark
from securevfl.testing.cut_run import SPEC, WIDTHS, CutBatch, CutRun, make_batches, run_cut
from securevfl.testing.failure import CheckFailed
from securevfl.testing.linear_reference import LinearReference
from securevfl.testing.refusals import check_cut_alone, check_cut_refusals
from securevfl.transport import Exchange, Exchanges, Kind, PartyRole

__all__ = ["check_protection"]

_USES: tuple[tuple[CutSpec, int], ...] = (
    (replace(SPEC, trainable=True), 3),
    (replace(SPEC, trainable=False), 2),
    (replace(SPEC, trainable=True, momentum=0.8, weight_decay=0.02), 2),
    (replace(SPEC, trainable=True, reduce="none"), 2),
    (replace(SPEC, trainable=False, reduce="none", momentum=0.5, integer_shares=True), 1),
)
"""Cuts that algorithms use, with the number of passive parties to try."""


def check_protection(protection: Protection | type[Protection], *, tolerance: float | None = None) -> None:
    """Check that a protection keeps the contract, with up to three passive parties:

    - shapes of z and of gradients, and agreement with matrix products and SGD in float64, with and without momentum,
      weight decay and trainable bottoms, for the sum of the parties' parts and for each separately;
    - snapshots that restore both sides;
    - that every message was declared, that every declared one is sent, and that guards are as declared;
    - noise: declared messages carry it, and values fed without noise are never recorded as noised;
    - that sides do not deadlock if a link passes one message at a time;
    - refusal of peers with another job, of unasked gradients, of wrong numbers of rows, of a backward step without a
      forward one, and of activations out of range where the cut computes in integers.

    Args:
        protection: a protection, or its class, which is called without arguments.
        tolerance: largest difference from float64 of a value around 1; 10⁻⁵ unless given, 5·10⁻³ for protections that
            compute in fixed-point integers.

    Raises:
        CheckFailed: it breaks a rule; the first one is named.
    """
    with _convert_failures("it cannot be made without arguments: check an instance of it"):
        made = protection() if isinstance(protection, type) else protection
    if not isinstance(made, Protection):
        raise CheckFailed(f"{made!r} is not a Protection: subclass securevfl.cut.Protection")
    bound = tolerance if tolerance is not None else 5e-3 if made.uses_integers else 1e-5
    _check_description(made)
    for spec, parties in _USES:
        passive = tuple(WIDTHS)[:parties]
        with _convert_failures(_describe_case(made, spec, parties)):
            _check_declarations(made.exchanges(spec.cut_use, parties), made)
            steps = make_batches(spec, passive)
            run = run_cut(made, spec, passive, steps)
            _check_numbers(run, spec, steps, bound)
            _check_messages(run.sites, Exchanges(made.exchanges(spec.cut_use, parties)), noised=0)
    _check_noise(made, bound)
    check_cut_refusals(made)
    with _convert_failures(f"{made!r}, without passive parties"):
        check_cut_alone(made)


@contextmanager
def _convert_failures(where: str) -> Iterator[None]:
    """Convert every failure inside to `CheckFailed`, with the stage in its message."""
    try:
        yield
    except CheckFailed as failed:
        raise CheckFailed(f"{where}: {failed}") from failed
    except Exception as error:
        raise CheckFailed(f"{where}: {type(error).__name__}: {error}") from error


def _describe_case(protection: Protection, spec: CutSpec, parties: int) -> str:
    bottoms = "with trainable bottoms" if spec.trainable else "with identity bottoms"
    rule = f", momentum {spec.momentum:g}, weight decay {spec.weight_decay:g}" if spec.optimiser_rule.rounds else ""
    return f"{protection!r}, {parties} passive, {bottoms}, reduce={spec.reduce!r}{rule}"


def _check_description(protection: Protection) -> None:
    with _convert_failures(repr(protection)):
        if not protection.tag() or not protection.title:
            raise CheckFailed("name or title is empty: results and job files call a protection by them")
        if type(protection).from_values(protection.describe()) != protection:
            raise CheckFailed("reading back what describe() returns gives a different protection")
        policy = protection.policy()
        if not isinstance(policy, Policy):
            raise CheckFailed(f"policy() gives {policy!r}; a Policy was expected")
        if policy.sealed != protection.is_sealed:
            raise CheckFailed(f"sealed is {protection.is_sealed} and policy().sealed is {policy.sealed}")
        if protection.exchanges(CutUse(trainable=True), 0):
            raise CheckFailed("it declares messages for a party that is alone: without passive parties there are none")


def _check_declarations(declared: Sequence[Exchange], protection: Protection) -> None:
    """Check the rules of declarations that do not depend on what is sent."""
    Exchanges(declared)
    for exchange in declared:
        if not exchange.step.startswith("cut/"):
            raise CheckFailed(f"{exchange.step!r} is declared; steps of a cut begin with 'cut/'")
        if not exchange.words:
            raise CheckFailed(f"{exchange.step!r} is declared without words; receipts show them")
        if protection.is_sealed and exchange.kind in READABLE_KINDS:
            raise CheckFailed(f"{exchange.step!r} is declared as {exchange.kind.value}, and the protection says sealed")
        if (exchange.kind is Kind.CIPHERTEXT) != bool(exchange.ciphers):
            raise CheckFailed(f"{exchange.step!r} is declared as {exchange.kind.value} under {set(exchange.ciphers)}")
        if not exchange.ciphers <= protection.ciphers:
            raise CheckFailed(f"{exchange.step!r} is declared under {set(exchange.ciphers)}; protection.ciphers differ")
        if (exchange.kind in READABLE_KINDS or exchange.opened is not None) and not exchange.reveals:
            raise CheckFailed(f"{exchange.step!r} is declared without what its receiver learns (reveals)")


def _check_numbers(run: CutRun, spec: CutSpec, steps: Sequence[CutBatch], bound: float) -> None:
    for name, weights in run.weights.items():
        spread = float(weights.std()) * WIDTHS[name] ** 0.5
        if not 0.1 < spread < 10:
            raise CheckFailed(f"initial weights of {name!r} have {spread:.3g} times the usual standard deviation 1/√d")
    reference = LinearReference(spec, run.weights)
    for number, (batch, z) in enumerate(zip(steps, run.z, strict=True)):
        wanted = reference.forward(batch.values)
        _check_close(f"z of step {number}", z, wanted + _noise_in_z(batch, spec), bound)
        backs = reference.backward(batch.values, strip_noise_mark(batch.gradient))
        for name, back in backs.items():
            found = run.back[name][number]
            if not spec.trainable:
                if found is not None:
                    raise CheckFailed(f"{name!r} got a gradient in step {number}, and its bottom has no parameters")
            elif found is None:
                raise CheckFailed(f"{name!r} got no gradient in step {number}, and its bottom has parameters")
            else:
                _check_close(f"the gradient of {name!r} in step {number}", found, back, bound)
    first = steps[0].values
    _check_close("z at the snapshot", run.kept[0], reference.forward(first), bound)
    _check_close("z after the snapshot was restored", run.kept[1], run.kept[0].double(), bound)
    reference.backward(first, strip_noise_mark(steps[0].gradient))
    for which, z in zip(("after one more step", "after that step was repeated"), run.restored, strict=True):
        _check_close(f"z {which}", z, reference.forward(first), bound)


def _check_close(what: str, found: torch.Tensor, wanted: torch.Tensor, bound: float) -> None:
    if found.dtype != torch.float32:
        raise CheckFailed(f"{what} is {found.dtype}; float32 was expected")
    if found.shape != wanted.shape:
        raise CheckFailed(f"{what} has shape {tuple(found.shape)}; {tuple(wanted.shape)} was expected")
    error = float((found.double() - wanted).abs().max()) if found.numel() else 0.0
    if not error <= bound:
        raise CheckFailed(f"{what} is {error:.3g} away from float64; the tolerance is {bound:g}")


def _noise_in_z(batch: CutBatch, spec: CutSpec) -> torch.Tensor:
    """The noise in z."""
    shares = [share.noise for share in batch.noise.values()]
    if not shares:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack(shares).sum(dim=0) if spec.reduce == "sum" else torch.stack(shares)


def _check_messages(world: Mapping[str, PartyContext], declared: Exchanges, *, noised: int) -> None:
    """Compare the ledgers with the declarations.

    Args:
        world: the parties' contexts of the run.
        declared: what was declared.
        noised: how often each party was fed values with noise.
    """
    role: dict[str, PartyRole] = {name: site.role for name, site in world.items()}
    sent = [(name, entry) for name, site in world.items() for entry in site.ledger.entries if entry.way == "sent"]
    for name, entry in sent:
        exchange = declared.declared_between(role[name], role[entry.peer])[entry.what, entry.kind]
        if entry.cipher not in (exchange.ciphers or {"none", "masked"}):
            raise CheckFailed(f"{entry.what!r} crossed under {entry.cipher!r}; declared: {set(exchange.ciphers)}")
        if entry.cipher == "paillier" and entry.bits < exchange.key_bits:
            raise CheckFailed(
                f"{entry.what!r} crossed under a key of {entry.bits} bits; {exchange.key_bits} are declared"
            )
        if entry.noise and not exchange.noised:
            raise CheckFailed(
                f"{entry.what!r} has a guard with noise σ/Δ = {entry.noise:g}, and noised is not declared"
            )
    for exchange in declared:
        own = [
            entry
            for name, entry in sent
            if (entry.what, entry.kind, role[name], role[entry.peer])
            == (exchange.step, exchange.kind, exchange.sender, exchange.receiver)
        ]
        if not own and not exchange.optional:
            raise CheckFailed(
                f"{exchange.step!r} is declared from {exchange.sender} to {exchange.receiver} and not sent"
            )
        pairs = (len(role) - 1) * noised
        found = sum(entry.noise > 0 for entry in own)
        if exchange.noised and found != pairs:
            raise CheckFailed(
                f"{exchange.step!r} carried noise {found} times; it was fed with noise {pairs} times: compute what is "
                "sent with Noised.map and NoiseShare.add_to"
            )


def _check_noise(protection: Protection, bound: float) -> None:
    """Features with noise on activations and labels with noise; then features with noise on z."""
    asked = (
        DP(features=Gaussian(noise_multiplier=0.1), labels=Gaussian(noise_multiplier=0.1)),
        DP(features=JointNoise(weight_bound=2.0, noise_multiplier=0.1)),
    )
    spec, passive = replace(SPEC, trainable=True), tuple(WIDTHS)[:2]
    for dp in asked:
        try:
            noisy = protection.replace(dp=dp)
        except SecureVFLError:
            continue  # it refuses this kind of noise
        with _convert_failures(_describe_case(noisy, spec, len(passive))):
            declared = noisy.exchanges(spec.cut_use, len(passive))
            _check_declarations(declared, noisy)
            demanded = noisy.policy().noised
            for exchange in declared:
                if exchange.noised and exchange.kind in READABLE_KINDS and exchange.kind not in demanded:
                    raise CheckFailed(f"{exchange.step!r} is declared noised, and the policy does not demand it")
            steps = _with_noise(make_batches(spec, passive), dp, spec)
            run = run_cut(noisy, spec, passive, steps, floor=noisy.policy().replace(noised=frozenset()))
            _check_numbers(run, spec, steps, bound)
            _check_messages(run.sites, Exchanges(declared), noised=len(steps))


def _with_noise(steps: Sequence[CutBatch], dp: DP, spec: CutSpec) -> list[CutBatch]:
    """The same batches with the noise of `dp`."""
    found = []
    for batch in steps:
        count, rows = batch.rows, np.arange(batch.rows)
        activations, gradient, noise = dict(batch.activations), batch.gradient, {}
        for name, values in batch.values.items():
            releases = Releases(name, Policy())
            if dp.activation_noise is not None:
                release = releases.plan_rows("activations", dp.activation_noise, rows=count, times=1)
                activations[name] = release(values, rows).map(torch.Tensor.float)
            elif dp.joint_noise is not None:
                joint = releases.plan_joint(dp.joint_noise, rows=count, times=1, parties=len(batch.activations))
                activations[name] = joint.clip_activations(values)
                noise[name] = joint.draw_share(rows, spec.width)
        if dp.gradient_noise is not None:
            release = Releases("a", Policy()).plan_rows("gradients", dp.gradient_noise, rows=count, times=1)
            gradient = release(strip_noise_mark(gradient), rows).map(torch.Tensor.float)
        found.append(CutBatch(activations=activations, gradient=gradient, noise=noise))
    return found

"""Who knows the first weights of the cut: the passive party alone, whatever the job file says. Over whole jobs, with
the wiring that ships."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from support.cuts import KITS, Kit, link_in_memory

import securevfl as sv
from securevfl.cut.base import initial_weights
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.errors import InputError
from securevfl.party_context import Keeper, Observer, PartyContext, PartySecret, derive_seed
from securevfl.privacy import Noised, NoiseShare, strip_noise_mark
from securevfl.run.checkpoint import make_keepers
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.parties import make_parties
from securevfl.transport import MemoryChannel, Message, encode_message

WIDTH, HIDDEN = 24, 32
ALGORITHM = sv.SplitNN(hidden=HIDDEN, top=(), cut_lr=0.5)
JOB = sv.Job(algorithm=ALGORITHM, protection=sv.BFV(), epochs=1, steps=1, batch_size=32, seed=3)


@dataclass
class Seen:
    """What a sealed run showed: to the active party (z of the first step), and to nobody (activations, shares)."""

    z: list[torch.Tensor] = field(default_factory=list)
    fed: dict[str, torch.Tensor] = field(default_factory=dict)
    mine: dict[str, list[np.ndarray]] = field(default_factory=dict)
    theirs: dict[str, list[np.ndarray]] = field(default_factory=dict)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Look at both sides of the sealed cuts of whichever job runs, before each training step."""
    found = Seen()
    forward, feed = SealedActive.forward, SealedPassive.forward

    async def active(self: SealedActive, rows: int, *, train: bool) -> torch.Tensor:
        for name, peer in self._peers.items():
            found.theirs.setdefault(name, []).append(peer.share.values.copy())
        z = await forward(self, rows, train=train)
        found.z.append(z.detach().clone())
        return z

    async def passive(
        self: SealedPassive,
        activations: torch.Tensor | Noised[torch.Tensor],
        *,
        train: bool,
        noise: NoiseShare | None = None,
    ) -> None:
        name = self._site.name
        found.mine.setdefault(name, []).append(self._after_setup.share.values.copy())
        found.fed.setdefault(name, strip_noise_mark(activations).detach().double())
        await feed(self, activations, train=train, noise=noise)

    monkeypatch.setattr(SealedActive, "forward", active)
    monkeypatch.setattr(SealedPassive, "forward", passive)
    return found


def run(job: sv.Job, secrets: Mapping[str, PartySecret] | None = None) -> RunOutcome:
    people = make_parties(passive=2, rows=100, width=WIDTH // 2)
    return run_parties(job, people, join_parties(people, job), run="run", secrets=secrets)


def solved(seen: Seen, weights: np.ndarray) -> float:
    """How far activations are that are solved from the first z with these weights, over their deviation."""
    x = torch.hstack(list(seen.fed.values())).numpy()
    return float(np.abs(seen.z[0].double().numpy() @ np.linalg.pinv(weights) - x).max() / x.std())


def correlation(seen: Seen, share: np.ndarray) -> float:
    """Of activations with what one look and this share of the first weights tell of them: the auditor's attack."""
    x, z = torch.hstack(list(seen.fed.values())).numpy(), seen.z[0].double().numpy()
    left = len(seen.fed) * 0.5
    guess = np.linalg.solve(share @ share.T / left + np.eye(len(share)), share @ z.T / left).T
    return float(np.mean([np.corrcoef(guess[:, j], x[:, j])[0, 1] for j in range(x.shape[1]) if guess[:, j].std() > 0]))


def halves(of: Mapping[str, int], seed: int) -> np.ndarray:
    """What version 0.1 drew as one side's half of the first weights: from a public seed, in numpy's generator."""
    return np.vstack(
        [
            np.random.default_rng(derive_seed(seed, "cut", name)).normal(
                scale=(0.5 / width) ** 0.5, size=(width, HIDDEN)
            )
            for name, width in of.items()
        ]
    )


def from_the_job_file(names: Mapping[str, int], seed: int) -> Iterator[np.ndarray]:
    """First weights as whoever has the job file computes them: with this version's rule, and with that of 0.1."""
    world = link_in_memory(passive=tuple(names))
    secrets = {name: PartySecret.from_seed(seed, name) for name in names}
    yield np.vstack([_drawn(world[name], secrets[name], width) for name, width in names.items()])
    own = {name: derive_seed(seed, "private", name) for name in ("bank", *names)}
    passive = np.vstack([halves({name: width}, own[name]) for name, width in names.items()])
    yield halves(names, own["bank"]) + passive
    yield halves(names, own["bank"])


def _drawn(site: PartyContext, secret: PartySecret, width: int) -> np.ndarray:
    object.__setattr__(site, "secret", secret)
    return initial_weights(site, width, HIDDEN)


NAMES = {"shop1": WIDTH // 2, "shop2": WIDTH // 2}


@pytest.mark.parametrize("protection", [sv.BFV(), sv.CKKS()], ids=lambda p: p.name)
def test_the_job_file_does_not_tell_the_first_weights(seen: Seen, protection: sv.cut.Sealed) -> None:
    run(JOB.replace(protection=protection))
    assert all(not share[0].any() for share in seen.theirs.values()), "the active party begins with a share of zero"
    for weights in from_the_job_file(NAMES, JOB.seed):
        assert solved(seen, weights) > 1
        assert abs(correlation(seen, weights)) < 0.35  # 0.05 by chance; 0.93 for whoever knows the secrets


def test_whoever_knows_the_secrets_solves_the_first_z(seen: Seen) -> None:
    """The attack works, so that its failing above means something."""
    run(JOB, {name: PartySecret.from_seed(JOB.seed, name) for name in NAMES})
    weights = next(from_the_job_file(NAMES, JOB.seed))
    assert solved(seen, weights) < 1e-3
    assert correlation(seen, weights) > 0.5


def test_two_runs_of_a_sealed_job_begin_with_different_weights_and_bottoms(seen: Seen) -> None:
    job = JOB.replace(algorithm=ALGORITHM.replace(bottom=(6,)))
    one, two = run(job), run(job)
    assert one.secrets != two.secrets
    first, second = seen.mine["shop1"][0], seen.mine["shop1"][len(seen.mine["shop1"]) // 2]
    assert (first != second).all()
    bottoms = [ran.trained["shop1"].model["parts"]["half"][0] for ran in (one, two)]  # type: ignore[index]
    assert any((a != b).any() for a, b in zip(*(list(bottom.values()) for bottom in bottoms), strict=True))


def _uniform(values: np.ndarray, bits: int) -> None:
    """Whether integers look uniform over so many bits: in their four highest bits and in their four lowest ones."""
    for bins in ((values >> (bits - 4)) & 15, values & 15):
        counts = np.bincount(bins.astype(np.int64).ravel(), minlength=16)
        expected = values.size / 16
        assert float(((counts - expected) ** 2 / expected).sum()) < chi2.ppf(1 - 1e-9, 15), counts


def _wide(values: np.ndarray, bits: int) -> None:
    """Whether integers of both signs fill so many bits, and hardly any is short."""
    lengths = np.array([abs(int(value)).bit_length() for value in values.flat])
    assert lengths.max() <= bits + 1
    assert (lengths >= bits - 6).mean() > 0.9, sorted(lengths)[:5]


@pytest.mark.parametrize(("cut_momentum", "modular"), [(0.0, True), (0.5, False)])
def test_after_a_step_the_active_partys_share_is_wide_and_uniform(
    seen: Seen, cut_momentum: float, modular: bool
) -> None:
    """For weights that the test knows: what is left to the active party after a step tells nothing of them."""
    algorithm = sv.SplitNN(hidden=64, top=(), cut_lr=0.5, cut_momentum=cut_momentum)
    run(JOB.replace(algorithm=algorithm))
    for name in NAMES:
        before, after = seen.theirs[name][0], seen.theirs[name][1]
        assert not before.any()
        whole = seen.mine[name][1] + after
        if modular:
            whole = (whole + (1 << 63)) % (1 << 64) - (1 << 63)
            _uniform(after, 64)
            _uniform(seen.mine[name][1], 64)
        else:
            _wide(after, CutSpec(width=64, lr=0.5, batch_size=32).fixed_point.weight_fraction_bits + 4 + 40)
        first = seen.mine[name][0]
        if modular:
            first = (first + (1 << 63)) % (1 << 64) - (1 << 63)
        drift = np.abs((whole - first).astype(np.float64))
        assert 0 < drift.max() < np.abs(first.astype(np.float64)).max(), "shares add up to the weights after a step"
        together = np.corrcoef(after.astype(np.float64).ravel(), whole.astype(np.float64).ravel())[0, 1]
        assert abs(together) < 6 / after.size**0.5


def test_the_first_weights_are_normal_of_the_usual_size_and_differ_by_party() -> None:
    world = link_in_memory()
    one, two = initial_weights(world["p1"], 500, 40), initial_weights(world["p2"], 500, 40)
    assert one.std() * 500**0.5 == pytest.approx(1, rel=0.03)
    assert abs(one.mean()) * 500**0.5 < 0.05
    assert np.abs(one * 500**0.5).max() > 3
    assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.03
    assert (one == initial_weights(world["p1"], 500, 40)).all()


@pytest.mark.parametrize("kind", ["plain", "fixed point", "bfv"])
def test_every_protection_begins_with_the_passive_partys_own_weights(kind: str) -> None:
    kit: Kit = KITS[kind]
    world, spec = link_in_memory(), CutSpec(width=3, lr=0.5, batch_size=8)

    async def active() -> torch.Tensor:
        cut = kit.active(world["a"], spec)
        await cut.setup()
        return await cut.forward(6, train=False)

    async def passive(name: str, width: int, start: int) -> None:
        cut = kit.passive(world[name], spec)
        await cut.setup(width, trainable=False)
        await cut.forward(torch.eye(6)[:, start : start + width], train=False)

    async def together() -> torch.Tensor:
        z, *_ = await asyncio.gather(active(), passive("p1", 4, 0), passive("p2", 2, 4))
        return z

    wanted = np.vstack([initial_weights(world["p1"], 4, 3), initial_weights(world["p2"], 2, 3)])
    np.testing.assert_allclose(asyncio.run(together()).numpy(), wanted, atol=1e-6)


# the secret


def test_a_secret_has_256_bits_of_the_operating_system_and_does_not_show() -> None:
    found = [PartySecret.generate() for _ in range(64)]
    assert len({secret.number for secret in found}) == 64
    assert max(secret.number for secret in found).bit_length() > 250
    assert not any(str(secret.number) in f"{secret!r} {secret}" for secret in found)
    for wrong in (-1, 1 << 256):
        with pytest.raises(InputError, match="PartySecret"):
            PartySecret(wrong)


def test_a_keystream_is_shake_256_over_the_secret_and_its_labels() -> None:
    secret = PartySecret(7)
    parts = [b"securevfl party secret v1", (7).to_bytes(32, "big"), b"cut", b"first weights"]
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert secret.keystream(50, "cut", "first weights") == hashlib.shake_256(text).digest(50)
    others = [
        secret.keystream(50, *labels) for labels in (("cutfirst weights",), ("cut", "first", "weights"), ("cut",))
    ]
    assert len({secret.keystream(50, "cut", "first weights"), *others}) == 4


class Stops(Observer):
    """Ends the run after an epoch."""

    def __init__(self, after: int) -> None:
        self.after = after

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self.after:
            raise RuntimeError("the power fails")


@pytest.mark.parametrize("algorithm", [ALGORITHM, sv.RandomMatch(hidden=4, top=(), bottom=(3,))], ids=lambda a: a.name)
def test_a_sealed_run_goes_on_as_if_nothing_had_happened(algorithm: sv.SplitNN, tmp_path: Path) -> None:
    """With the secrets that its checkpoints hold, and without any given: random matching draws anew in each epoch."""
    job = JOB.replace(algorithm=algorithm, epochs=3)
    people = make_parties(passive=1, rows=100, width=3)
    aligned, names = join_parties(people, job), list(people)
    whole = run_parties(job, people, aligned, run="run")
    with pytest.raises(sv.PartyFailed):
        run_parties(
            job,
            people,
            aligned,
            run="run",
            observer=Stops(2),
            keepers=make_keepers(tmp_path, names, job.digest),
            secrets=whole.secrets,
        )
    assert all((path.stat().st_mode & 0o777) == 0o600 for path in tmp_path.glob("*.safetensors"))
    again = run_parties(job, people, aligned, run="run", keepers=make_keepers(tmp_path, names, job.digest))
    assert again.secrets == whole.secrets
    np.testing.assert_array_equal(again.trained["bank"].scores, whole.trained["bank"].scores)


def test_a_checkpoint_without_a_secret_is_refused() -> None:
    class Old(Keeper):
        def load(self) -> dict[str, object]:
            return {"epoch": 1}

    with pytest.raises(InputError, match="contains no secret"):
        PartySecret.from_keeper(Old())


def test_a_comparison_begins_all_its_jobs_with_the_same_secrets(seen: Seen) -> None:
    people = make_parties(passive=1, rows=100, width=3)
    jobs = {"exact": JOB.replace(protection=sv.Plain(fixed_point=True)), "sealed": JOB}
    one, two = (sv.compare(jobs, people, baselines=(), aligned=join_parties(people, JOB)) for _ in range(2))
    for result in (one, two):
        np.testing.assert_array_equal(result.scores["exact"], result.scores["sealed"])
    assert (one.scores["sealed"] != two.scores["sealed"]).any()


def _spellings(secret: PartySecret, width: int) -> dict[str, bytes]:
    """What would give a secret away."""
    raw, number = secret.number.to_bytes(32, "big"), secret.number
    first = secret.keystream(8 * width * HIDDEN, "cut", "first weights")
    return {
        "bytes": raw,
        "bytes, reversed": raw[::-1],
        "hexadecimal": secret.to_hex.encode(),
        "decimal": str(number).encode(),
        "half": raw[:16],
        "keystream": first[:32],
        "seed of the bottom": secret.derive_seed("model").to_bytes(8, "little"),
    }


@pytest.mark.parametrize("bottom", [(), (6,)])
def test_no_message_ledger_or_model_holds_a_secret(
    bottom: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed: list[bytes] = []
    send = MemoryChannel.send

    async def recorded(self: MemoryChannel, message: Message) -> int:
        crossed.append(encode_message(message))
        return await send(self, message)

    monkeypatch.setattr(MemoryChannel, "send", recorded)
    people = make_parties(passive=2, rows=100, width=WIDTH // 2)
    secrets = {name: PartySecret(int.from_bytes(os.urandom(32), "big")) for name in people}
    job = JOB.replace(algorithm=ALGORITHM.replace(bottom=bottom))
    result = sv.simulate(job, people, secrets=secrets, checkpoints=tmp_path / "kept")
    result.report(tmp_path / "report")
    result.model().save(tmp_path / "model")
    wire, kept = b"\n".join(crossed), _all_bytes(tmp_path / "kept")
    shown = _all_bytes(tmp_path / "report") + _all_bytes(tmp_path / "model")
    assert len(wire) > 10_000
    assert len(shown) > 10_000
    for name, secret in secrets.items():
        for spelling, what in _spellings(secret, bottom[-1] if bottom else WIDTH // 2).items():
            assert what not in wire, f"{spelling} of {name}'s secret crossed a link"
            assert what not in shown, f"{spelling} of {name}'s secret is in a report or a model"
        assert secret.to_hex.encode() in kept, "the party's own checkpoint holds it"


def _all_bytes(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert files
    return b"\n".join(path.read_bytes() for path in files)

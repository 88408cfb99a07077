"""The demo's jobs: what it shows, and that the table has what they need."""

from __future__ import annotations

import pytest

import securevfl as sv
from securevfl.experiments.demonstration import BUDGET, DEMO_ROWS, demo_jobs


@pytest.mark.parametrize("full", [False, True])
def test_it_shows_each_model_on_shares_beside_plain_and_one_within_a_budget(full: bool) -> None:
    jobs = demo_jobs(full=full)
    shown = {key: (job.algorithm.name, job.protection.name) for key, job in jobs.items()}
    assert shown == {
        "shares": ("splitnn", "shares"),
        "plain": ("splitnn", "plain"),
        "trees-shares": ("boosting", "shares"),
        "trees-plain": ("boosting", "plain"),
        "additive-dp": ("additive", "shares"),
    }
    for kind in ("shares", "trees-shares"):  # beside the same job in plain
        other = jobs["plain" if kind == "shares" else "trees-plain"]
        assert jobs[kind].replace(protection=sv.Plain()) == other
    dp = jobs["additive-dp"].protection.dp
    assert dp is not None
    assert dp.model == sv.Gaussian(epsilon=BUDGET)
    assert BUDGET == 1.0
    every = demo_jobs(full=full, every=True)
    assert {every[key].protection.name for key in every.keys() - jobs.keys()} == {"ckks", "bfv", "paillier", "plain"}


def test_the_short_demo_has_enough_rows_for_the_budget_and_declares_every_column() -> None:
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=DEMO_ROWS)
    job = demo_jobs(full=False)["additive-dp"]
    columns = {table.name: tuple(table.columns) for table in parties.values()}
    assert job.algorithm.column_mistakes(columns) == []
    assert job.algorithm.undeclared_columns(job.protection, columns) == []
    result = sv.simulate(job.replace(epochs=1), parties, observer=sv.Observer())  # refused below n · μ = 50 · F
    spent = {one.party: one.epsilon_exact for one in result.record.runs[-1].epsilon}
    assert spent == dict.fromkeys(parties, pytest.approx(BUDGET, abs=1e-3))

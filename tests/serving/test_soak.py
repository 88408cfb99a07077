"""The soak of serving in a small size: real processes over TLS, a partner killed in between, budgets exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import serving_soak

    return serving_soak


def test_questions_are_answered_rightly_over_a_kill(soak: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = soak.check_budgets
    monkeypatch.setattr(soak, "check_budgets", lambda *what: seen.append(what) or original(*what))
    found = soak.run_soak(tmp_path, "shares", 240, 1, 8)
    assert found["questions"] == 240
    assert len(found["seconds until answers came again"]) == 1
    fresh = found["of them about a new customer"]
    assert fresh == 228
    assert found["budgets"]["result book, shop2"]["customers"] == fresh
    assert found["refused for a while"] >= 0
    # The check sees a customer who was answered and not counted, and one who was counted twice for no reason.
    ((where, asked),) = seen
    never = next(name for name in asked.expected if name not in asked.answered)
    asked.answered.add(never)
    with pytest.raises(RuntimeError, match=r"228 customers and .* rows counted; 229 answered"):
        original(where, asked)
    asked.answered.remove(never)
    book = soak.ResultBook(where.folder / "shop1" / "shop1.results.jsonl", party="shop1")
    (asker,) = book.askers
    once = next(name for name in asked.answered if name not in asked.cut)
    book.add(book.begin_run([once], asker), soak.np.array([0]), 1)
    with pytest.raises(RuntimeError, match="1 too often"):
        original(where, asked)


def test_a_wrong_answer_ends_the_soak(soak: Any) -> None:
    asked = soak.Asked({"p0": 0.5}, near=0.016)
    asked.take("p0", 0.51)
    with pytest.raises(RuntimeError, match=r"0\.0200 away"):
        asked.take("p0", 0.52)


def test_a_process_that_grows_ends_the_soak(soak: Any) -> None:
    flat = [{"questions": 100 * place, "bank": 400 << 20} for place in range(soak.SAMPLES + 1)]
    assert soak.check_memory(flat, 1000)["bank"]["bytes a customer"] == 0
    flat[-1]["bank"] += soak.BASE + soak.PER_CUSTOMER * 1000
    with pytest.raises(RuntimeError, match="bank grew by"):
        soak.check_memory(flat, 1000)

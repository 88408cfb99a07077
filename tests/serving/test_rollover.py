"""Models roll over under load, with real processes over TLS: no answer is lost, and each is of the model it names."""

from __future__ import annotations

import random
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.served_processes import federation, post, run, scores_of_model

import securevfl as sv
from securevfl.agreement import read_party_file
from securevfl.run.model_parts import PART, model_part, write_run
from securevfl.run.store import write_tree
from securevfl.serving.process import put_part
from securevfl.testing.parties import make_parties

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

ROOT = Path(__file__).parents[2]
CLIENTS = 8
ROWS = 1000
NEW = "ab" * 32
"""The run of the second model."""


class Client(threading.Thread):
    """Asks without a pause, for one customer or for several, and writes down what comes."""

    def __init__(self, port: int, names: list[str], seed: int, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port, self._names, self._draw, self._end = port, names, random.Random(seed), end
        self.answers: list[tuple[float, float, str, list[tuple[str, float, str]]]] = []
        """Of each question: when it was asked and answered, its failure, and customers, scores and models."""

    def run(self) -> None:
        """See `threading.Thread`."""
        while not self._end.is_set():
            several = self._draw.sample(self._names, self._draw.choice((1, 1, 4)))
            began = time.monotonic()
            if len(several) == 1:
                status, content, _ = post(self._port, "/v1/score", {"customer": several[0]})
                scores = [content]
            else:
                status, content, _ = post(self._port, "/v1/scores", {"customers": several})
                scores = [one.get("score") or one for one in content.get("answers", ())]
            wrong = "" if status == 200 and all("probabilities" in one for one in scores) else f"{status} {content}"
            found = (
                []
                if wrong
                else [
                    (name, float(one["probabilities"][1]), str(one["digest"]))
                    for name, one in zip(several, scores, strict=True)
                ]
            )
            self.answers.append((began, time.monotonic(), wrong, found))


def test_no_answer_is_lost_and_none_is_of_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import serving

    where, first, words = federation(tmp_path, serving, ROWS)
    job = where.proposal.job_of()
    other = sv.simulate(job, make_parties(passive=1, rows=600)).model()
    second = scores_of_model(other, make_parties(passive=1, rows=ROWS))
    names = sorted(name for name in first if abs(first[name] - second[name]) > 1e-3)
    assert len(names) > 50, "the two models have to differ"
    with ExitStack() as held:
        started = {name: held.enter_context(run(words[name])) for name in where.names}
        port = int(started["bank"].wait_for(r"Questions: http://127\.0\.0\.1:(\d+)"))
        started["bank"].wait_for("is served")
        old = str(post(port, "/v1/score", {"customer": names[0]})[1]["digest"])
        end = threading.Event()
        clients = [Client(port, names, seed, end) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(1)
        for name, part in other.parts.items():  # what `securevfl serve add` does, while the server runs
            folder, tree = tmp_path / name / "new", {k: v for k, v in part.items() if k not in ("job", "party")}
            folder.mkdir()
            write_tree(folder / f"{name}{PART}", model_part(job, name, tree))
            write_run(folder, NEW)
            put_part(read_party_file(tmp_path / name / "party.toml").state / "serving", folder, name, job)
        changes = []
        for path, content in [("activate", {"run": NEW}), ("rollback", {}), ("activate", {"run": NEW})]:
            began = time.monotonic()
            status, found, _ = post(port, f"/v1/models/{path}", content)
            assert status == 200, found
            changes.append((began, time.monotonic(), str(found["digest"])))
            time.sleep(1)
        end.set()
        for client in clients:
            client.join(60)
    new = changes[0][2]
    assert [digest for _, _, digest in changes] == [new, old, new]
    assert new != old
    expected = {old: first, new: second}
    questions = [one for client in clients for one in client.answers]
    assert not [wrong for _, _, wrong, _ in questions if wrong], "an answer was lost"
    assert len(questions) > 10 * CLIENTS
    served = [(0.0, 0.0, old), *changes]
    ends = [*(over for _, over, _ in changes), float("inf")]
    for asked, answered, _, found in questions:
        assert len({digest for _, _, digest in found}) == 1, "one request, one model"
        for name, score, digest in found:
            assert score == pytest.approx(expected[digest][name], abs=1e-5), "an answer is of the model that it names"
        possible = {
            digest for (begun, _, digest), over in zip(served, ends, strict=True) if begun <= answered and asked <= over
        }
        assert found[0][2] in possible, "the model was not served between question and answer"
    for digest in (old, new):
        assert sum(found[0][2] == digest for *_, found in questions) > CLIENTS
    print(
        f"{len(questions)} questions, {sum(len(found) for *_, found in questions)} answers, over {len(changes)} changes"
    )

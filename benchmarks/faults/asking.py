"""The client of served models: asks until it has each answer, as an application would."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

__all__ = ["QUESTIONS", "ask_questions", "read_answers", "read_failures"]

QUESTIONS = 6
_FILE = "answers.json"


def ask_questions(folder: Path, port: int, token: str) -> int:
    """Ask about a few customers, each until it is answered, and write the answers down."""
    names = (folder / "customers.txt").read_text().split()[:QUESTIONS]
    answers, failed = {}, []
    for name in names:
        while name not in answers:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/score",
                data=json.dumps({"customer": name}).encode(),
                headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as found:  # noqa: S310
                    answers[name] = json.load(found)["probabilities"]
            except urllib.error.HTTPError as error:
                failed.append(error.code)
                if error.code not in (404, 429, 502, 503, 504):
                    raise
                time.sleep(0.05)
            except OSError:
                failed.append(0)
                time.sleep(0.05)
        (folder / _FILE).write_text(json.dumps({"answers": answers, "failed": failed}))
    return 0


def read_answers(folder: Path) -> dict[str, list[float]]:
    """Customer → probabilities."""
    path = folder / _FILE
    found: dict[str, list[float]] = json.loads(path.read_text())["answers"] if path.exists() else {}
    return found


def read_failures(folder: Path) -> list[int]:
    """Statuses of questions that had to be asked again; 0 where the server was not there."""
    path = folder / _FILE
    found: list[int] = json.loads(path.read_text())["failed"] if path.exists() else []
    return found

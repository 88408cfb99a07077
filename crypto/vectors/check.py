"""Checks every test vector of this folder by a second implementation that shares no code with the library.

    python crypto/vectors/check.py            # all files; exit code 1 at the first difference, or a missing file
    python crypto/vectors/check.py oprf.json  # some of them

It is slow and plain: Python's integers and hashlib, and AES from the package ``cryptography``. It imports nothing of
securevfl, so it also runs without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import slow_curve
import slow_masked
import slow_paillier
import slow_shares
import slow_transfer

__all__ = ["COMPUTE", "FOLDER", "differences", "main"]

FOLDER = Path(__file__).parent
COMPUTE: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    **slow_curve.COMPUTE,
    **slow_transfer.COMPUTE,
    **slow_shares.COMPUTE,
    **slow_masked.COMPUTE,
    **slow_paillier.COMPUTE,
}
"""Type of a group → what computes a test's outputs from the inputs of the group and the test."""
FILES = (
    "blake2s.json",
    "hash_to_curve.json",
    "masked.json",
    "modular.json",
    "oprf.json",
    "ot_rows.json",
    "paillier.json",
    "ring.json",
    "sha512.json",
    "x25519.json",
)
"""All files; one that is missing is an error."""
RESULTS = ("valid", "acceptable", "invalid")


def differences(content: Mapping[str, Any]) -> Iterator[str]:
    """Describe each difference between a file's content and what this implementation computes."""
    numbers = [test["tcId"] for group in content["testGroups"] for test in group["tests"]]
    if numbers != list(range(1, content["numberOfTests"] + 1)):
        yield f"the numbers of the tests are not 1 to {content['numberOfTests']}"
    for group in content["testGroups"]:
        compute = COMPUTE.get(group["type"])
        if compute is None:
            yield f"no implementation of {group['type']}"
            continue
        for test in group["tests"]:
            where = f"{group['type']}, test {test['tcId']} ({test['comment']})"
            if test["result"] not in RESULTS or set(test["flags"]) - set(content["notes"]):
                yield f"{where}: an unknown result or flag"
            try:
                found = compute(group, test)
            except ValueError as error:  # the inputs contradict each other
                yield f"{where}: {error}"
                continue
            for name, value in found.items():
                if test.get(name) != value:
                    yield f"{where}: {name} is {test.get(name)!r}; computed {value!r}"


def main(names: Sequence[str] = ()) -> int:
    """Check files, all by default; returns the exit code."""
    for name in names or FILES:
        file = FOLDER / name
        if not file.is_file():
            print(f"WRONG  {name}: it is not in {FOLDER}")
            return 1
        content = json.loads(file.read_text(encoding="utf-8"))
        wrong = next(differences(content), None)
        if wrong is not None:
            print(f"WRONG  {file.name}: {wrong}")
            return 1
        print(f"right  {file.name}: {content['numberOfTests']} tests of {content['algorithm']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

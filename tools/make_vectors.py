"""Writes the test vectors in `crypto/vectors`: answers of standards, and what this version of the library computes.

    python tools/make_vectors.py            # write the files
    python tools/make_vectors.py --check    # exit code 1 if a file is not the one that would be written

Every output is computed without compiled kernels, by OpenSSL, hashlib, numpy and GMP, and compared with the known
answer where a standard has one. The files have the form of Project Wycheproof's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from vectors import curve, long, masked, oprf, paillier, shares, transfer
from vectors.forms import Case, Compute, Group

__all__ = ["COMPUTE", "FILES", "FOLDER", "as_json", "file_text", "main"]

FOLDER = Path(__file__).parents[1] / "crypto" / "vectors"
PORTABLE = "cryptography"
"""The path that computes the files: no kernels of ours."""
FILES: dict[str, tuple[str, Callable[[], list[Group]]]] = {
    "x25519.json": ("X25519", curve.x25519_groups),
    "hash_to_curve.json": ("curve25519_XMD:SHA-512_ELL2_RO_", curve.curve_groups),
    "sha512.json": ("SHA-512", curve.sha512_groups),
    "blake2s.json": ("BLAKE2s-256", curve.blake2s_groups),
    "oprf.json": ("securevfl-psi dh", oprf.groups),
    "ot_rows.json": ("securevfl-psi ot", transfer.groups),
    "ring.json": ("securevfl ring of shares", shares.groups),
    "masked.json": ("securevfl three parties behind one mask", masked.groups),
    "modular.json": ("products modulo long numbers", long.groups),
    "paillier.json": ("Paillier", paillier.groups),
}
"""File → algorithm, and what makes its groups."""
COMPUTE: dict[str, Compute] = {
    **curve.COMPUTE,
    **oprf.COMPUTE,
    **transfer.COMPUTE,
    **shares.COMPUTE,
    **masked.COMPUTE,
    **long.COMPUTE,
    **paillier.COMPUTE,
}
"""Type of a group → what computes a test's outputs by the library."""
NOTES = {
    "BlockBoundary": "The message ends near the end of a block of the hash.",
    "Clamping": "The scalar has bits that RFC 7748 clears or sets.",
    "EdgeWord": "Words of all zeros or ones, or at the ends of a range.",
    "Invalid": "A verifier must refuse the input.",
    "NonCanonical": "The coordinate is not below p; it is reduced.",
    "OneBlock": "One block of BLAKE2s with salt, personalisation and node offset.",
    "Prefix": "A block of zeros precedes the message, as in expand_message_xmd.",
    "SmallOrder": "The point has small order: the product is zero, and protocols refuse it.",
    "TopBitSet": "Bit 255 of the coordinate is set; it does not count.",
    "Twist": "The point is on the twist; X25519 multiplies it all the same.",
}


def as_json(value: Any) -> Any:
    """Bytes as hexadecimal text, also those in lists and dictionaries."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def complete_test(group: Group, test: Case) -> Case:
    """Add the outputs to a test.

    Raises:
        ValueError: an output differs from the known answer.
    """
    fields = {"type": group.type, "source": group.source, **group.fields}
    for name, value in as_json(COMPUTE[group.type](PORTABLE, fields, test)).items():
        if test.get(name, value) != value:
            raise ValueError(f"{group.type}, {test['comment']}: {name} is {value}, the known answer is {test[name]}")
        test[name] = value
    return test


def file_text(name: str) -> str:
    """The content of a file."""
    algorithm, make = FILES[name]
    groups, number, used = [], 0, set()
    for group in make():
        tests = []
        for test in group.tests:
            number += 1
            flags = [*test.pop("flags", []), *group.flags]
            used.update(flags)
            head = {"tcId": number, "comment": test.pop("comment"), "flags": flags}
            result = test.pop("result", "valid")
            completed = complete_test(group, {"comment": head["comment"], "flags": flags, **test})
            body = {key: value for key, value in completed.items() if key not in head}
            tests.append({**head, **body, "result": body.get("result", result)})
        groups.append({"type": group.type, "source": group.source, **as_json(group.fields), "tests": tests})
    content = {
        "algorithm": algorithm,
        "numberOfTests": number,
        "header": ["Made by tools/make_vectors.py. Bytes are hexadecimal. docs/engine/specification.md has the terms."],
        "notes": {flag: NOTES[flag] for flag in sorted(used)},
        "testGroups": groups,
    }
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the test vectors in crypto/vectors.")
    parser.add_argument("--check", action="store_true", help="compare the files with what would be written")
    check = parser.parse_args(arguments).check
    wrong = []
    for name in FILES:
        text, file = file_text(name), FOLDER / name
        if not check:
            file.write_text(text, encoding="utf-8")
            print(f"{len(text):>7} bytes  {name}")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            wrong.append(name)
    if wrong:
        print(f"{', '.join(wrong)} differ from what this version computes: run python tools/make_vectors.py")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

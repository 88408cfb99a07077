"""Session tags, the outputs of `dh` for fixed keys, receipts and frames."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from securevfl_crypto.engine import choose_engine
from securevfl_psi.errors import PSIError
from securevfl_psi.group import Scalar, hash_to_group
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oprf import finalise
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs
from securevfl_psi.session import Session
from securevfl_psi.wire import TAG_BYTES, VERSION, FrameWriter, Kind

from vectors.forms import Case, Compute, Group, pseudo_random, rows_of, unhex

__all__ = ["COMPUTE", "IDENTIFIERS", "groups", "session_fields", "session_of"]

Fields = Mapping[str, Any]
IDENTIFIERS = ("ann", "bob", "42", "ü", "人", "a" * 64, "b" * 65, "3:ann10:1970-01-01", "c" * 1024)
_RULES = "NFKC strip"


def session_fields(protocol: str, names: tuple[str, str] = ("bank", "shop"), nonce: int = 32) -> Case:
    """The inputs of a session's tag. The version is the library's."""
    return {
        "protocol": protocol,
        "version": Session.__dataclass_fields__["version"].default,
        "names": list(names),
        "rulesTag": _RULES,
        "nonce": pseudo_random("session nonce", nonce).hex(),
    }


def session_of(fields: Fields) -> Session:
    """The session that these fields describe."""
    return Session(
        names=tuple(fields["names"]),
        nonce=bytes.fromhex(fields["nonce"]),
        rules_tag=fields["rulesTag"],
        version=fields["version"],
        protocol=fields["protocol"],
    )


def _drawn_scalar(label: str) -> str:
    """The first scalar of a label that has an inverse among clamped scalars."""
    for number in range(100):
        secret = pseudo_random(f"{label} {number}", 32)
        try:
            Scalar(secret, choose_engine("cryptography")).divide(
                np.frombuffer(bytes([9]) + bytes(31), dtype=np.uint8).reshape(1, 32)
            )
        except PSIError:  # about half of all scalars have none
            continue
        return secret.hex()
    raise AssertionError(label)


def groups() -> list[Group]:
    """The groups of ``oprf.json``."""
    sessions = [session_fields("dh"), session_fields("ot"), session_fields("dh", ("ü", "人"), 16)]
    dh = sessions[0]
    tag = session_of(dh).dst.hex()
    receipts = [[], [1], [3, 1, 2], [2, 1, 3]]
    lists = [[pseudo_random(f"receipt {number}", 16).hex() for number in one] for one in receipts]
    frames = [
        ("HELLO", 0, b'{"rows": 3}'),
        ("POINTS", 1, pseudo_random("points", 64)),
        ("COUNT", 2, (2).to_bytes(8, "big")),
        ("FINISHED", 3, b""),
        ("REFUSED", 4, b"policy"),
    ]
    source = "made for this file"
    return [
        Group("SessionTag", source, [{"comment": f"tag of {one['protocol']}", **one} for one in sessions]),
        Group(
            "DhOutput",
            source,
            [
                {"comment": f"identifier of {len(text.encode())} bytes", "identifier": text.encode().hex()}
                for text in IDENTIFIERS
            ],
            {"tag": tag, "blind": _drawn_scalar("blind"), "key": _drawn_scalar("key")},
        ),
        Group(
            "PublishedOutput",
            source,
            [{"comment": "bound to one run", "published": pseudo_random(f"published {k}", 32).hex()} for k in range(3)],
            {"tag": tag},
        ),
        Group(
            "Receipt",
            source,
            [{"comment": f"{len(one)} rows", "lists": [one]} for one in lists]
            + [{"comment": "two lists", "lists": [lists[2][:1], lists[2][1:]]}],
            {"tag": tag},
        ),
        Group(
            "Frame",
            source,
            [
                {"comment": kind, "kind": int(Kind[kind]), "sequence": number, "payload": payload.hex()}
                for kind, number, payload in frames
            ],
            {"tag": tag, "version": VERSION, "writer": "receiver"},
        ),
    ]


def _session_tag(path: str, group: Fields, test: Fields) -> Case:
    return {"tag": session_of(test).dst}


def _compute_output(path: str, group: Fields, test: Fields) -> Case:
    by, tag = choose_engine(path), bytes.fromhex(group["tag"])
    column = Identifiers.of_texts([bytes.fromhex(test["identifier"]).decode()])
    blind, key = (Scalar(bytes.fromhex(group[name]), by) for name in ("blind", "key"))
    point = hash_to_group(column, tag, by=by)
    blinded = blind.multiply(point)
    evaluated = key.multiply(blinded)
    unblinded = blind.divide(evaluated)
    table = finalise(column, np.arange(1), unblinded, tag, OUTPUT_BYTES, by)
    outputs = Outputs(table, tag)
    arrays = {"point": point, "blinded": blinded, "evaluated": evaluated, "unblinded": unblinded}
    arrays |= {"token": outputs.cut_tokens(), "proof": outputs.prove_rows(np.arange(1)), "receipt": table[:, 32:]}
    if not np.array_equal(unblinded, key.multiply(point)):
        raise AssertionError("unblinding does not give the product by the key")
    return {name: array.tobytes() for name, array in arrays.items()}


def _published_token(path: str, group: Fields, test: Fields) -> Case:
    tag = bytes.fromhex(group["tag"])
    bound = Outputs.from_published(unhex(test["published"], 32), tag, choose_engine(path))
    return {"bound": bound._table[:, 16:].tobytes()}


def _make_receipt(path: str, group: Fields, test: Fields) -> Case:
    parts = [text for one in test["lists"] for text in one]
    table = np.zeros((len(parts), OUTPUT_BYTES), dtype=np.uint8)
    if parts:
        table[:, 32:] = rows_of(parts)
    rows, found = np.arange(len(parts)), []
    for one in test["lists"]:
        found.append(rows[: len(one)])
        rows = rows[len(one) :]
    return {"receipt": Outputs(table, bytes.fromhex(group["tag"])).make_receipt(found)}


def _frame_header(path: str, group: Fields, test: Fields) -> Case:
    writer = FrameWriter()
    for _ in range(test["sequence"]):
        writer.write(Kind.FINISHED)
    # As `Endpoint` sets it once both agreed.
    writer.tag = hashlib.sha512(bytes.fromhex(group["tag"]) + group["writer"].encode()).digest()[:TAG_BYTES]
    return {"frame": writer.write(Kind(test["kind"]), bytes.fromhex(test["payload"]))}


COMPUTE: dict[str, Compute] = {
    "SessionTag": _session_tag,
    "DhOutput": _compute_output,
    "PublishedOutput": _published_token,
    "Receipt": _make_receipt,
    "Frame": _frame_header,
}

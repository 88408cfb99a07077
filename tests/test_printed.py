"""No dataclass prints what is secret: one f-string, log line or debugger away from a file. Arrays, tensors, messages'
bytes, shares, keys and streams are left out of `repr`, or listed here with why they may be seen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from securevfl_crypto.replicated import Product, Task, deal_shares, run_three
from securevfl_crypto.ring import Exchange, Stream

from securevfl.party_context import PartySecret
from securevfl.transport import Kind, Message

ROOT = Path(__file__).parents[1]
_SECRET = re.compile(
    r"\b(U64|U8|ndarray|Tensor|Array|bytes|memoryview|Streams?|Share|Dealt|State|PrivateKey|PartySecret|NoiseShare)\b"
)
PUBLIC = {
    "Certificate.der": "a certificate is shown to every peer",
    "EarlierCounts.kept": "how often rows were released, not which values",
    "EarlierCounts.lost": "likewise",
    "Endorsement.agreement": "a digest that all parties have",
    "Envelope.tag": "a public tag of a ciphertext",
    "HeldGrid.negative": "places of a matrix in ring elements, from public shapes",
    "HeldGrid.places": "likewise",
    "Incarnation.nonce": "sent to every peer in the clear",
    "PolynomialPlaces.index": "places in a polynomial, from public shapes",
    "PolynomialPlaces.negative": "likewise",
    "PublicSigningKey.raw": "public",
    "RlwePublicKey.halves": "public",
    "Split.test": "numbers of rows, no values",
    "Split.train": "likewise",
    "Split.valid": "likewise",
    "RendezvousState.ready": "marks of a round of gathering",
    "View.mark": "a mark of a round of gathering",
    "_Epoch.counts": "how often rows were released, not which values",
}
"""Class and field → why it may be printed."""


@lru_cache
def _printed() -> dict[str, str]:
    """Fields of dataclasses that `repr` shows, with the types they were declared with."""
    return dict(_fields())


def _fields() -> Iterator[tuple[str, str]]:
    for package in ("securevfl", "psi/securevfl_net", "crypto/securevfl_crypto"):
        for file in sorted((ROOT / package).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "@dataclass" in text else ():
                if isinstance(node, ast.ClassDef) and _prints_itself(node):
                    for line in node.body:
                        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and _shown(line):
                            yield f"{node.name}.{line.target.id}", re.sub(r"'[^']*'", "", ast.unparse(line.annotation))


def _prints_itself(node: ast.ClassDef) -> bool:
    """Whether it is a dataclass whose `repr` the decorator writes."""
    made = [text for text in map(ast.unparse, node.decorator_list) if text.startswith("dataclass")]
    own = any(isinstance(line, ast.FunctionDef) and line.name == "__repr__" for line in node.body)
    return bool(made) and "repr=False" not in made[0] and not own


def _shown(line: ast.AnnAssign) -> bool:
    kept = line.value is not None and "repr=False" in ast.unparse(line.value)
    return not kept and not ast.unparse(line.annotation).startswith(("ClassVar", "Callable"))


def test_no_dataclass_prints_what_it_holds_of_the_parties() -> None:
    found = {name: kind for name, kind in _printed().items() if _SECRET.search(kind) and name not in PUBLIC}
    assert not found, "add field(repr=False), or say in PUBLIC why everybody may see it"


def test_shares_keys_and_messages_are_not_in_their_repr() -> None:
    secret = np.full(3, 0x1234_5678_9ABC_DEF0, np.uint64)
    word = str(int(secret[0]))
    dealt = deal_shares(secret)
    share = dealt[2].share()
    words = {str(int(w)) for part in (share.mine, share.next) for w in part} | {word}
    run = run_three(_nothing)
    streams = run.parties[0].streams
    key = b"k" * 32
    things = [
        *dealt,
        share,
        Product(share, share, "times", shift=16),
        Task(share.mine),
        Stream(key),
        streams,
        run,
        Exchange("shop"),
        PartySecret(int(secret[0])),
        Message(Kind.SHARE, "shares/input", {"0a": secret}),
    ]
    for thing in things:
        text = repr(thing)
        assert not any(one in text for one in words), type(thing)
        assert "kkk" not in text
        assert key.hex() not in text


async def _nothing(party: object) -> None:
    return None


def test_what_is_listed_is_there() -> None:
    assert not PUBLIC.keys() - _printed().keys()

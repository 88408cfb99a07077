"""Everything that reads bytes or files which others made: one list, for the tests and for `benchmarks.fuzz`.

Each decoder has a corpus that the code itself makes, the errors that it may raise, and mutators that know its format.
"""

from __future__ import annotations

import io
import os
import random
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import securevfl_crypto as crypto
import securevfl_psi as psi
import torch
from fuzz.mutators import Mutator, blind, headed_json, json_values, lines, mixed
from fuzz.parties import beats, endorsements, proxies, reports, verdicts
from fuzz.sessions import frames, session
from securevfl_crypto import CryptoError
from securevfl_psi import filters, gcs, wire
from securevfl_psi.joint.greeting import Greeting
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.publication import Offer, Publication
from securevfl_psi_cli.credentials import Pins, make_certificate
from securevfl_psi_cli.table import Table
from support.toml_mutants import mutant, toml

import securevfl as sv
from securevfl import ledger
from securevfl.errors import SecureVFLError
from securevfl.jobfile.policy_file import read_policy
from securevfl.report import Record
from securevfl.report.sweep_record import SweepRecord
from securevfl.run.store import read_tree, write_tree
from securevfl.transport import Guard, Kind, Message
from securevfl.transport import wire as transport

__all__ = ["DECODERS", "Decoder", "decoder"]


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """One way into the program.

    Attributes:
        name: of it.
        make: its corpus and what reads one input; called once, as keys take seconds.
        errors: that it may raise.
        change: makes inputs from the corpus.
        exact: the corpus is accepted as it is; not so where the reader draws its own secrets.
        weight: how many inputs the tests take, where 1 is all of them: slow ones have fewer.
    """

    name: str
    make: Callable[[], tuple[list[bytes], Callable[[bytes], object]]]
    errors: tuple[type[Exception], ...]
    change: Mutator = blind
    weight: float = 1.0
    exact: bool = True


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=os.environ.get("SECUREVFL_FUZZ")))


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """What reads bytes from a file."""
    path = _folder() / name

    def decode(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return decode


def _messages() -> list[bytes]:
    arrays = {"z": np.ones((3, 4), np.float32), "b": np.zeros((2, 2, 2), np.uint8)}
    guard = Guard("paillier", 2048, "ab", 0.5)
    return [
        transport.encode_message(
            Message(Kind.ACTIVATION, "cut/forward", arrays, {"a": 1, "b": "x", "c": 1.5, "d": True}, guard)
        ),
        transport.encode_message(Message(Kind.CONTROL, "train/epoch", {}, {"epoch": 1, "stop": False})),
        transport.encode_message(Message(Kind.CIPHERTEXT, "cut/weights", {"c": np.zeros((1, 500), np.uint8)})),
    ]


@cache
def _run() -> Path:
    """The folder of a small finished run: metrics and signed ledgers."""
    from securevfl.testing.parties import make_parties

    found = sv.simulate(sv.Job(protection=sv.Plain(), epochs=1, algorithm=sv.SplitNN(hidden=4)), make_parties(rows=60))
    folder = _folder() / "run"
    found.report(folder)
    return folder


def _ledger() -> tuple[list[bytes], Callable[[bytes], object]]:
    def read(path: Path) -> object:
        chains, flaws = ledger.chains_of(ledger.read_lines(path), path.name)
        ledger.raise_flaws(flaws)
        return chains

    return [(_run() / "ledgers" / "bank.jsonl").read_bytes()], _file("bank.jsonl", read)


def _audited() -> tuple[list[bytes], Callable[[bytes], object]]:
    path = _run() / "ledgers" / "bank.jsonl"
    content = path.read_bytes()

    def decode(data: bytes) -> object:
        path.write_bytes(data)
        try:
            return sv.audit(_run())
        finally:
            path.write_bytes(content)

    return [content], decode


def _party_key(kind: str) -> Callable[[], tuple[list[bytes], Callable[[bytes], object]]]:
    def make() -> tuple[list[bytes], Callable[[bytes], object]]:
        folder = _folder() / "party-keys"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            ledger.make_key("bank", folder)
        path = folder / f"bank.{kind}"
        content = path.read_bytes()
        read: Callable[[Path], object] = ledger.read_private_key if kind == "key" else ledger.read_public_key

        def decode(data: bytes) -> object:
            path.write_bytes(data)  # its mode stays
            try:
                return read(path)
            finally:
                path.write_bytes(content)

        return [content], decode

    return make


def _tree() -> tuple[list[bytes], Callable[[bytes], object]]:
    path = _folder() / "seed.safetensors"
    objects = np.array([2**70, 1], dtype=object)
    tree = {"job": "x", "a": [1, 2.5, None, True, "t", (1, 2)], "w": torch.ones(3, 3), "n": np.arange(4), "o": objects}
    write_tree(path, tree | {"f": float("nan"), "d": {1: {"x": torch.zeros(2, dtype=torch.int64)}}})
    return [path.read_bytes()], _file("tree.safetensors", read_tree)


def _metrics() -> tuple[list[bytes], Callable[[bytes], object]]:
    return [(_run() / "metrics.json").read_bytes()], _file("metrics.json", Record.read)


def _sweep_record() -> tuple[list[bytes], Callable[[bytes], object]]:
    cell = (
        '{"data":"d","method":"m","x":0.1,"seed":0,"value":0.5,"valid":0.5,"metric":"auc","epochs":3,"best_epoch":2,'
        '"seconds":1.5,"extra":{"labelled":3.0}}'
    )
    text = (
        '{"format":1,"name":"n","title":"t","created":"2026-01-01","command":"c","versions":{"a":"1"},"machine":{},'
        f'"size":"quick","axis":"overlap","axis_unit":"%","cells":[{cell}],"claims":[{{"text":"t","source":"s",'
        '"data":"*","better":"m","worse":"o","at":[0.1]}],"ticks":{"0.1":"x"}}'
    )
    return [text.encode()], _file("sweep.json", SweepRecord.read)


TABLE = "k,x,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
JOB: dict[str, Any] = {
    "name": "fuzz",
    "job": {"epochs": 2, "batch_size": 8, "valid": 0.1, "clip": 4.0},
    "algorithm": {"name": "splitnn", "hidden": 4},
    "protection": {"name": "plain", "dp": {"labels": {"mechanism": "randomised_response", "epsilon": 2}}},
    "policy": {"a": {"sealed": False, "noised": ["gradient"], "max_epsilon": 9.0}},
    "party": [
        {"name": "a", "file": "a.csv", "id": "k", "label": "y", "features": ["x"], "classes": [0, 1], "max_rows": 90},
        {"name": "b", "file": "a.csv", "id": "k", "categorical": ["y"]},
    ],
}
SWEEP: dict[str, Any] = {
    "name": "tiny",
    "seeds": [0],
    "axis": {"name": "overlap", "option": "overlap", "unit": "%", "values": [0.1]},
    "data": [{"name": "digits", "options": {}, "algorithm": {"hidden": 5}, "methods": {"RISA": {"hidden": 4}}}],
    "method": [{"label": "RISA", "algorithm": "risa", "settings": {"hidden": 3}, "protection": {"name": "plain"}}],
    "claim": [{"text": "t", "source": "s", "data": "*", "better": "RISA", "worse": "x", "at": [0.1]}],
    "paper": [{"data": "digits", "method": "RISA", "source": "s", "percent": {"0.1": 81.5}}],
}
POLICY: dict[str, Any] = {"party": "lab", "leaks": False, "max_epsilon": 4.0, "noised": ["gradient"], "sealed": True}


def _toml(content: dict[str, Any], name: str, read: Callable[[Path], object]) -> Decoder:
    def make() -> tuple[list[bytes], Callable[[bytes], object]]:
        (_folder() / "a.csv").write_text(TABLE, encoding="utf-8")
        return [toml(content).encode()], _file(f"{name}.toml", read)

    def change(data: bytes, luck: random.Random) -> bytes:
        return mutant(content, luck.getrandbits(32)).encode() if luck.random() < 0.8 else blind(data, luck)

    return Decoder(name=f"{name} (TOML)", make=make, errors=(SecureVFLError,), change=change, weight=0.3)


CSV = b"id,x,c,y\n" + b"\n".join(b"a%d,%d.5,k%d,%d" % (i, i, i % 3, i % 2) for i in range(40))


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    out = io.BytesIO()
    columns = {"id": [f"a{i}" for i in range(40)], "x": [i * 0.5 for i in range(40)], "y": [i % 2 for i in range(40)]}
    pa_parquet.write_table(pa.table(columns | {"c": [f"k{i % 3}" for i in range(40)]}), out)
    return out.getvalue()


def _ends(data: bytes, luck: random.Random) -> bytes:
    """Parquet's metadata stand at the end."""
    at = luck.randrange(len(data))
    return data[:at] + blind(data[at:], luck)


USE: dict[str, Any] = {"name": "a", "id": "id", "label": "y", "categorical": ["c"]}


def _frames() -> list[bytes]:
    writer = wire.FrameWriter()
    return [
        writer.write(wire.Kind.HELLO, b"{}" * 20)
        + writer.write(wire.Kind.POINTS, bytes(96))
        + writer.write(wire.Kind.RECEIPT, bytes(32))
    ]


def _hello() -> tuple[list[bytes], Callable[[bytes], object]]:
    bank = psi.Terms(name="bank", peer="shop", role="receiver")
    shop = psi.Terms(name="shop", peer="bank", role="sender")
    return [shop.encode_hello(100)], bank.accept_hello


def _greeting() -> tuple[list[bytes], Callable[[bytes], object]]:
    plan = "joint, two at a time"
    one = Greeting(name="b", plan=plan, rules="r", context="c", labelled=False, nonce=bytes(range(16)), rows=9)
    expected = {"plan": plan, "rules": "r", "context": "c", "labelled": False}
    return [one.to_bytes()], lambda data: Greeting.from_bytes(data, "b", expected, most=100)


def _points() -> tuple[list[bytes], Callable[[bytes], object]]:
    session = psi.Session(names=("a", "b"), nonce=bytes(16), rules_tag="x")
    data = np.concatenate(list(psi.DHClient([f"i{i}" for i in range(30)], session).blind_set())).tobytes()

    def decode(raw: bytes) -> object:
        rows = np.frombuffer(raw[: len(raw) // 32 * 32], np.uint8).reshape(-1, 32)
        server = psi.DHServer(["a", "b"], session)
        server.take_chunk(rows)
        return server.answer_chunk()

    return [data], decode


def _conversation() -> tuple[list[bytes], Callable[[bytes], object]]:
    """A whole run's bytes to one end, the nonces of both fixed."""
    terms = {
        "bank": psi.Terms(name="bank", peer="shop", role="receiver", nonce=bytes(16)),
        "shop": psi.Terms(name="shop", peer="bank", role="sender", nonce=bytes(range(16))),
    }
    bank, shop = psi.Endpoint(["a", "b"], terms["bank"]), psi.Endpoint(["b", "c", "d"], terms["shop"])
    said, greeting = b"", 0
    while not (bank.done and shop.done):
        if frame := bank.next_frame():
            shop.feed(frame)
        if frame := shop.next_frame():
            said += frame
            greeting = greeting or len(said)
            bank.feed(frame)

    def decode(raw: bytes) -> object:
        end = psi.Endpoint(["a", "b"], terms["bank"])
        for part in (raw[:greeting], raw[greeting:]):
            while end.next_frame():
                pass
            end.feed(part)
        return end.done

    return [said], decode


def _filter() -> tuple[bytes, filters.FilterTerms]:
    hashes = np.frombuffer(secrets.token_bytes(16 * 200), np.uint8).reshape(-1, 16)
    return gcs.encode_golomb(hashes, 20), filters.FilterTerms(
        server="s", rules_tag="r", not_before=0, expires=10**10, bits=20
    )


def _published() -> tuple[list[bytes], Callable[[bytes], object]]:
    coded, terms = _filter()
    return [filters.Filter.pack(terms, bytes(16), coded)], filters.Filter.from_bytes


def _served() -> tuple[list[bytes], Callable[[bytes], object]]:
    return [psi.unbalanced.FilterServer(_filter()[1]).to_bytes()], psi.unbalanced.FilterServer.from_bytes


def _publication() -> tuple[list[bytes], Callable[[bytes], object]]:
    session = lambda nonce: psi.Session(names=("a", "b"), nonce=nonce, rules_tag="r")  # noqa: E731
    making = Publication.publish_stepwise(psi.Identifiers.of_texts(["x", "y", "z"]), session, None)
    try:
        while True:
            next(making)
    except StopIteration as end:
        return [end.value.to_bytes()], Publication.from_bytes


def _offer() -> tuple[list[bytes], Callable[[bytes], object]]:
    return [Offer(bytes(16), 30, bytes(32)).to_bytes()], lambda data: Offer.from_bytes(data, 100)


def _encodings() -> tuple[list[bytes], Callable[[bytes], object]]:
    return [Encodings(words=np.ones((4, 2), np.uint64), tag=bytes(16)).to_bytes()], Encodings.from_bytes


def _certificate() -> tuple[list[bytes], Callable[[bytes], object]]:
    folder = _folder() / "keys"
    for name in ("bank", "shop"):
        if not (folder / f"{name}.crt").exists():
            make_certificate(name, folder, 30)
    read = lambda path: Pins.load(folder / "bank.crt", folder / "bank.key", {"shop": path})  # noqa: E731
    return [(folder / "shop.crt").read_bytes()], _file("peer.crt", read)


@cache
def _scheme(name: str) -> tuple[Any, Any]:
    scheme: Any = {"paillier": lambda: crypto.Paillier(2048), "bfv": crypto.BFV, "ckks": crypto.CKKS}[name]()
    return scheme, scheme.generate_key()


def _public_key(name: str) -> Callable[[], tuple[list[bytes], Callable[[bytes], object]]]:
    def make() -> tuple[list[bytes], Callable[[bytes], object]]:
        scheme, key = _scheme(name)
        return [key.public.to_bytes()], scheme.read_public

    return make


def _sealed(name: str, what: str) -> Callable[[], tuple[list[bytes], Callable[[bytes], object]]]:
    """Messages at a sealed cut, as arrays of bytes in the shape that is due, or in another."""

    def make() -> tuple[list[bytes], Callable[[bytes], object]]:
        scheme, key = _scheme(name)
        block = crypto.Block(batch=4, width_in=3, width_out=2, x_bits=15, s_bits=21, w_bits=34, z_bits=53)
        owner = scheme.create_owner(key, block)
        holder = scheme.create_holder(key.public, block, crypto.ZeroShares([]))
        x, share = np.ones((4, 3), np.int64), holder.fresh_share()
        weights = owner.seal_weights(owner.ring.reduce(np.ones((3, 2), dtype=object) - share))
        steps = owner.seal_steps(np.ones((4, 2), np.int64))
        message, read = {
            "weights": lambda: (weights, lambda a: holder.answer_product(a, x, share)),
            "product": lambda: (holder.answer_product(weights, x, share), lambda a: owner.open_product([a], 4)),
            "steps": lambda: (steps, lambda a: holder.answer_gradient(a, x)),
            "gradient": lambda: (holder.answer_gradient(steps, x)[0], owner.open_gradient),
        }[what]()

        def decode(raw: bytes) -> object:
            width = message.shape[1]
            if len(raw) < len(message.tobytes()) and len(raw) % 3:  # another length is a change of its own
                raw += bytes(len(message.tobytes()) - len(raw))
            rows, rest = divmod(len(raw), width)
            shape = (rows, width) if rows and not rest else (1, len(raw))
            return read(np.frombuffer(raw, np.uint8).reshape(shape))

        return [message.tobytes()], decode

    return make


_OURS = (SecureVFLError,)
_PSI = (psi.PSIError,)
_CRYPTO = (CryptoError,)

DECODERS: tuple[Decoder, ...] = (
    Decoder(name="message", make=lambda: (_messages(), transport.decode_message), errors=_OURS),
    Decoder(
        name="session, opening end", make=session(first=True), errors=_OURS, change=mixed(blind, frames), weight=0.4
    ),
    Decoder(
        name="session, answering end", make=session(first=False), errors=_OURS, change=mixed(blind, frames), weight=0.4
    ),
    Decoder(name="sign of life", make=beats, errors=_OURS),
    Decoder(name="report, READY", make=reports, errors=_OURS),
    Decoder(name="endorsement", make=endorsements, errors=_OURS, weight=0.5),
    Decoder(name="verdict", make=verdicts, errors=_OURS),
    Decoder(name="answer of a proxy", make=proxies, errors=_OURS),
    Decoder(name="ledger", make=_ledger, errors=_OURS, change=mixed(blind, lines, json_values), weight=0.15),
    Decoder(name="audit", make=_audited, errors=_OURS, change=mixed(blind, lines, json_values), weight=0.05),
    Decoder(name="private key of a party", make=_party_key("key"), errors=_OURS, weight=0.3),
    Decoder(name="public key of a party", make=_party_key("pub"), errors=_OURS, weight=0.3),
    Decoder(name="checkpoint, model", make=_tree, errors=_OURS, change=mixed(blind, headed_json)),
    Decoder(name="metrics.json", make=_metrics, errors=_OURS, change=mixed(blind, json_values), weight=0.5),
    Decoder(name="sweep.json", make=_sweep_record, errors=_OURS, change=mixed(blind, json_values)),
    _toml(JOB, "job", sv.read_job),
    _toml(SWEEP, "sweep", sv.read_sweep),
    _toml(POLICY, "policy", read_policy),
    Decoder(
        name="CSV",
        make=lambda: ([CSV], _file("t.csv", lambda path: sv.read_csv(path, **USE))),
        errors=_OURS,
        change=mixed(blind, lines),
    ),
    Decoder(
        name="Parquet",
        make=lambda: ([_parquet()], _file("t.parquet", lambda path: sv.read_parquet(path, **USE))),
        errors=_OURS,
        change=mixed(blind, _ends),
    ),
    Decoder(
        name="PSI table, CSV",
        make=lambda: ([CSV], _file("p.csv", lambda path: Table.read(path, ("id", "c")))),
        errors=_PSI,
        change=mixed(blind, lines),
    ),
    Decoder(
        name="PSI table, Parquet",
        make=lambda: ([_parquet()], _file("p.parquet", lambda path: Table.read(path, "id"))),
        errors=_PSI,
        change=mixed(blind, _ends),
    ),
    Decoder(name="PSI frames", make=lambda: (_frames(), lambda raw: list(wire.FrameReader().feed(raw))), errors=_PSI),
    Decoder(name="PSI hello", make=_hello, errors=_PSI, change=mixed(blind, json_values)),
    Decoder(name="PSI greeting", make=_greeting, errors=_PSI, change=mixed(blind, json_values)),
    Decoder(name="PSI points", make=_points, errors=_PSI, weight=0.2),
    Decoder(name="PSI run", make=_conversation, errors=_PSI, weight=0.2, exact=False),
    Decoder(name="PSI filter, Golomb codes", make=lambda: ([_filter()[0]], gcs.decode_golomb), errors=_PSI),
    Decoder(name="PSI filter", make=_published, errors=_PSI),
    Decoder(name="PSI server of a filter", make=_served, errors=_PSI),
    Decoder(name="PSI publication", make=_publication, errors=_PSI),
    Decoder(name="PSI offer", make=_offer, errors=_PSI),
    Decoder(
        name="PSI lasting key", make=lambda: ([psi.LastingKey().to_bytes()], psi.LastingKey.from_bytes), errors=_PSI
    ),
    Decoder(name="linkage encodings", make=_encodings, errors=_PSI),
    Decoder(name="certificate", make=_certificate, errors=_PSI, weight=0.3),
    *(
        Decoder(name=f"{name}, public key", make=_public_key(name), errors=_CRYPTO, weight=0.02)
        for name in ("paillier", "bfv", "ckks")
    ),
    *(
        Decoder(name=f"{name}, {what}", make=_sealed(name, what), errors=_CRYPTO, weight=0.02)
        for name in ("paillier", "bfv", "ckks")
        for what in ("weights", "product", "steps", "gradient")
    ),
)


def decoder(name: str) -> Decoder:
    """The one of that name."""
    return next(one for one in DECODERS if one.name == name)

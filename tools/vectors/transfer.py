"""What `ot` computes from fixed keys: code words, hashes, positions, encoded rows, sums, outputs and tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.transfer.base import HashedKeys
from securevfl_psi import okvs
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer, token_bytes
from securevfl_psi.oblivious.base import DOMAIN
from securevfl_psi.oblivious.code import code_tables, generator_polynomial
from securevfl_psi.oblivious.common import hashed_identifiers
from securevfl_psi.oblivious.extension import Decoder, Encoder

from vectors.forms import Case, Compute, Group, fixed_randomness, pseudo_random, unhex
from vectors.oprf import IDENTIFIERS, session_fields, session_of

__all__ = ["COMPUTE", "groups"]

Fields = Mapping[str, Any]
_OWN = ("ann", "bob", "eve", "42")
_PEER = ("eve", "zoe", "ann")


def _read_words(tag: bytes, texts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    hashed = hashed_identifiers(Identifiers.of_texts(texts), tag, bit_loops("cryptography"))
    return np.ascontiguousarray(hashed[:, :16]), np.ascontiguousarray(hashed[:, 16:])


def groups() -> list[Group]:
    """The groups of ``ot_rows.json``."""
    fields = session_fields("ot")
    tag = session_of(fields).dst
    keys, words = _read_words(tag, _OWN)
    with fixed_randomness("okvs"):
        table = okvs.encode_table(keys, words)
    sparse = [bytes(10), b"\xff" * 10, *((1 << k).to_bytes(10, "little") for k in (0, 1, 7, 8, 39, 79))]
    drawn = [pseudo_random(f"word {k}", 10) for k in range(4)]
    source, seed = "made for this file", pseudo_random("okvs seed", 32).hex()
    counts = (1, 2, 1000, 1 << 20, okvs.MAX_KEYS)
    extreme = [bytes(16), b"\xff" * 16, *(pseudo_random(f"key {k}", 16) for k in range(3))]
    stored = {"seed": table.seed.hex(), "slots": [row.tobytes().hex() for row in table.slots], "count": len(_OWN)}
    sizes = [(1, 1), (0, 5), (1 << 10, 1 << 10), (1 << 20, 1 << 20), (1 << 20, 1 << 24), (1 << 28, 1 << 28)]
    return [
        Group("CodeGenerator", source, [{"comment": "coefficients, the constant one first"}]),
        Group(
            "LinearCode",
            source,
            [{"comment": "edge", "flags": ["EdgeWord"], "word": word.hex()} for word in sparse]
            + [{"comment": "drawn", "word": word.hex()} for word in drawn],
        ),
        Group(
            "IdentifierHash",
            source,
            [
                {"comment": f"identifier of {len(text.encode())} bytes", "identifier": text.encode().hex()}
                for text in IDENTIFIERS
            ],
            {"tag": tag.hex()},
        ),
        Group(
            "RowHash",
            source,
            [
                {"comment": "drawn", "key": pseudo_random(f"row key {k}", 16).hex(), "row": row.hex()}
                for k, row in enumerate([bytes(64), b"\xff" * 64, pseudo_random("row", 64)])
            ],
        ),
        Group("SlotCount", source, [{"comment": "slots of a table", "count": count} for count in (0, *counts, 30, 31)]),
        *(
            Group(
                "SlotPositions",
                source,
                [{"comment": f"a table of {count} keys", "key": key.hex()} for key in extreme],
                {"seed": seed, "count": count},
            )
            for count in counts
        ),
        Group(
            "TableDecoding", source, [{"comment": "a stored key", "key": key.tobytes().hex()} for key in keys], stored
        ),
        Group(
            "TableEncoding",
            source,
            [{"comment": "every key gets its value back", "count": count} for count in (0, 1, 2, 60)],
            {"keyLabel": "stored keys", "valueLabel": "stored values"},
        ),
        Group(
            "TokenBytes",
            source,
            [
                {"comment": "sizes", "client": client, "server": server, "shards": shards}
                for client, server in sizes
                for shards in (1, 1024)
            ],
        ),
        Group(
            "BaseTransferKey",
            source,
            [
                {"comment": "key of a pair", "number": number, "choice": choice, "point": pseudo_random("u", 32).hex()}
                for number, choice in ((0, 0), (0, 1), (511, 1))
            ],
            {"tag": tag.hex(), "first": pseudo_random("giver", 32).hex(), "answerLabel": "chooser"},
        ),
        Group(
            "Transfer",
            source,
            [
                {
                    "comment": "a whole run for fixed keys",
                    "client": [text.encode().hex() for text in _OWN],
                    "server": [text.encode().hex() for text in _PEER],
                    "columnLabel": "columns",
                    "extraLabel": "extra/0",
                    "secret": pseudo_random("secret", 64).hex(),
                    "challenge": pseudo_random("challenge", 32).hex(),
                }
            ],
            {"session": fields, "seed": stored["seed"], "slots": stored["slots"]},
        ),
    ]


def _find_generator(path: str, group: Fields, test: Fields) -> Case:
    return {"polynomial": "".join(map(str, generator_polynomial()))}


def _encode_word(path: str, group: Fields, test: Fields) -> Case:
    out = np.zeros((1, 64), dtype=np.uint8)
    bit_loops(path).encode(unhex(test["word"], 10).copy(), code_tables(), out)
    return {"codeword": out.tobytes()}


def _hash_identifier(path: str, group: Fields, test: Fields) -> Case:
    column = Identifiers.of_texts([bytes.fromhex(test["identifier"]).decode()])
    hashed = hashed_identifiers(column, bytes.fromhex(group["tag"]), bit_loops(path))[0].tobytes()
    return {"key": hashed[:16], "word": hashed[16:26]}


def _hash_row(path: str, group: Fields, test: Fields) -> Case:
    loops, rows, keys = bit_loops(path), unhex(test["row"], 64), unhex(test["key"], 16)
    parts = [loops.hash_rows(rows, 64, keys, number) for number in (0, 1)]
    return {"output": (parts[0].tobytes() + parts[1].tobytes())[:48]}


def _slot_count(path: str, group: Fields, test: Fields) -> Case:
    return {"slots": okvs.slots_for(test["count"])}


def _find_positions(path: str, group: Fields, test: Fields) -> Case:
    places, bits = okvs.slot_positions(unhex(test["key"], 16), bytes.fromhex(group["seed"]), group["count"])
    return {"positions": places[0].tolist(), "dense": bits.tobytes()}


def _decode_table(path: str, group: Fields, test: Fields) -> Case:
    slots = np.stack([unhex(row) for row in group["slots"]])
    table = okvs.SlotTable(bytes.fromhex(group["seed"]), slots)
    return {"value": okvs.decode_table(table, unhex(test["key"], 16)).tobytes()}


def _encode_table(path: str, group: Fields, test: Fields) -> Case:
    """Paths may leave other slots free, so what a table gives is compared, not the table."""
    keys, values = (
        np.frombuffer(pseudo_random(group[name], 16 * test["count"]), dtype=np.uint8).reshape(-1, 16)
        for name in ("keyLabel", "valueLabel")
    )
    return {"values": okvs.decode_table(okvs.encode_table(keys, values, bit_loops(path)), keys).tobytes()}


def _token_bytes(path: str, group: Fields, test: Fields) -> Case:
    return {"bytes": token_bytes(test["client"], test["server"], test["shards"])}


def _base_key(path: str, group: Fields, test: Fields) -> Case:
    answer = pseudo_random(group["answerLabel"], 512 * 32)
    keys = HashedKeys(DOMAIN, bytes.fromhex(group["tag"]), bytes.fromhex(group["first"]), answer)
    return {"key": keys.derive_key(test["number"], test["choice"], bytes.fromhex(test["point"]))}


def _run_transfer(path: str, group: Fields, test: Fields) -> Case:
    """Both ends with their columns' keys and s given. Outputs come from the parties' own code."""
    loops = bit_loops(path)
    session = session_of(group["session"])
    own, peer = ([bytes.fromhex(text).decode() for text in test[name]] for name in ("client", "server"))
    seed, slots = bytes.fromhex(group["seed"]), np.stack([unhex(row) for row in group["slots"]])
    secret, challenge = unhex(test["secret"]), bytes.fromhex(test["challenge"])
    label = test["columnLabel"]
    pairs = tuple([pseudo_random(f"{label}/{i}/{bit}", 16) for i in range(512)] for bit in (0, 1))
    chosen = [pairs[int(secret[i // 8] >> (i % 8)) & 1][i] for i in range(512)]
    with fixed_randomness(test["extraLabel"].rpartition("/")[0]):
        encoder = Encoder(pairs, slots, loops)
    rows = np.concatenate(list(encoder.encode_rows()))
    decoder = Decoder(secret, chosen, len(rows), loops)
    decoder.take_chunk(rows)
    answer = encoder.answer_challenge(challenge)
    decoder._challenge = challenge  # in place of the drawn one
    decoder.check_answer(answer)
    client = OTClient(own, session, len(peer), path=path)
    server = OTServer(peer, session, len(own), path=path)
    client._compute_outputs(encoder.matrix, seed, len(own), None)
    server._compute_outputs(decoder.matrix, seed, len(own), decoder.masked)
    width = token_bytes(len(own), len(peer))
    return {
        "rows": len(rows),
        "firstRow": rows[0].tobytes(),
        "lastRow": rows[-1].tobytes(),
        "rowsDigest": hashlib.sha512(rows.tobytes()).digest(),
        "sumsDigest": hashlib.sha512(answer).digest(),
        "clientOutputs": [row.tobytes() for row in client.outputs._table],
        "serverOutputs": [row.tobytes() for row in server.outputs._table],
        "tokens": [row.tobytes() for row in server.outputs.cut_tokens()[:, :width]],
    }


COMPUTE: dict[str, Compute] = {
    "CodeGenerator": _find_generator,
    "LinearCode": _encode_word,
    "IdentifierHash": _hash_identifier,
    "RowHash": _hash_row,
    "SlotCount": _slot_count,
    "SlotPositions": _find_positions,
    "TableDecoding": _decode_table,
    "TableEncoding": _encode_table,
    "TokenBytes": _token_bytes,
    "BaseTransferKey": _base_key,
    "Transfer": _run_transfer,
}

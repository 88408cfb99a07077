"""Our PSI against its peers and the machine's limit, all in one run.

python -m benchmarks.psi [--engine] [--one-process] [--two-processes] [--transfers] [--curve] [--protocols] [--large]
                         [--quick] [--peers-python PATH]

Without options all but --large. Peers (openmined-psi, SecretFlow's SPU) run in an environment of their own, see
peers-requirements.txt; where it is missing, ours is measured alone and the figures say so.

--engine          scalar products a second and core, per code path, in turns with `openssl speed ecdhx25519`
--one-process     2^18 identifiers a side, half common, both parties in this process; beside openmined-psi
--two-processes   2^20 identifiers a side in two processes, from CSV to CSV, by dh and ot; beside SPU's ECDH, KKRT, RR22
--transfers       the same at 2^16, 2^18 and 2^20 for ot and RR22 by turns, three times
--curve           once at 2^16 for dh and SPU's ECDH, whose products take 20 times as long without IFMA
--protocols       the other protocols at 2^17: ot, cardinality, pseudonyms, unsafe_salted_hash, multi-party, unbalanced
--large           10^7 identifiers a side in two processes, once
--quick           a sixty-fourth of these identifiers, one round, to see that it works
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import securevfl_psi as psi
from securevfl_crypto.engine import Engine, available_paths, choose_engine
from securevfl_psi.multiparty import Follower, Leader
from securevfl_psi.okvs import slots_for
from securevfl_psi.terms import Protocol
from securevfl_psi.unbalanced import Filter, FilterClient, FilterServer, FilterTerms

from benchmarks import skip
from benchmarks.psi_party import run_party, run_transfer
from benchmarks.psi_peers import openssl_speed, peers_python, run_openmined, run_spu
from benchmarks.psi_two_processes import run_two_processes

ROUNDS = 5


def engines(rounds: int) -> dict[str, Any]:
    """One thread; in each round every path and then OpenSSL, so that all see the same machine."""
    os.environ["SECUREVFL_THREADS"] = "1"
    paths = available_paths()
    products: dict[str, list[float]] = {path: [] for path in paths}
    hashes: dict[str, list[float]] = {path: [] for path in paths}
    openssl: list[float] = []
    for _ in range(rounds):
        for path in paths:
            by = choose_engine(path)
            n = 1 << 15 if path in ("ifma", "avx512", "avx2") else 1 << 12
            points = by.hash_to_u(np.frombuffer(secrets.token_bytes(16 * n), dtype=np.uint8).reshape(n, 16), b"bench")
            products[path].append(n / _time(lambda by=by, points=points: by.x25519(secrets.token_bytes(32), points)))
            ids = np.frombuffer(secrets.token_bytes(20 * n), dtype=np.uint8).reshape(n, 20)
            hashes[path].append(n / _time(lambda by=by, ids=ids: by.hash_to_u(ids, bytes(45))))
        speed = openssl_speed()
        openssl += [speed] if speed else []
    del os.environ["SECUREVFL_THREADS"]
    reference = statistics.median(openssl) if openssl else None
    return {
        "openssl speed ecdhx25519, operations a second": reference,
        "scalar products a second": {path: statistics.median(values) for path, values in products.items()},
        "ratio to openssl, median of rounds": {
            path: statistics.median(ours / theirs for ours, theirs in zip(values, openssl, strict=True))
            for path, values in products.items()
            if openssl
        },
        "ratio to openssl, best of all rounds": {
            path: max(values) / max(openssl) for path, values in products.items() if openssl
        },
        "hashes to the curve a second": {path: statistics.median(values) for path, values in hashes.items()},
    }


def _time(work: Callable[[], object]) -> float:
    """CPU-seconds, as `openssl speed` counts them, so that other work on the machine matters less."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _sets(n: int) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(7)
    return tuple([f"user-{i}@example.com" for i in rng.permutation(n) + first] for first in (0, n // 2))  # type: ignore[return-value]


def one_process(n: int, protocol: Protocol = "dh", by: Engine | None = None) -> dict[str, Any]:
    """Both parties of a two-party protocol in this process, from lists of texts to verified rows."""
    mine, theirs = _sets(n)
    salt = secrets.token_bytes(16) if protocol == "unsafe_salted_hash" else b""
    start, cpu = time.perf_counter(), time.process_time()
    a = psi.Endpoint(mine, psi.Terms(name="a", peer="b", role="receiver", protocol=protocol, salt=salt), by=by)
    b = psi.Endpoint(theirs, psi.Terms(name="b", peer="a", role="sender", protocol=protocol, salt=salt), by=by)
    psi.run_in_process(a, b)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    exact = a.result.count == n // 2
    if a.result.rows is not None:
        exact &= {mine[row] for row in a.result.rows.tolist()} == set(mine) & set(theirs)
    return {"identifiers a side": n, "seconds": wall, "CPU seconds": cpu, "exact": bool(exact)}


def multi_party(n: int, parties: int = 3) -> dict[str, Any]:
    """The global intersection of several parties, all in this process; half of the identifiers are common."""
    names = tuple(f"p{i}" for i in range(parties))
    circle = psi.Circle(names=names, nonce=secrets.token_bytes(16), rules_tag=psi.IdRules().tag())
    sets = [[f"user-{i}@example.com" for i in range(n // 2)] + [f"{name}-{i}" for i in range(n // 2)] for name in names]
    keys = {name: psi.PairwiseKeys(circle, name) for name in names}
    public = {name: key.public_key for name, key in keys.items()}
    seeds = {name: keys[name].derive_seeds({k: v for k, v in public.items() if k != name}) for name in names}
    start = time.perf_counter()
    leader = Leader(sets[0], circle, seeds[names[0]])
    blinded = list(leader.blind_set())
    for name, ids in zip(names[1:], sets[1:], strict=True):
        party = Follower(ids, name, circle, seeds[name])
        evaluated = list(party.evaluate(blinded, n))
        table = party.encode_table()
        leader.receive_answer(name, evaluated, table.seed, psi.split(table.slots), n)
    rows = leader.intersect()
    wall = time.perf_counter() - start
    sent = n * 32 + slots_for(n) * 8
    return {
        "parties": parties,
        "identifiers a party": n,
        "seconds": wall,
        "bytes from each party": sent,
        "exact": sorted(rows.tolist()) == list(range(n // 2)),
    }


def unbalanced(n: int, queries: int = 1000) -> dict[str, Any]:
    """A large side that publishes a filter once, and a small one that asks."""
    tag = psi.IdRules().tag()
    server = FilterServer(FilterTerms(server="large", rules_tag=tag, not_before=0, expires=100, max_queries=queries))
    large = [f"user-{i}@example.com" for i in range(n)]
    small = large[: queries // 2] + [f"other-{i}" for i in range(queries - queries // 2)]
    start = time.perf_counter()
    published = server.publish(large)
    data = published if isinstance(published, bytes) else published.to_bytes()
    made = time.perf_counter()
    client = FilterClient(small, Filter.from_bytes(data, max_items=n), rules_tag=tag, now=1)
    blinded = list(client.blind_set())
    answers = list(server.answer_queries("small", client.key_id, blinded, queries, now=1))
    rows = client.find_common_rows(answers)
    end = time.perf_counter()
    return {
        "large side": n,
        "small side": queries,
        "seconds to publish": made - start,
        "bytes of the filter": len(data),
        "bits an item": 8 * len(data) / n,
        "seconds of a session": end - made,
        "exact": sorted(rows.tolist()) == list(range(queries // 2)),
    }


_KINDS = {"ot": (run_transfer, "rr22"), "dh": (run_party, "ecdh")}
"""Our protocol → what a party of it runs, and SPU's protocol of that kind."""


def by_turns(python: Path | None, n: int, ours: str = "ot", rounds: int = 3) -> dict[str, Any]:
    """`ours`, and then SPU's protocol of its kind, in each round, so that both see the same machine."""
    party, theirs = _KINDS[ours]
    runs = [(run_two_processes(party, n), run_spu(python, n, theirs)) for _ in range(rounds)]
    ratios = [_ratio(mine, peer) for mine, peer in runs]
    by_cpu = [_cpu_ratio(mine, peer) for mine, peer in runs]
    return {
        f"ours by {ours}": [mine for mine, _ in runs],
        f"spu {theirs}": [peer for _, peer in runs],
        "ours / spu, by round": ratios,
        "median": _median(ratios),
        "ours / spu, CPU, by round": by_cpu,
        "median, CPU": _median(by_cpu),
    }


def main() -> None:
    # Here, so that the spawned processes, which import this module, stay as small as the protocol is.
    from benchmarks.common import RESULTS, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("engine", "one-process", "two-processes", "transfers", "curve", "protocols", "large")
    for part in parts:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--peers-python", help="interpreter that has the peers")
    parser.add_argument("--quick", action="store_true", help="small sets")
    chosen = vars(parser.parse_args())
    less = 6 if chosen.pop("quick") else 0
    python = peers_python(chosen.pop("peers_python"))
    if python is None:
        skip.note("openmined-psi and SPU", "no interpreter has them: see benchmarks/peers-requirements.txt")
    wanted = [part for part in parts if chosen[part.replace("-", "_")]] or list(parts[:-1])
    path = RESULTS / "psi.json"
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    figures.pop("machine", None)
    figures.pop("versions", None)
    if "engine" in wanted:
        figures["engine"] = engines(1 if less else ROUNDS)
    if "one-process" in wanted:
        psi.intersect_in_process(["warm", "up"], ["up"])
        ours, theirs = one_process(1 << 18 - less), run_openmined(python, 1 << 18 - less)
        figures["one process"] = {"ours": ours, "openmined-psi": theirs, "ratio": _ratio(theirs, ours)}
    if "two-processes" in wanted:
        mine = run_two_processes(run_party, 1 << 20 - less)
        transfers = run_two_processes(run_transfer, 1 << 20 - less)
        peers = {name: run_spu(python, 1 << 20 - less, name) for name in ("ecdh", "kkrt", "rr22")}
        figures["two processes"] = {
            "ours": mine,
            "ours by ot": transfers,
            **{f"spu {name}": peer for name, peer in peers.items()},
            "ours / spu": {name: _ratio(mine, peer) for name, peer in peers.items()},
            "ours by ot / spu": {name: _ratio(transfers, peer) for name, peer in peers.items()},
            "ours / spu, CPU": {name: _cpu_ratio(mine, peer) for name, peer in peers.items()},
            "ours by ot / spu, CPU": {name: _cpu_ratio(transfers, peer) for name, peer in peers.items()},
        }
    if "transfers" in wanted:
        figures["transfers"] = {f"2^{k}": by_turns(python, 1 << k - less) for k in (16, 18, 20)}
    if "curve" in wanted:
        figures["curve"] = {"2^16": by_turns(python, 1 << 16 - less, "dh", rounds=1)}
    if "protocols" in wanted:
        others: tuple[Protocol, ...] = ("dh", "ot", "cardinality", "pseudonyms", "unsafe_salted_hash")
        figures["protocols"] = {
            **{name: one_process(1 << 17 - less, name) for name in others},
            "multi-party": multi_party(1 << 17 - less),
            "unbalanced": unbalanced(1 << 20 - less),
        }
    if "large" in wanted:
        figures["10^7 identifiers a side"] = run_two_processes(run_party, 10_000_000 >> less, timeout=3600)
    write("psi", figures)


def _ratio(slow: dict[str, Any], fast: dict[str, Any]) -> float | None:
    """How many times as long `slow` took; None where one is missing or was wrong."""
    if not (slow.get("exact") and fast.get("exact") and slow.get("seconds") and fast.get("seconds")):
        return None
    return float(slow["seconds"] / fast["seconds"])


def _cpu_ratio(slow: dict[str, Any], fast: dict[str, Any]) -> float | None:
    """How many times the CPU time of both parties `slow` took, start included; None where one is missing or wrong."""
    if _ratio(slow, fast) is None:
        return None
    ours, theirs = (sum(run[party]["CPU seconds"] for party in ("receiver", "sender")) for run in (slow, fast))
    return float(ours / theirs)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


if __name__ == "__main__":
    main()

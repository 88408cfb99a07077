"""Batched Paillier against gmpy2 and python-paillier, one core, all in one run.

    python -m benchmarks.crypto [--quick]

Keys of 2048 and 3072 bits. Products modulo n² on every code path of this machine, in turns with gmpy2's ``a * b % m``;
encryption under the public key (short exponents, and classical), encryption by the key's owner, and decryption, beside
python-paillier's. A packed value is one of as many 43-bit slots as a plaintext holds. Tables grow with use, so both are
measured: with the tables that a key begins with, and after `MANY` encryptions.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import time
from collections.abc import Callable

import securevfl_crypto as crypto
from gmpy2 import mpz
from securevfl_crypto.engine import available_paths
from securevfl_crypto.modular import modular_arithmetic

from benchmarks import skip
from benchmarks.common import write

phe = skip.needed("phe", "crypto")

VECTOR = ("ifma", "avx512", "avx2")
COUNT = 256
MANY = 1 << 15
SLOT = 43


def once(work: Callable[[], object]) -> float:
    """CPU-seconds of one call, on one thread."""
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU-seconds of each, round by round, after one that warms tables."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(once(work))
    return times


def products(bits: int, rounds: int) -> dict[str, object]:
    """Microseconds of a product modulo n², and the median over rounds of gmpy2's time over ours."""
    n = crypto.generate_keypair(bits).public.n
    n2 = n * n
    numbers = [mpz(secrets.randbelow(int(n2))) for _ in range(COUNT)]
    repeat = 40

    def plain() -> None:
        for a in numbers:
            for b in numbers[:repeat]:
                a * b % n2

    works: dict[str, Callable[[], object]] = {"gmpy2": plain}
    for path in (p for p in available_paths() if p in VECTOR):
        by = modular_arithmetic(n2, path, root=n)
        batch = by.from_ints(numbers)

        def multiply(by: object = by, batch: object = batch) -> None:
            for _ in range(repeat):
                by.mul(batch, batch)  # type: ignore[attr-defined]

        works[path] = multiply
    times = in_turns(works, rounds)
    each = COUNT * repeat
    return {
        "microseconds": {name: 1e6 * statistics.median(t) / each for name, t in times.items()},
        "gmpy2 / ours": {
            name: statistics.median(g / t for g, t in zip(times["gmpy2"], ours, strict=True))
            for name, ours in times.items()
            if name != "gmpy2"
        },
    }


def ciphers(bits: int, rounds: int, many: int) -> dict[str, object]:
    """Microseconds of an encryption and a decryption, from integers to bytes and back.

    Args:
        many: encryptions by each of two keys before the one with grown tables is measured.
    """
    secret = crypto.generate_keypair(bits)
    public = secret.public
    fresh = crypto.PaillierPublicKey(public.n, public.hs)
    numbers = [mpz(secrets.randbelow(int(public.n))) for _ in range(COUNT)]
    for _ in range(many // COUNT):
        public.encrypt_batch(numbers)
        secret.encrypt_batch(numbers)
    wire = public.store_ciphertexts(public.encrypt_batch(numbers))
    theirs, mine = phe.generate_paillier_keypair(n_length=bits)
    one = int(numbers[0])
    sealed = theirs.raw_encrypt(one)
    few = 8
    works: dict[str, tuple[Callable[[], object], int]] = {
        "encrypt, public key": (lambda: public.store_ciphertexts(public.encrypt_batch(numbers)), COUNT),
        "encrypt, public key, first tables": (lambda: fresh.store_ciphertexts(fresh.encrypt_batch(numbers)), COUNT),
        "encrypt, public key, tables scanned": (
            lambda: public.store_ciphertexts(public.encrypt_batch(numbers, constant_time=True)),
            COUNT,
        ),
        "encrypt, public key, classical": (
            lambda: public.store_ciphertexts(public.encrypt_batch(numbers[:64], classical=True)),
            64,
        ),
        "encrypt, owner": (lambda: public.store_ciphertexts(secret.encrypt_batch(numbers)), COUNT),
        "decrypt": (lambda: secret.decrypt_batch(public.load_ciphertexts(wire, COUNT)), COUNT),
        "python-paillier, encrypt": (lambda: [theirs.raw_encrypt(one) for _ in range(few)], few),
        "python-paillier, decrypt": (lambda: [mine.raw_decrypt(sealed) for _ in range(few)], few),
    }
    times = in_turns({name: work for name, (work, _) in works.items()}, rounds)
    each = {name: [t / works[name][1] for t in found] for name, found in times.items()}

    def ratio(theirs: str, ours: str) -> float:
        return statistics.median(t / o for t, o in zip(each[theirs], each[ours], strict=True))

    def ratio_of_leasts(theirs: str, ours: str) -> float:
        return min(each[theirs]) / min(each[ours])

    slots = (bits - 2) // SLOT
    encrypt = ratio("python-paillier, encrypt", "encrypt, public key")
    return {
        "microseconds": {name: 1e6 * statistics.median(t) for name, t in each.items()},
        "python-paillier / ours": {
            "encryption, public key, a ciphertext": encrypt,
            "encryption, public key, first tables": ratio(
                "python-paillier, encrypt", "encrypt, public key, first tables"
            ),
            "encryption, public key, a packed value": encrypt * slots,
            "encryption, owner, a ciphertext": ratio("python-paillier, encrypt", "encrypt, owner"),
            "decryption, a ciphertext": ratio("python-paillier, decrypt", "decrypt"),
        },
        "python-paillier / ours, least of all rounds": {
            "encryption, public key, a ciphertext": ratio_of_leasts("python-paillier, encrypt", "encrypt, public key"),
            "encryption, owner, a ciphertext": ratio_of_leasts("python-paillier, encrypt", "encrypt, owner"),
            "decryption, a ciphertext": ratio_of_leasts("python-paillier, decrypt", "decrypt"),
        },
        "slots of 43 bits": slots,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2048 bits, few rounds")
    quick = parser.parse_args().quick
    os.environ["SECUREVFL_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rounds = 3 if quick else 9
    content: dict[str, object] = {"cores": 1}
    for bits in (2048,) if quick else (2048, 3072):
        content[f"{bits} bits"] = {
            "product modulo n²": products(bits, rounds),
            "Paillier": ciphers(bits, rounds, 4 * COUNT if quick else MANY),
        }
    write("crypto-quick" if quick else "crypto", content)


if __name__ == "__main__":
    main()

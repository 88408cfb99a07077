"""What a guard rates: bits of security by tables that stand in a standard, and nothing beyond them."""

from __future__ import annotations

import pytest
import securevfl_crypto as crypto

from securevfl.transport import Guard


@pytest.mark.parametrize(
    ("cipher", "bits", "security"),
    [
        ("bfv", 0, 0),
        ("bfv", 168, 128),
        ("bfv", 218, 128),  # Homomorphic Encryption Standard, table 1: N = 8192, ternary secret, 128 bits
        ("bfv", 219, 0),
        ("ckks", 438, 0),  # the standard has this for N = 16384, which no key here has
        ("ckks", 881, 0),
        ("paillier", 1024, 80),
        ("paillier", 2047, 80),
        ("paillier", 3072, 128),
        ("paillier", 1 << 20, 0),
        ("masked", 40, 40),
        ("none", 4096, 0),
    ],
)
def test_security_of_sizes(cipher: str, bits: int, security: int) -> None:
    assert Guard(cipher, bits, "k").security_bits == security


@pytest.mark.parametrize("scheme", [crypto.BFV(), crypto.CKKS()], ids=lambda scheme: scheme.name)
def test_every_modulus_of_the_schemes_is_rated_as_the_schemes_rate_it(scheme: crypto.BFV | crypto.CKKS) -> None:
    """Also counted with the special prime, which nothing here is encrypted under."""
    for chain in scheme.chains:
        assert Guard(scheme.name, chain.data_bits, "k").security_bits == 128
        assert Guard(scheme.name, sum(chain.sizes), "k").security_bits == 128

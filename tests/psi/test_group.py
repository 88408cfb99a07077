"""The group: X25519 by RFC 7748's vectors, and the points of small order."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from support.small_order import SMALL_ORDER, P


@pytest.mark.parametrize(("value", "order"), SMALL_ORDER.items())
def test_the_points_of_small_order_have_small_order(value: int, order: int) -> None:
    """Doubling by coordinates only, ``(x² − 1)² / 4x(x² + Jx + 1)``: the same on the curve and on its twist."""
    steps = 1
    while (below := 4 * value * (value * value + 486662 * value + 1) % P) != 0:
        value = (value * value - 1) ** 2 * pow(below, -1, P) % P
        steps += 1
    assert 2**steps == order


def _x25519(scalar: bytes, point: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(point))


@pytest.mark.parametrize(
    ("scalar", "point", "expected"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        # section 6.1: Alice's secret with Bob's public key, then the other way round
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
        (
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    ],
)
def test_vectors_of_rfc_7748(scalar: str, point: str, expected: str) -> None:
    """RFC 7748, sections 5.2 and 6.1."""
    assert _x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == expected


def test_iterated_vector_of_rfc_7748() -> None:
    """RFC 7748, section 5.2: after one and after 1,000 iterations."""
    scalar = point = bytes([9]) + bytes(31)
    scalar, point = _x25519(scalar, point), scalar
    assert scalar.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    for _ in range(999):
        scalar, point = _x25519(scalar, point), scalar
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"

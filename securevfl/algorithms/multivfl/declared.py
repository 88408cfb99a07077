"""Every message of the aggregation, declared before it is sent; those of the federations are the cut's.

Messages between label owners are optional: a job with one label owner has none.
"""

from __future__ import annotations

from securevfl.transport import ACTIVE, COORDINATOR, Exchange, Kind, PartyRole, Severity

__all__ = ["MEAN", "blind_exchanges", "masked_exchanges"]

_CHANGE = "in each round the mean over label owners of the change of their weights"
MEAN = f"{_CHANGE}; of two, each takes its own off it and has the other's change, which tells which classes it has"
"""What the other label owners learn about one. A leak: nothing here knows how many they are, and with two it is one."""

_SEED = Exchange("multi/seed", Kind.PUBLIC_KEY, ACTIVE, ACTIVE, "public key for pairwise masks", optional=True)
_WEIGHTS = "weights of the label owners' model"


def masked_exchanges() -> tuple[Exchange, ...]:
    """Messages if the coordinator adds up masked changes: it steps the server optimiser and sends the weights."""
    return (
        _SEED,
        Exchange("multi/weights", Kind.STATISTIC, ACTIVE, COORDINATOR, _WEIGHTS),
        Exchange("multi/weights", Kind.STATISTIC, COORDINATOR, ACTIVE, _WEIGHTS),
        Exchange(
            "multi/change",
            Kind.MASKED_SHARE,
            ACTIVE,
            COORDINATOR,
            "change of the weights, masked",
            reveals=f"{_CHANGE}, and never its own alone",
            severity="note",
        ),
    )


def blind_exchanges(scheme: str, key_bits: int, *, shares: bool) -> tuple[Exchange, ...]:
    """Messages if the coordinator adds up ciphertexts: the first label owner opens the sum and sends the mean.

    Args:
        scheme: that adds up.
        key_bits: least size of a Paillier modulus; 0 for other schemes.
        shares: whether shares of the cut's weights are also averaged.
    """

    def declare_sealed(
        step: str, sender: PartyRole, receiver: PartyRole, words: str, reveals: str = "", severity: Severity = "ok"
    ) -> Exchange:
        ciphers = frozenset({scheme})
        return Exchange(
            step, Kind.CIPHERTEXT, sender, receiver, words, reveals, severity, ciphers=ciphers, key_bits=key_bits
        )

    found = [
        _SEED,
        Exchange("multi/key", Kind.PUBLIC_KEY, ACTIVE, ACTIVE, "public key of the aggregation", optional=True),
        Exchange("multi/key", Kind.PUBLIC_KEY, ACTIVE, COORDINATOR, "public key of the aggregation"),
        Exchange("multi/weights", Kind.STATISTIC, ACTIVE, ACTIVE, _WEIGHTS, optional=True),
        declare_sealed(
            "multi/change",
            ACTIVE,
            COORDINATOR,
            "change of the weights, masked",
            "sizes and timing of ciphertexts; nothing of the weights, nor of their changes' sum",
        ),
        declare_sealed("multi/change sum", COORDINATOR, ACTIVE, "sum of the changes"),
        Exchange(
            "multi/mean", Kind.STATISTIC, ACTIVE, ACTIVE, "mean change of the weights", MEAN, "leak", optional=True
        ),
    ]
    if shares:
        mean = "mean of the weight shares V"
        found += [
            declare_sealed("multi/shares", ACTIVE, COORDINATOR, "weight shares V, masked"),
            declare_sealed("multi/shares sum", COORDINATOR, ACTIVE, "sum of the weight shares V"),
            Exchange("multi/shares mean", Kind.MASKED_SHARE, ACTIVE, ACTIVE, mean, optional=True),
        ]
    return tuple(found)

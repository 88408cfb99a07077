"""Every message of the plain and the sealed cut, declared before it is sent. Protections build their `exchanges` from
these; receipts, refusals, findings and links read them."""

from __future__ import annotations

from dataclasses import dataclass

from securevfl.cut.leakage import Revealed, describe_features, describe_labels, describe_others_columns
from securevfl.cut.spec import CutUse
from securevfl.privacy import DP
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, PartyRole, Severity, Sight

__all__ = ["Ciphers", "measuring_exchanges", "plain_exchanges", "sealed_exchanges"]

_SETUP = Exchange("cut/setup", Kind.CONTROL, PASSIVE, ACTIVE, "width of the activations")


def plain_exchanges(dp: DP | None, use: CutUse, passive: int) -> tuple[Exchange, ...]:
    """Of a cut without encryption; none without passive parties.

    Args:
        dp: differential privacy of the job.
        use: what the algorithm asks of the cut.
        passive: number of passive parties.
    """
    if not passive:
        return ()
    features = dp is not None and dp.features is not None
    up = _describe_features(dp, use, passive, sealed=False)
    down = describe_labels(dp, sealed=False, trainable=use.trainable, parties=passive)
    across = describe_others_columns(dp, sealed=False, trainable=use.trainable, parties=passive)
    return (
        _SETUP,
        Exchange(
            "cut/forward",
            Kind.ACTIVATION,
            PASSIVE,
            ACTIVE,
            "activations at the cut",
            reveals=up.text,
            severity=up.severity,
            sights=up.sights,
            noised=features,
        ),
        Exchange(
            "cut/backward",
            Kind.GRADIENT,
            ACTIVE,
            PASSIVE,
            "gradient at the cut",
            reveals=down.text,
            severity=down.severity,
            of_others="" if across is None else across.text,
            others_severity="ok" if across is None else across.severity,
            sights=down.sights,
            others_sights=() if across is None else across.sights,
            noised=dp is not None and dp.gradient_noise is not None,
        ),
    )


def _describe_features(dp: DP | None, use: CutUse, passive: int, *, sealed: bool) -> Revealed:
    """What the active party learns of features."""
    return describe_features(
        dp,
        sealed=sealed,
        trainable=use.trainable,
        frozen=use.frozen,
        parties=passive,
        together=use.together,
        alone=use.alone,
        differing=use.differing,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ciphers:
    """What a sealed cut's content may cross under.

    Attributes:
        names: of the schemes.
        key_bits: least size of a Paillier modulus; 0 where none of them is Paillier.
        reshares: whether shares of the weights are drawn anew in each step: True and False where all schemes do or do
            not; None where it depends on sizes, or on which scheme the parties agree on.
    """

    names: frozenset[str]
    key_bits: int = 0
    reshares: bool | None = True

    def declare_ciphertext(
        self,
        step: str,
        sender: PartyRole,
        words: str,
        *,
        opened: Kind | None = None,
        reveals: str = "",
        severity: Severity = "ok",
        of_others: str = "",
        others_severity: Severity = "ok",
        noised: bool = False,
        sights: tuple[Sight, ...] = (),
        others_sights: tuple[Sight, ...] = (),
    ) -> Exchange:
        """A ciphertext between the active party and a passive one.

        Args:
            step: see `Exchange`, as all that follow.
            sender: role of the one that sends it; the other receives it.
            words: what it is.
            opened: what the key's owner reads of it.
            reveals: what its receiver learns.
            severity: of that.
            of_others: what its receiver learns about the other parties of its role.
            others_severity: of that.
            noised: whether it carries noise.
            sights: what its receiver learns, taken apart.
            others_sights: likewise of the others.
        """
        return Exchange(
            step,
            Kind.CIPHERTEXT,
            sender,
            PASSIVE if sender == ACTIVE else ACTIVE,
            words,
            reveals=reveals,
            severity=severity,
            of_others=of_others,
            others_severity=others_severity,
            ciphers=self.names,
            key_bits=self.key_bits,
            opened=opened,
            noised=noised,
            sights=sights,
            others_sights=others_sights,
        )


def sealed_exchanges(dp: DP | None, ciphers: Ciphers, use: CutUse, passive: int) -> tuple[Exchange, ...]:
    """Of the sealed cut; none without passive parties.

    Args:
        dp: differential privacy of the job.
        ciphers: what content may cross under.
        use: what the algorithm asks of the cut.
        passive: number of passive parties.
    """
    if not passive:
        return ()
    features, labels = dp is not None and dp.features is not None, dp is not None and dp.gradient_noise is not None
    up = _describe_features(dp, use, passive, sealed=True)
    down = describe_labels(dp, sealed=True, trainable=use.trainable, parties=passive)
    across = describe_others_columns(dp, sealed=True, trainable=use.trainable, parties=passive)
    found = [_SETUP]
    if use.together and passive > 1:
        found.append(Exchange("cut/seed", Kind.PUBLIC_KEY, PASSIVE, PASSIVE, "public key for pairwise masks"))
    found += [
        Exchange("cut/public key", Kind.PUBLIC_KEY, ACTIVE, PASSIVE, "public key"),
        ciphers.declare_ciphertext("cut/weights", ACTIVE, "weight share V"),
        ciphers.declare_ciphertext(
            "cut/forward",
            PASSIVE,
            "activations at the cut",
            opened=Kind.ACTIVATION,
            reveals=up.text,
            severity=up.severity,
            sights=up.sights,
            noised=features,
        ),
        ciphers.declare_ciphertext(
            "cut/backward",
            ACTIVE,
            "gradient at the cut",
            reveals="" if use.trainable else down.text,
            severity="ok" if use.trainable else down.severity,
            sights=() if use.trainable else down.sights,
            noised=labels,
        ),
        ciphers.declare_ciphertext("cut/weight gradient", PASSIVE, "weight gradient, masked"),
    ]
    if use.trainable:
        found += [
            Exchange("cut/passive key", Kind.PUBLIC_KEY, PASSIVE, ACTIVE, "public key"),
            ciphers.declare_ciphertext("cut/passive share", PASSIVE, "weight share U"),
            ciphers.declare_ciphertext(
                "cut/input gradient",
                ACTIVE,
                "gradient at the activations",
                opened=Kind.GRADIENT,
                reveals=down.text,
                severity=down.severity,
                of_others="" if across is None else across.text,
                others_severity="ok" if across is None else across.severity,
                sights=down.sights,
                others_sights=() if across is None else across.sights,
                noised=labels,
            ),
        ]
    if ciphers.reshares is not False:
        found.append(
            Exchange(
                "cut/reshare",
                Kind.MASKED_SHARE,
                PASSIVE,
                ACTIVE,
                "change of the weight shares",
                optional=ciphers.reshares is None,
            )
        )
    return tuple(found)


def measuring_exchanges(passive: int, *, probes: bool) -> tuple[Exchange, ...]:
    """Of the choice of a scheme by measurement; none without passive parties.

    Args:
        passive: number of passive parties.
        probes: whether links are timed too.
    """
    if not passive:
        return ()
    words = "zeros, to time the link"
    timed = (
        Exchange("cut/probe", Kind.CONTROL, ACTIVE, PASSIVE, words),
        Exchange("cut/probe", Kind.CONTROL, PASSIVE, ACTIVE, words),
    )
    return (
        Exchange("cut/measured", Kind.CONTROL, PASSIVE, ACTIVE, "its speed, for protection auto"),
        *(timed if probes else ()),
        Exchange("cut/choice", Kind.CONTROL, ACTIVE, PASSIVE, "the scheme that was chosen"),
    )

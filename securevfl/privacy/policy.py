"""A party's policy: the least protection it accepts. A forbidden message is an error before a byte is sent, and
whatever a policy does not know is forbidden.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from msgspec import Meta, structs

from securevfl.config import Config
from securevfl.errors import FewCommonRows, PolicyError
from securevfl.transport import NO_GUARD, Guard, Kind

if TYPE_CHECKING:
    from securevfl.transport import Array, Message

__all__ = ["DEFAULT_RESULTS", "READABLE_KINDS", "SCHEMES", "SHARES", "Policy", "protection_of", "quote_names"]

READABLE_KINDS = frozenset({Kind.ACTIVATION, Kind.GRADIENT, Kind.REPRESENTATION})
"""Kinds whose unguarded content reveals single rows."""

SCHEMES = frozenset({"bfv", "ckks", "paillier"})
"""Ciphers that encrypt content under a party's key."""

SHARES = "shares"
"""Name, in job files, of the protection that sends secret shares."""

DEFAULT_RESULTS = 2
"""Numbers of each row that an asker may have, ever, where the policy names no bound: one answer of a test, and one when
it counts."""

_CIPHERS = SCHEMES | {"blinded", "masked", "none"}
_DEFAULT_SECURITY = 112
_REMEMBERED = 1024

Bits = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


def quote_names(names: Iterable[str]) -> str:
    """Names for a message, sorted: ``'bfv', 'ckks' or 'paillier'``."""
    *others, last = map(repr, sorted(names))
    return f"{', '.join(others)} or {last}" if others else last


def protection_of(cipher: str) -> str:
    """The job file's name for the protection that uses a cipher: ``"plain"`` for none."""
    return "plain" if cipher == "none" else cipher


class Policy(Config, dict=True):  # instances need a __dict__ for the cache in `_cleared`
    """What a party may send and accept; checked against the job before it starts and on every message.

    Attributes:
        sealed: row-level content (activations, gradients, representations) may cross only encrypted or masked.
        protections: protections that may carry content, by their names in job files (``"plain"``, ``"paillier"``,
            ``"bfv"``, ``"ckks"``, ``"shares"``), or None for all known ones.
        noised: kinds of which every message must carry differentially private noise. Encrypted content counts as what
            the owner of the key decrypts: z as activations, the gradient of a bottom with parameters as gradients.
        forbidden: kinds that may not leave at all.
        leaks: whether a job may run although, by the threat model, somebody can read this party's data.
        min_key_bits: smallest Paillier key under which this party encrypts or is encrypted for.
        min_security: fewest bits of security of any cipher, see `Guard.security_bits`. 112 leaves Paillier to
            `min_key_bits`; larger values require longer keys (128: 3072 bits).
        min_masking: fewest bits of statistical security of a mask.
        min_intersection: fewest common rows with which the party continues: smaller intersections single people out.
        max_epsilon: largest ε that its releases may add up to, or None for no bound. With a bound, a job that releases
            content without differential privacy is refused before it begins, because its ε is infinite.
        max_delta: largest δ that a release may be counted with if `max_epsilon` is set: with a large δ, a small ε
            promises nothing.
        pairwise_intersections: whether, among more than two parties, the active party may learn which rows it shares
            with this one; only algorithms with a label book need it.
        computing: the parties that may receive secret shares of this party's data, or None for any. It trusts that no
            two of them pool their shares. The job names the computing parties.
        max_set_size: most rows that a peer may announce for alignment.
        max_results: most numbers of any one row of this party that an asker, an organisation, may have: ever, over all
            jobs, predictions and models that are served. A number is one real value that depends on the row: z of width
            h is h of them, logits of K > 2 classes are K, the class alone or a number is 1. ``"unlimited"`` for no
            bound. None, the default, is `DEFAULT_RESULTS`, which refuses between organisations; in a simulation, where
            one person sees everything, it is only noted. See `securevfl.privacy.opened_values` for what numbers reveal.
        max_looks: deprecated, and read for one release: a bound of so many numbers for each of the party's columns.
            Write `max_results`.
        few_rows: whether a job on shares that says `few_rows` may train with fewer than 400 training and 200 validation
            rows, or fewer than 20 validation rows of a class. Whoever knows that many rows of a column of this party
            can train on it alone, as its label. Not written, it may not, except in a simulation, which warns.
        useful: ``"off"`` accepts a job on shares whose model answers although it does not predict better with this
            party's columns than without, see `securevfl.shares.usefulness`. Not written, or ``"required"``, such a job
            is refused, except in a simulation, which warns.
        tell_speed: whether alignment by ``auto`` may tell peers how fast this machine computes, which shows its class
            of CPU.

    A policy checks the kind, the guard and the noise that the sending code declares for a message. It trusts the
    installed code: it cannot detect an algorithm that sends features as whole-number settings. With `sealed`, `noised`
    or ``leaks=False``, control messages may not contain floating point arrays.
    """

    sealed: bool = False
    protections: frozenset[Literal["bfv", "ckks", "paillier", "plain", "shares"]] | None = None
    noised: frozenset[Kind] = frozenset()
    forbidden: frozenset[Kind] = frozenset()
    leaks: bool = True
    min_key_bits: Bits = 2048
    min_security: Annotated[int, Meta(ge=0, le=256, description="no cipher here has more; use 112 or 128")] = (
        _DEFAULT_SECURITY
    )
    min_masking: Bits = 40
    min_intersection: Count = 10
    max_epsilon: Annotated[float, Meta(gt=0, description="leave it out for no bound")] | None = None
    max_delta: Annotated[float, Meta(gt=0, lt=1, description="well below one over the number of rows")] = 1e-4
    pairwise_intersections: bool = True
    computing: frozenset[str] | None = None
    max_set_size: Count = 1 << 24
    max_results: Annotated[int, Meta(ge=1, le=1 << 28)] | Literal["unlimited"] | None = None
    max_looks: Annotated[float, Meta(gt=0, le=1e6, description="write max_results instead")] | None = None
    few_rows: bool | None = None
    useful: Literal["required", "off"] | None = None
    tell_speed: bool = True

    @property
    def guards_rows(self) -> bool:
        """Return True if the policy requires row-level content to be encrypted, noised or without known leaks."""
        return self.sealed or bool(self.noised) or not self.leaks

    @classmethod
    def refuse_keywords(cls, values: Mapping[str, object], where: str = "") -> None:
        super().refuse_keywords(values, where)
        if values.get("max_looks") is not None and not where:  # a file's values come here again, without their place
            warnings.warn(
                f"max_looks = {values['max_looks']} is read as so many numbers for each of the party's columns, "
                "rounded down, and goes with the next release: write max_results, the most numbers of each row",
                FutureWarning,
                stacklevel=3,
            )

    @property
    def writes_bound(self) -> bool:
        """Whether the policy itself says how many numbers of a row an asker may have: then that holds in simulations,
        too."""
        return self.max_results is not None or self.max_looks is not None

    @property
    def allowed_results(self) -> int | None:
        """Numbers of each row that an asker may have, ever; None for any number. `allowed_numbers` also reads the
        deprecated `max_looks`.
        """
        if self.max_results is None:
            return DEFAULT_RESULTS
        return None if self.max_results == "unlimited" else self.max_results

    def allowed_numbers(self, columns: int) -> int | None:
        """Numbers of each row that an asker may have, ever; None for any number.

        Args:
            columns: how many columns the party's table has, which `max_looks` counts by; 0 where that is not known.
        """
        if self.max_looks is None:
            return self.allowed_results
        # 0.1 × 30 is 3 less a rounding error, and must allow 3.
        looks = math.floor(self.max_looks * columns + 1e-9) if columns else None
        bounds = [n for n in (looks, self.max_results) if isinstance(n, int)]
        return min(bounds) if bounds else None

    def problems(self) -> list[str]:
        found = super().problems()
        if Kind.CONTROL in self.forbidden:
            found.append(
                "forbidden holds 'control': without such messages not even a refusal can be sent; leave it out"
            )
        return found

    @cached_property
    def _passed_guards(self) -> dict[tuple[int, int, bool], Guard]:
        """Guards that passed before, by identity of guard and kind and by direction: cheaper than hashing their
        content. Keeping a reference to the guard prevents its `id` from being reused.
        """
        return {}

    def check_message(self, message: Message, peer: str) -> None:
        """Refuse to send a message that this policy forbids.

        Raises:
            PolicyError: which rule the message breaks, and the cure.
        """
        if self._passed_guards.get((id(message.guard), id(message.kind), True)) is not NO_GUARD:
            self._check_message(message, peer, sent=True)

    def check_received(self, message: Message, peer: str) -> None:
        """Refuse a received message that is protected less than this policy demands: one in the clear, or under a weak
        key. `forbidden` applies to outgoing messages only.

        Raises:
            PolicyError: which rule the message breaks, and the cure.
        """
        if self._passed_guards.get((id(message.guard), id(message.kind), False)) is not NO_GUARD:
            self._check_message(message, peer, sent=False)

    def _check_message(self, message: Message, peer: str, *, sent: bool) -> None:
        kind, guard = message.kind, message.guard
        if kind is Kind.CONTROL:
            self._check_control(message, _describe_message(message, peer, sent))
        if guard.cipher not in ("none", "blinded"):  # blinded sets are checked by the engine that receives them
            for name, array in message.arrays.items():
                if not _has_cipher_dtype(array, guard.cipher):
                    raise PolicyError(
                        f"{_describe_message(message, peer, sent)} claims to be {guard.description}, but array "
                        f"{name!r} is {array.dtype}, not a "
                        f"{'ciphertext' if guard.cipher in SCHEMES else 'masked number'}: the content is in the "
                        "clear"
                    )
        key = (id(guard), id(kind), sent)
        if self._passed_guards.get(key) is guard:
            return
        self._check_cipher(message, peer, sent)
        self._check_content(message, peer, sent)
        if kind is Kind.CONTROL and self.guards_rows:
            return  # not cached: each control message's arrays must be inspected
        if len(self._passed_guards) >= _REMEMBERED:
            self._passed_guards.clear()
        self._passed_guards[key] = guard

    def _check_control(self, message: Message, which: str) -> None:
        """Refuse floating point arrays in control messages. Settings and row numbers are whole numbers; floats are
        content that escapes the checks for encryption and noise.
        """
        if not self.guards_rows:
            return
        for name, array in message.arrays.items():
            if not _is_integral(array):
                raise PolicyError(
                    f"{which} is a message of kind 'control', but its array {name!r} is {array.dtype}: such "
                    "numbers are content, and the policy demands content sealed, noised or without a known "
                    "leak; send them under their own kind, such as 'activation' or 'statistic'"
                )

    def _check_cipher(self, message: Message, peer: str, sent: bool) -> None:
        """Check that the cipher is known, strong enough and accepted by this party."""
        guard, which = message.guard, _describe_message(message, peer, sent)
        cipher = guard.cipher
        if cipher not in _CIPHERS:
            raise PolicyError(
                f"{which} is under {cipher!r:.40}, which the policy does not know; it knows "
                f"{', '.join(sorted(_CIPHERS))}"
            )
        if message.kind is Kind.CIPHERTEXT and cipher not in SCHEMES:
            raise PolicyError(
                f"{which} is of kind ciphertext but is {guard.description}: "
                f"expected one of {', '.join(sorted(SCHEMES))}"
            )
        if message.kind is Kind.SHARE and cipher != "masked":
            raise PolicyError(f"{which} is of kind share but is {guard.description}: expected 'masked'")
        if cipher == "paillier" and guard.bits < self.paillier_bits:
            raise PolicyError(
                f"{which} is under a Paillier key of {guard.bits} bits; the policy demands at least "
                f"{self.paillier_bits}"
            )
        least = self.min_masking if cipher == "masked" else self.min_security
        if cipher not in ("none", "paillier") and guard.security_bits < least:
            raise PolicyError(
                f"{which} is {guard.description}, which gives {guard.security_bits} bits of security; "
                f"the policy demands {least}"
            )
        content = message.kind in READABLE_KINDS or message.kind is Kind.SHARE or cipher in SCHEMES
        named = SHARES if message.kind is Kind.SHARE else protection_of(cipher)
        if content and self.protections is not None and named not in self.protections:
            raise PolicyError(
                f"{which} is {guard.description}; the policy accepts {', '.join(sorted(self.protections)) or 'nothing'}"
            )

    def _check_content(self, message: Message, peer: str, sent: bool) -> None:
        """Check what a message of this kind requires, and whether it may leave."""
        kind, guard, which = message.kind, message.guard, _describe_message(message, peer, sent)
        if sent and kind in self.forbidden:
            raise PolicyError(f"{which} is a message of kind {kind.value!r}, which the policy forbids")
        if self.sealed and kind in READABLE_KINDS and guard.cipher == "none":
            raise PolicyError(
                f"{which} contains {kind.value}s in the clear, but the policy demands them sealed; use "
                f"protection {quote_names(SCHEMES)}, or another policy"
            )
        if kind in self.noised and not guard.noise > 0:
            raise PolicyError(
                f"{which} contains {kind.value}s without noise, but the policy demands differential privacy; "
                "add dp=… to the protection"
            )

    @property
    def paillier_bits(self) -> int:
        """Smallest Paillier key that `min_key_bits` and `min_security` together accept."""
        if self.min_security <= _DEFAULT_SECURITY:
            return self.min_key_bits
        enough = (
            bits for bits in (2048, 3072, 7680, 15360) if Guard("paillier", bits).security_bits >= self.min_security
        )
        return max(self.min_key_bits, next(enough))

    def check_epsilon(self, epsilon: float, what: str, delta: float = 0.0) -> None:
        """Refuse a plan whose releases add up to more than `max_epsilon`, or whose δ exceeds `max_delta`.

        Args:
            epsilon: planned ε.
            what: what is released, in words.
            delta: δ with which ε is counted.

        Raises:
            PolicyError: the planned ε or δ, and the bound.
        """
        if self.max_epsilon is not None and delta > self.max_delta:
            raise PolicyError(
                f"releasing {what} as planned counts ε at δ = {delta:.3g}; the policy allows δ up to "
                f"{self.max_delta:.3g}: set delta in the mechanism well below one over the number of rows"
            )
        # Negated, so that a NaN is refused; the tolerance absorbs the accountants' rounding.
        if self.max_epsilon is not None and not epsilon <= self.max_epsilon * (1 + 1e-6):
            raise PolicyError(
                f"releasing {what} as planned spends ε = {epsilon:.3g}; the policy allows {self.max_epsilon:.3g}: "
                "more noise, or fewer epochs"
            )

    def check_intersection(self, count: int) -> None:
        """Refuse fewer common rows than `min_intersection`.

        Raises:
            FewCommonRows: the count and the bound.
        """
        if count < self.min_intersection:
            raise FewCommonRows(
                f"the parties have {count} common rows; the policy demands at least {self.min_intersection}"
            )

    def combine_strictest(self, other: Policy) -> Policy:
        """Combine two policies: in each setting, the stricter of the two."""
        bounds = [bound for bound in (self.max_epsilon, other.max_epsilon) if bound is not None]
        looks = [bound for bound in (self.max_looks, other.max_looks) if bound is not None]
        accepted = [names for names in (self.protections, other.protections) if names is not None]
        trusted = [names for names in (self.computing, other.computing) if names is not None]
        found = self.replace(
            sealed=self.sealed or other.sealed,
            protections=frozenset.intersection(*accepted) if accepted else None,
            noised=self.noised | other.noised,
            forbidden=self.forbidden | other.forbidden,
            leaks=self.leaks and other.leaks,
            min_key_bits=max(self.min_key_bits, other.min_key_bits),
            min_security=max(self.min_security, other.min_security),
            min_masking=max(self.min_masking, other.min_masking),
            min_intersection=max(self.min_intersection, other.min_intersection),
            max_epsilon=min(bounds) if bounds else None,
            max_delta=min(self.max_delta, other.max_delta),
            pairwise_intersections=self.pairwise_intersections and other.pairwise_intersections,
            computing=frozenset.intersection(*trusted) if trusted else None,
            max_set_size=min(self.max_set_size, other.max_set_size),
            max_results=_stricter_results(self.max_results, other.max_results),
            max_looks=None,
            few_rows=_both(self.few_rows, other.few_rows),
            useful=_stricter_usefulness(self.useful, other.useful),
            tell_speed=self.tell_speed and other.tell_speed,
        )
        if looks:
            structs.force_setattr(found, "max_looks", min(looks))  # as read: the warning was given then
        return found

    def text(self) -> str:
        """One line for ledgers and reports."""
        default, allowed = _DEFAULT, self.allowed_results
        known = (
            (self.min_security != default.min_security, f"security >= {self.min_security} bits"),
            (True, f"keys >= {self.paillier_bits} bits"),
            (True, f"intersection >= {self.min_intersection}"),
            (self.min_masking != default.min_masking, f"masks >= {self.min_masking} bits"),
            (self.max_set_size != default.max_set_size, f"sets <= {self.max_set_size} rows"),
            (not self.pairwise_intersections, "no pairwise intersection"),
            (not self.tell_speed, "speed untold"),
            (self.sealed, "row-level content sealed"),
            (self.protections is not None, "only " + _list(self.protections or ())),
            (self.computing is not None, "shares only among " + (_list(self.computing or (), "nobody"))),
            (bool(self.noised), "noise on " + _list(kind.value for kind in self.noised)),
            (bool(self.forbidden), "never " + _list(kind.value for kind in self.forbidden)),
            (not self.leaks, "no known leak"),
            (self.max_epsilon is not None, f"ε <= {self.max_epsilon or 0:g} at δ <= {self.max_delta:g}"),
            (
                self.max_results is not None or self.max_looks is None,
                f"numbers of a row {'without limit' if allowed is None else f'<= {allowed}'}"
                + ("" if self.writes_bound else " (default)"),
            ),
            (self.max_looks is not None, f"numbers of a row <= {self.max_looks or 0:g} a column"),
            (bool(self.few_rows), "few rows on shares"),
            (self.useful == "off", "answers of models that are not useful"),
        )
        return "; ".join(text for said, text in known if said)


_DEFAULT = Policy()


def _list(names: Iterable[str], nothing: str = "nothing") -> str:
    return ", ".join(sorted(names)) or nothing


def _stricter_usefulness(
    one: Literal["required", "off"] | None, other: Literal["required", "off"] | None
) -> Literal["required", "off"] | None:
    """``"off"`` where both, or the only one that says something, say so."""
    if one is None or other is None or one == other:
        return one or other
    return "required"


def _both(one: bool | None, other: bool | None) -> bool | None:
    """Whether both allow what they say something about; None where neither does."""
    said = [each for each in (one, other) if each is not None]
    return all(said) if said else None


def _stricter_results(
    one: int | Literal["unlimited"] | None, other: int | Literal["unlimited"] | None
) -> int | Literal["unlimited"] | None:
    """The stricter of two bounds that were written; None where neither was."""
    numbers = [bound for bound in (one, other) if isinstance(bound, int)]
    return min(numbers) if numbers else one or other


def _describe_message(message: Message, peer: str, sent: bool) -> str:
    return f"{message.what!r:.80} {'to' if sent else 'from'} {peer!r}"


def _is_integral(array: Array) -> bool:
    """Return True if an array contains integers or booleans."""
    return _number_type(array).startswith(("int", "uint", "bool"))


def _has_cipher_dtype(array: Array, cipher: str) -> bool:
    """Return True if an array's type matches its cipher: bytes for ciphertexts, integers for masked numbers."""
    name = _number_type(array)
    return name == "uint8" if cipher in SCHEMES else name.startswith(("int", "uint"))


def _number_type(array: Array) -> str:
    """Return the name of the type of an array's numbers; numpy and torch call them alike: ``"uint8"``."""
    return _name_type(array.dtype)


@lru_cache(maxsize=64)
def _name_type(dtype: object) -> str:
    """The name of a type; numpy takes microseconds to make one, and every message is checked by it."""
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")

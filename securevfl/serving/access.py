"""Authentication and limits: every HTTP request passes them before anybody is scored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from securevfl_net.networks import network_of

from securevfl.report.printed_scores import print_score
from securevfl.serving.limits import Buckets, RequestLimits
from securevfl.serving.metrics import ServingMetrics
from securevfl.serving.policy import Refusal
from securevfl.serving.reasons import ReasonsOfScore
from securevfl.serving.schema import ExplainedNumber, ExplainedScore, Predicted, Problem, Reasons, Score, ScoreReason
from securevfl.serving.scoring import Answer, ScoringRouter, UnknownCustomer
from securevfl.serving.tokens import SCOPES, Scope, TokenClient, TokenFile

__all__ = ["AccessControl", "Denied", "Response"]

Response = tuple[int, Score | Predicted | Problem, float]
"""An HTTP status, the response, and seconds to wait; 0 if waiting does not help."""

_ANYBODY = TokenClient("anybody", frozenset(SCOPES))


class Denied(Exception):
    """A request that is answered with a status and a reason.

    Attributes:
        status: of HTTP.
        problem: returned to the client.
        wait: seconds to wait; 0 where waiting does not help.
    """

    def __init__(self, status: int, problem: Problem, wait: float = 0.0) -> None:
        self.status, self.problem, self.wait = status, problem, wait
        super().__init__(problem.reason)


class AccessControl:
    """Clients, their scopes and limits.

    Args:
        desk: answers.
        metrics: counts what is refused.
        tokens: of the clients that may send requests; None admits everybody, which is for loopback.
        limits: per client and per customer.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        desk: ScoringRouter,
        metrics: ServingMetrics,
        *,
        tokens: TokenFile | None = None,
        limits: RequestLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.desk = desk
        self.server = desk.server
        self.metrics = metrics
        self.limits = bounds = limits or RequestLimits()
        self._tokens = tokens
        self._requests = _request_buckets(bounds.client_requests_per_second, now)
        self._addresses = _request_buckets(bounds.address_requests_per_second, now)
        self._clients: Buckets[str] = Buckets(bounds.client_rows_per_minute / 60, bounds.client_burst, now=now)
        self._customers: Buckets[str] = Buckets(bounds.customer_scores_per_minute / 60, bounds.customer_burst, now=now)

    def identify_client(self, scope: Scope, authorization: str, certificate: bytes | None) -> TokenClient:
        """Identify the client.

        Args:
            scope: what for.
            authorization: the header; empty without one.
            certificate: the client's (DER), where TLS asked for one.

        Raises:
            Denied: 401 for nobody who is known, 403 for a client that may not, 429 for one that asks too often.
        """
        found = self._find_client(authorization, certificate)
        if found is None:
            raise Denied(401, Problem(reason="give a token that is known: Authorization: Bearer svfl_…"))
        if scope not in found.scopes:
            raise Denied(403, Problem(reason=f"this client may not {scope}: its token has other scopes"))
        wait = self._requests.take(found.name)
        if wait:
            self.metrics.limited.labels("client").inc()
            words = f"at most {self.limits.client_requests_per_second:g} requests a second"
            raise Denied(429, Problem(reason=words, rule="client"), wait)
        return found

    def address_wait(self, address: str) -> float:
        """Count a request from a network address; returns the seconds that it has to wait first, 0 if none."""
        wait = self._addresses.take(network_of(address))
        if wait:
            self.metrics.limited.labels("address").inc()
        return wait

    def _find_client(self, authorization: str, certificate: bytes | None) -> TokenClient | None:
        if self._tokens is None:
            return _ANYBODY
        found = None if certificate is None else self._tokens.find_certificate_client(certificate)
        kind, _, token = authorization.partition(" ")
        if found is None and kind.lower() == "bearer":
            found = self._tokens.find_client(token.strip())
        return found

    async def score(self, client: TokenClient, customers: Sequence[str]) -> list[Response]:
        """Answer each customer's request.

        Raises:
            Denied: the client asks for too much.
            Unavailable: a party is away.
        """
        bounds, names = self.limits, list(dict.fromkeys(customers))
        wait = self._clients.take(client.name, float(len(names)))
        if wait:
            self.metrics.limited.labels("client").inc()
            words = f"at most {bounds.client_burst:g} customers at once and {bounds.client_rows_per_minute:g} a minute"
            raise Denied(429, Problem(reason=words, rule="client"), wait)
        waits = {name: self._customers.take(name) for name in names}
        asked = [name for name in names if not waits[name]]
        self.metrics.limited.labels("customer").inc(len(names) - len(asked))
        answers = await self.desk.answers(asked) if asked else []
        for model, rows in Counter(one.model for one in answers if isinstance(one, Answer)).items():
            self.metrics.rows.labels(model).inc(rows)
        told = {name: self._to_response(answer) for name, answer in zip(asked, answers, strict=True)}
        return [told[name] if name in told else self._limit_exceeded(waits[name]) for name in customers]

    def _limit_exceeded(self, wait: float) -> Response:
        words = f"one customer is asked about at most {self.limits.customer_scores_per_minute:g} times a minute"
        return 429, Problem(reason=words, rule="customer"), wait

    def _to_response(self, answer: Answer | Refusal | UnknownCustomer) -> Response:
        if isinstance(answer, Refusal):
            self.metrics.refusals.labels(answer.party, answer.rule).inc()
            problem = Problem(reason=answer.words, party=answer.party, rule=answer.rule)
            return (429, problem, answer.wait) if answer.is_temporary else (403, problem, 0.0)
        if isinstance(answer, UnknownCustomer):
            return 404, Problem(reason=answer.reason), 0.0
        return 200, _with_reasons(_customer_answer(answer), answer.reasons), 0.0


def _request_buckets(rate: float, now: Callable[[], float]) -> Buckets[str]:
    return Buckets(rate, max(2 * rate, 1.0), now=now)


def _with_reasons(answer: Score | Predicted, found: ReasonsOfScore | None) -> Score | Predicted:
    """The answer, with reasons where there are some."""
    if found is None:
        return answer
    reasons = [ScoreReason(party=found.party, column=name, adds=size) for name, size in found.columns]
    reasons.append(ScoreReason(party=found.partners, column=None, adds=found.others))
    explained = Reasons(unit=found.unit, baseline=found.baseline, reasons=reasons)
    kind = ExplainedScore if isinstance(answer, Score) else ExplainedNumber
    return kind.model_validate({**answer.model_dump(), "explained": explained})


def _customer_answer(answer: Answer) -> Score | Predicted:
    if answer.numeric:
        (target,), (number,) = answer.classes, answer.probabilities.tolist()
        shown = float(print_score(number, number=True))
        return Predicted(model=answer.model, digest=answer.digest, target=target, predicted=shown)
    return Score(
        model=answer.model,
        digest=answer.digest,
        classes=list(answer.classes),
        probabilities=[float(print_score(one)) for one in answer.probabilities.tolist()],
    )

"""The HTTP application of the active party. Needs the extra `securevfl[serve]`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from securevfl.serving.access import AccessControl, Denied
from securevfl.serving.guards import App, Message, Receive, Send
from securevfl.serving.metrics import ServingMetrics
from securevfl.serving.page import render_page
from securevfl.serving.questions import ModelMismatch, Unavailable
from securevfl.serving.schema import (
    Activated,
    BatchAnswer,
    BatchQuestion,
    ExplainedNumber,
    ExplainedScore,
    Health,
    Predicted,
    Problem,
    Question,
    Readiness,
    Refreshed,
    RunName,
    Score,
)
from securevfl.serving.strict_http import CERTIFICATE
from securevfl.serving.tokens import Scope, TokenClient

__all__ = ["application"]

_SHOWN = 5
_LONGEST = 500

Responses = dict[int | str, dict[str, Any]]
_ERRORS: Responses = {
    401: {"model": Problem, "description": "no token or certificate that is known"},
    403: {"model": Problem, "description": "not for this client, or a party's serving policy forbids it"},
    429: {"model": Problem, "description": "too many requests; Retry-After gives the seconds to wait"},
    503: {"model": Problem, "description": "a party is away; its name, and Retry-After"},
}
_NOT_FOUND: Responses = {404: {"model": Problem, "description": "nobody can score this customer"}}
_CONFLICT: Responses = {409: {"model": Problem, "description": "not all parties can; nothing changed"}}

router = APIRouter()


def application(front: AccessControl) -> FastAPI:
    """The application.

    Args:
        front: who may ask, and what is answered.
    """
    app = FastAPI(
        title="securevfl",
        description=(
            f"Scores of {front.server.place.name!r} and its partners. Identifiers go into bodies, never into URLs."
        ),
        version="1",
        docs_url=None,
        redoc_url=None,
    )
    app.state.front = front
    app.include_router(router)
    app.add_exception_handler(Denied, _answer_denied)
    app.add_exception_handler(Unavailable, _answer_unavailable)
    app.add_exception_handler(ModelMismatch, _answer_mismatch)
    app.add_exception_handler(RequestValidationError, _answer_malformed)
    app.add_middleware(_Measured, metrics=front.metrics)
    return app


# Dependencies are coroutines, because the framework would run functions in threads.


async def _access_control(request: Request) -> AccessControl:
    front: AccessControl = request.app.state.front
    return front


def _require_scope(scope: Scope) -> Callable[[Request], Coroutine[Any, Any, TokenClient]]:
    async def check_client(request: Request) -> TokenClient:
        certificate = request.scope.get(CERTIFICATE)
        front = await _access_control(request)
        return front.identify_client(
            scope, request.headers.get("authorization", ""), certificate if isinstance(certificate, bytes) else None
        )

    return check_client


TheFront = Annotated[AccessControl, Depends(_access_control)]
Scoring = Annotated[TokenClient, Depends(_require_scope("score"))]
Reading = Annotated[TokenClient, Depends(_require_scope("status"))]
Managing = Annotated[TokenClient, Depends(_require_scope("admin"))]


@router.post(
    "/v1/score", responses=_ERRORS | _NOT_FOUND, response_model=Score | Predicted | ExplainedScore | ExplainedNumber
)
async def score(question: Question, client: Scoring, front: TheFront) -> Response:
    """Score one customer."""
    ((status, content, wait),) = await front.score(client, [question.customer])
    if isinstance(content, Problem):
        raise Denied(status, content, wait)
    return _encode_answer(content)


@router.post("/v1/scores", responses=_ERRORS, response_model=BatchAnswer)
async def scores(question: BatchQuestion, client: Scoring, front: TheFront) -> Response:
    """Score customers; each has its status."""
    told = await front.score(client, question.customers)
    return _encode_answer(BatchAnswer.from_items([(status, one) for status, one, _ in told]))


@router.get("/v1/status", responses=_ERRORS)
async def status(client: Reading, front: TheFront) -> dict[str, Any]:
    """Which model is served, and which parties are connected."""
    return front.server.status()


@router.post("/v1/models/activate", responses=_ERRORS | _CONFLICT)
async def activate(model: RunName, client: Managing, front: TheFront) -> Activated:
    """Serve another model, once every party has confirmed its part."""
    return Activated(digest=await front.server.activate(model.run))


@router.post("/v1/models/rollback", responses=_ERRORS | _CONFLICT)
async def rollback(client: Managing, front: TheFront) -> Activated:
    """Serve the model before this one again."""
    return Activated(digest=await front.server.roll_back())


@router.post("/v1/index/refresh", responses=_ERRORS | _CONFLICT)
async def refresh(client: Managing, front: TheFront) -> Refreshed:
    """Let all parties read their tables again, and align them."""
    return Refreshed(rows=await front.server.refresh())


@router.get("/healthz")
async def health() -> Health:
    """The process lives."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "not now"}})
async def readiness(response: Response, front: TheFront) -> Readiness:
    """Whether all parties are connected and a model is served."""
    server = front.server
    response.status_code = 200 if server.is_ready else 503
    return Readiness(ready=server.is_ready, waiting_for=server.waiting_reasons() | server.away, problem=server.problem)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """The interface as a page, without a byte from elsewhere."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(render_page(request.app.openapi()), headers=headers)


def _encode_answer(answer: BaseModel) -> Response:
    """An answer that is already of its type: the framework would check it again, which takes longer than scoring."""
    return Response(answer.model_dump_json(), media_type="application/json")


def _problem_response(status: int, problem: Problem, wait: float = 0.0) -> JSONResponse:
    headers = {"Retry-After": str(max(math.ceil(wait), 1))} if wait and math.isfinite(wait) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem.model_dump(), status, headers)


async def _answer_denied(request: Request, error: Exception) -> Response:
    if not isinstance(error, Denied):
        raise error
    return _problem_response(error.status, error.problem, error.wait)


async def _answer_unavailable(request: Request, error: Exception) -> Response:
    if not isinstance(error, Unavailable):
        raise error
    return _problem_response(503, Problem(reason=str(error), party=", ".join(error.parties)), error.wait)


async def _answer_mismatch(request: Request, error: Exception) -> Response:
    return _problem_response(409, Problem(reason=str(error)))


async def _answer_malformed(request: Request, error: Exception) -> Response:
    """Reply without the input, because it may contain identifiers."""
    if not isinstance(error, RequestValidationError):
        raise error
    found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()][:_SHOWN]
    return _problem_response(422, Problem(reason="; ".join(found)[:_LONGEST]))


class _Measured:
    """Counts requests and times them, and lets nobody store answers.

    Args:
        app: the application.
        metrics: counts.
    """

    def __init__(self, app: App, metrics: ServingMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See the ASGI specification, version 3."""
        metrics, began, status = self._metrics, time.perf_counter(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"cache-control", b"no-store")]
            await send(message)

        with metrics.running.track_inprogress():
            await self._app(scope, receive, note_status)
        path = getattr(scope.get("route"), "path", "other")
        metrics.requests.labels(path, str(status)).inc()
        metrics.seconds.labels(path).observe(time.perf_counter() - began)

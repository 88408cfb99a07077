"""Content of HTTP requests and responses. Identifiers appear only in request bodies, never in responses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from securevfl.serving.policy import MOST_ROWS

__all__ = [
    "Activated",
    "BatchAnswer",
    "BatchQuestion",
    "ExplainedNumber",
    "ExplainedScore",
    "Health",
    "Predicted",
    "Problem",
    "Question",
    "Readiness",
    "Reasons",
    "Refreshed",
    "RunName",
    "Score",
    "ScoreReason",
]

Identifier = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(_Strict):
    """A customer to score."""

    customer: Identifier = Field(description="as in the active party's table")


class BatchQuestion(_Strict):
    """Customers to score."""

    customers: Annotated[list[Identifier], Field(min_length=1, max_length=MOST_ROWS)]


class _Answered(_Strict):
    model: Literal["joint", "local"] = Field(description="all parties' model, or the active party's own")
    digest: str = Field(description="of the model that scored")


class Score(_Answered):
    """A customer's score, by a model of classes."""

    classes: list[str]
    probabilities: list[float]


class Predicted(_Answered):
    """The number predicted for a customer, by a regression."""

    target: str = Field(description="name of the column that was learned")
    predicted: float = Field(description="in that column's units")


class ScoreReason(_Strict):
    """What one column adds, or all columns of other parties together."""

    party: str = Field(description="whose columns; several names where only their sum is known")
    column: str | None = Field(description="of the party; null for all of its columns together")
    adds: float


class Reasons(_Strict):
    """Why a score is what it is: `baseline` and what everything adds give the model's sum."""

    unit: str = Field(description="of the sum, before calibration")
    baseline: float = Field(description="with average columns of the asking party, and without the others' part")
    reasons: list[ScoreReason]


class ExplainedScore(Score):
    """A customer's score with reasons, where the agreement says so."""

    explained: Reasons


class ExplainedNumber(Predicted):
    """A predicted number with reasons, where the agreement says so."""

    explained: Reasons


class Problem(_Strict):
    """Why a customer has no score."""

    reason: str
    party: str = Field(default="", description="whose rule it is, or who is waited for")
    rule: str = Field(default="", description="name of the rule of that party's serving policy")


class _Item(_Strict):
    status: int = Field(description="as an HTTP status: 200, 403, 404 or 429")
    score: ExplainedScore | ExplainedNumber | Score | Predicted | None = None
    problem: Problem | None = None


class BatchAnswer(_Strict):
    """One answer for each customer, in the order of the request."""

    answers: list[_Item]

    @classmethod
    def from_items(cls, items: list[tuple[int, Score | Predicted | Problem]]) -> BatchAnswer:
        """Build the answer from each customer's status and content."""
        return cls(
            answers=[
                _Item(status=status, problem=one) if isinstance(one, Problem) else _Item(status=status, score=one)
                for status, one in items
            ]
        )


class RunName(_Strict):
    """A model to serve: the run that all parties trained it in."""

    run: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{16,128}$")]


class Activated(_Strict):
    """The model that is served now."""

    digest: str


class Refreshed(_Strict):
    """The index that is used now."""

    rows: int = Field(description="customers that all parties have")


class Health(_Strict):
    """The process lives."""

    alive: bool = True
    standby: bool = Field(default=False, description="it waits for the state folder of another process")


class Readiness(_Strict):
    """Whether scores are available now."""

    ready: bool
    waiting_for: dict[str, str] = Field(description="party to why it is waited for")
    problem: str = ""

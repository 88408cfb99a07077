"""Serving a trained model: the active party answers requests; the others stay connected and take part in scoring.

- `policy`, `daily`: what each party allows, counted on its own disk. `limits`, `tokens`: who may ask how much.
- `shelf`: which model is served, changed in two phases. `answers`, `groups`: noisy answers are kept; padded batches.
- `gathered`, `session`, `passive`, `conducting`, `active`: the servers, over any mesh. `local`: scores for customers
  unknown to the other parties.
"""

from securevfl.serving.active import ServeActive
from securevfl.serving.daily import DailyCounts
from securevfl.serving.limits import Buckets, RequestLimits
from securevfl.serving.local import LocalModel
from securevfl.serving.passive import ServePassive
from securevfl.serving.policy import Refusal, ScoringRefused, ServingPolicy
from securevfl.serving.questions import Batching, ModelMismatch, Unavailable
from securevfl.serving.serving_context import ServingContext
from securevfl.serving.shelf import ModelRecord, ModelShelf
from securevfl.serving.tokens import TokenClient, TokenFile, make_token

__all__ = [
    "Batching",
    "Buckets",
    "DailyCounts",
    "LocalModel",
    "ModelMismatch",
    "ModelRecord",
    "ModelShelf",
    "Refusal",
    "RequestLimits",
    "ScoringRefused",
    "ServeActive",
    "ServePassive",
    "ServingContext",
    "ServingPolicy",
    "TokenClient",
    "TokenFile",
    "Unavailable",
    "make_token",
]

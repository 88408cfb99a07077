"""A party's part of a model, as it is stored and as its ledger names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securevfl.party import Job

__all__ = ["MODEL_PART", "PART", "model_part"]

PART = ".model.safetensors"
"""What follows a party's name in the name of its file."""

MODEL_PART = "model part"
"""The note of a party's ledger that holds the digest of its part."""


def model_part(job: Job, party: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """What the file of a party's part holds."""
    return {"job": job.digest, "party": party, **part}

"""What `DP` was called with before its mechanisms were objects, in today's spelling. Read by `DP`'s error only."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["OLD", "respelled"]

OLD = frozenset(
    {
        "epsilon",
        "delta",
        "activations",
        "gradients",
        "clip_activations",
        "clip_gradients",
        "noise_multiplier",
        "where",
        "weight_bound",
        "power",
        "local",
        "clip_model",
        "on_budget",
    }
)
"""Keywords that `DP` no longer has."""

_NAMES = {
    "gaussian": "Gaussian",
    "joint": "JointNoise",
    "marvell": "Marvell",
    "randomised_response": "RandomisedResponse",
}

_Parts = dict[str, tuple[str, dict[str, object]]]
"""``features``, ``labels`` or ``model`` → tag of the mechanism, and its options"""


def respelled(old: Mapping[str, object], where: str = "") -> str:
    """The message for a call with old keywords: how to ask for exactly the same now.

    Args:
        old: keywords as given.
        where: path of the section in a job file; empty for a call in Python.
    """
    mixed = [name for name in ("features", "model", "labels") if name in old and not isinstance(old[name], str)]
    asked = ", ".join(f"{name}={value!r}" for name, value in old.items() if name not in mixed)
    head = f"{where or 'sv.DP'} takes mechanisms now, and got {asked}"
    if mixed:
        return f"{head}: budgets and norms belong into {mixed[0]}={'{…}' if where else 'sv.Gaussian(epsilon=…)'}"
    parts = _parts(old)
    if not parts:
        return f"{head}, which protects neither features nor labels; name one of them, or leave dp out"
    return f"{head}; the same is now\n{_section(parts, where) if where else _call(parts)}"


def _parts(old: Mapping[str, object]) -> _Parts:
    """What the old keywords asked for, with the defaults that they had."""
    budget = {name: old[name] for name in ("epsilon", "delta") if name in old}
    noise = budget | {name: old[name] for name in ("noise_multiplier", "on_budget") if name in old}
    labels = old.get("labels", "gradients")

    def gaussian(clip: str) -> dict[str, object]:
        return noise | ({"clip": old[clip]} if clip in old else {})

    if old.get("local"):
        return {"model": ("gaussian", gaussian("clip_model"))}
    found: _Parts = {}
    if old.get("activations", True):
        if old.get("where") == "z":
            bound = {"weight_bound": old.get("weight_bound", 0.0)}
            found["features"] = ("joint", gaussian("clip_activations") | bound)
        else:
            found["features"] = ("gaussian", gaussian("clip_activations"))
    if labels == "randomised_response":
        found["labels"] = ("randomised_response", budget)
    elif labels == "marvell":
        found["labels"] = ("marvell", {"power": old["power"]} if "power" in old else {})
    elif old.get("gradients", True):
        found["labels"] = ("gaussian", gaussian("clip_gradients"))
    return found


def _call(parts: _Parts) -> str:
    """In Python."""
    made = (
        f"{what}=sv.{_NAMES[tag]}({', '.join(f'{name}={value!r}' for name, value in options.items())})"
        for what, (tag, options) in parts.items()
    )
    return f"  sv.DP({', '.join(made)})"


def _section(parts: _Parts, where: str) -> str:
    """In a job file."""
    lines = []
    for what, (tag, options) in parts.items():
        lines += [f"  [{where}.{what}]", f'  mechanism = "{tag}"']
        lines += [f"  {name} = {_toml(value)}" for name, value in options.items()]
    return "\n".join(lines)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)

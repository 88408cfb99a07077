"""All algorithms, each with networks and stages small enough for tests."""

from __future__ import annotations

from typing import Any

import securevfl as sv
from securevfl.training import Algorithm, find_algorithm, registered_algorithms

__all__ = ["KINDS", "SETTINGS", "SEVERAL", "SIZES", "make"]

SIZES: dict[str, Any] = {"hidden": 8, "top": (8,), "lr": 0.02}
"""Small networks."""
SETTINGS: dict[str, dict[str, Any]] = {
    "splitnn": SIZES,
    "logistic_regression": {"lr": 0.05},
    "additive": {"bins": 4},
    "boosting": {"lr": 0.3, "depth": 2, "bins": 8, "min_hessian": 0.01, "rows": 0.9, "columns": 0.8},
    "boosted_residual": {
        "lr": 0.3,
        "depth": 2,
        "bins": 8,
        "min_hessian": 0.01,
        "own_trees": 2,
        "own_depth": 2,
        "own_lr": 0.3,
        "folds": 2,
    },
    "scorecard": {"lr": 0.05, "bins": 4, "least": 4, "key_bits": 2048},
    "best": {**SIZES, "folds": 2},
    "best_with_trees": {
        **SIZES,
        "folds": 2,
        "methods": ("laser", "local"),
        "rounds": 3,
        "depth": 2,
        "tree_lr": 0.3,
        "bins": 8,
        "own_trees": 2,
        "own_depth": 2,
    },
    "hybrid_tree": {"lr": 0.5, "host_depth": 1, "guest_depth": 1, "bins": 8, "min_hessian": 0.01},
    "entity_augmentation": SIZES,
    "fedcvt": {"bottom": (6,), "lr": 0.02, "confidence": 0.7},
    "fedda": {
        **SIZES,
        "bottom": (4,),
        "first": 2,
        "generator_steps": 8,
        "critic_steps": 2,
        "width": 16,
        "confidence": 0.5,
    },
    "residual": {**SIZES, "folds": 2},
    "few_shot_vfl": {"bottom": (6,), "lr": 0.02, "local_steps": 15, "agreement": 0.5, "confidence": 0.6},
    "mftl": {"bottom": (6,), "lr": 0.02},
    "risa": {**SIZES, "self_training": 3, "drop_every": 1, "confidence": 0.7},
    "sfhtl": {"bottom": (6,), "lr": 0.02, "first": 2, "confidence": 0.7},
    "fedhssl": {
        **SIZES,
        "bottom": (6,),
        "rounds": 2,
        "cross_steps": 4,
        "local_steps": 4,
        "projection": 8,
        "squeeze": 4,
    },
    "apc_vfl": {"bottom": (8,), "code": 6, "top": (8,), "lr": 0.02, "steps": 30, "student_steps": 40},
    "false_vfl": {"bottom": (8,), "latent": 4, "deep": 2, "top": (8,), "samples": 3, "pretraining": 40, "lr": 0.02},
    "distilled": {**SIZES, "teacher_steps": 12, "folds": 2},
    "local": SIZES,
    "zero_imputation": SIZES,
    "random_match": SIZES,
    "all_labels": SIZES,
    "laser": {**SIZES, "masks": "fixed"},
    "party_dropout": SIZES,
    "plugvfl": {**SIZES, "reader": (8,)},
    "ssl": {**SIZES, "bottom": (4,), "pretraining": 20},
}
SEVERAL = sv.MultiVFL(**SIZES)
"""For several label owners, with a suite of its own beside the public checks."""
KINDS = {name: find_algorithm(name) for name in registered_algorithms()}


def make(name: str, **settings: Any) -> Algorithm:
    """An algorithm by its name, with small networks and these settings on top."""
    return KINDS[name](**SETTINGS[name] | settings)

"""FALSE-VFL: its settings and densities, its roles, and the configuration that puts them together."""

from securevfl.algorithms.field.false_vfl.config import FalseVFL

__all__ = ["FalseVFL"]

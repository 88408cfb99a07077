"""Statistics of columns of different parties, before a model."""

from securevfl.algorithms.statistics.settings import Statistics

__all__ = ["Statistics"]

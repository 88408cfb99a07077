"""Statistics of columns of different parties, before a model."""

from securevfl.algorithms.statistics.configuration import Statistics

__all__ = ["Statistics"]

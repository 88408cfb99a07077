"""HybridTree: its settings and messages, its layers of trees, its roles, and the configuration that joins them."""

from securevfl.algorithms.field.hybrid_tree.config import HybridTree

__all__ = ["HybridTree"]

"""Test vectors: inputs, and what the library computes from them. `tools/make_vectors.py` writes them to JSON files."""

from __future__ import annotations

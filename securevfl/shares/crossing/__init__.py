"""Sums over common rows of products of different parties' columns, on shares: what statistics before a model take."""

"""Deliberate breaks of the code, each with the tests that have to notice it.

`breaks` lists them by part of the code. `python -m benchmarks.mutations` applies one after the other to a copy of the
code and runs its tests (`--only explain` those of one part, `--list` shows them); a break that they do not notice is a
hole in the tests. It takes minutes, so that it runs as a
benchmark and not with the tests; `test_breaks.py` holds that every break still fits the code.
"""

"""Benchmarks: ratios measured in one run against a named peer or limit, written as JSON to `benchmarks/results`."""

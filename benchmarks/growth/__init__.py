"""How time and memory grow with the rows, beside version 0.1; see `benchmarks.growth.__main__`."""

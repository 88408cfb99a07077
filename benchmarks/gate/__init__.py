"""The gate: attacks on recorded jobs, cell by cell (data × algorithm × protection), held against what each job says of
itself. ``python -m benchmarks.gate`` runs it; `judge` holds the rules, `cells` the matrix, `measure` the attacks."""

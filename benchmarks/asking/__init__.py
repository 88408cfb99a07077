"""Attacks within the protocol: an active party that asks for what it wants to know. `tables` has the data, `runs` the
jobs on real shares, `attacks` what is asked in them, `twins` the same models in the clear for matrices of many jobs.
``python -m benchmarks.asked`` runs them."""

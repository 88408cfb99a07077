"""Faults at every phase of every kind of job: what a federation must withstand, and what it does."""

"""Training models of one layer on the shares of two parties: nothing is opened but declared results, and nobody else
computes. Random numbers come from the two themselves, or from a helper without data."""

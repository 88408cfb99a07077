"""Why a score is what it is: terms of columns, Shapley values of parties, and the files that say so."""

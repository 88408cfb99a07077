"""A scorecard on shares: counts by bin, weights of evidence and a logistic regression, all of which nobody sees.

- `layout`: how many bins the columns have, which all parties know, and how they tell each other.
- `evidence`: counts and weights of evidence on shares. `card_network`: the regression on them.
- `course`, `card_model`, `release`: training, what is kept of it, and the points that a job may hand out.
- `sharing`, `programs`: what each party runs.
"""

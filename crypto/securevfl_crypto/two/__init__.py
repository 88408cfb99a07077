"""Arithmetic between two computing parties on shares modulo 2^64 and on bits shared by XOR. No I/O.

- `wire`: the link between the two, and links in memory.
- `transfers`: oblivious transfers in both directions, extended from base transfers or dealt by a helper.
- `bits`: conjunctions, and comparisons of shared words.
- `multiply`: products of shared bits and words, and of words that one party knows.
- `truncation`: right shifts of shared words.
- `curves`: functions of a shared value as sums of sines, in whole numbers.
- `correlations`: what makes products and sines cheap; `pair` makes it between the two, `dealing` is a helper's side of
  it and `dealt` the parties'.
- `online`: training of one-layer models, two exchanges a step.

Every function is a coroutine that both parties call with matching arguments. Security: against one of the two that
follows the protocol. This folder imports `transfer`, `rlwe.held`, `ring`,
`replicated.wire`'s turns, and `errors`.
"""

"""Arithmetic between two computing parties on shares modulo 2^64 and on bits shared by XOR. No I/O.

- `wire`: the link between the two, and links in memory.
- `transfers`: oblivious transfers in both directions, extended from base transfers or dealt by a helper.
- `bits`: conjunctions, and comparisons of shared words.
- `multiply`: products of shared bits and words, and of words that one party knows.

Every function is a coroutine that both parties call with matching arguments. Security: against one of the two that
follows the protocol. This folder imports `transfer`, `replicated.wire`'s turns, and `errors`.
"""

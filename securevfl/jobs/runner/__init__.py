"""The course of a party in a job, over any mesh; a simulation runs one for each party.

- `runner`: connect, gather, run a program, park, gather again, end. `attempts`: what must not be forgotten between.
- `roster`, `place`: who takes part, and the site that a party's program runs at.
- `together`, `simulated`: all parties in one process. `news`: what happens, for people and tools.
"""

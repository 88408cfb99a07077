"""One daemon for all agreements of an organisation: a queue, a child process for each running agreement, one port.

- `node_file`: what the organisation writes, and an entry for each agreement. `record`: what the daemon knows of an
  entry, kept over its restarts. `roster`: the entries, with what is known of each.
- `queue`: which agreement starts next. `child`: a process of ``securevfl party`` or ``serve``.
- `daemon`: all of it together. `listing`: what the operator sees.
"""

"""A run in shards: its folder, its workers, and the two processes that lead it.

`source` and `cut` read tables; `partition` writes a table's identifiers into a file for each shard; `shard` sorts one,
and makes a session of it: from files to files, so that a worker may run it anywhere and twice; `state` is the folder of
a run, which a run that was cut off resumes from; `files` is what these files look like. `leading` and `link` are the
two processes that lead a run, `worker` a worker that meets the peer's, `party` the command.
"""

"""Run one party as a separate process.

- `launch`: from an agreement and the party's own file to a running process. `party_process`: the process as a whole.
- `attempt`: what it does in one attempt. `attempt_store`, `state_folder`, `chains`: what it stores between attempts.
- `status`, `progress`, `own_report`: what its operator sees. `logs`, `log_fields`, `metrics`, `operations`: for tools.
"""

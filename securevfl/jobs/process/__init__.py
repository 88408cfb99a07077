"""A party as a process of its own: what it keeps, what it runs, what it shows and what it reports.

- `attend`: one party of an agreement, whole. `course`: what it does in an attempt. `stored`, `chains`: what it keeps.
- `status`: where it stands. `own_report`: what it knows when the job is done.
"""

"""A party's policy in a separate TOML file. It belongs to the party and contains the keys of `Policy` and the party's
name.

```toml
party = "lab"
leaks = false
max_epsilon = 4.0
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from securevfl.config import Mistaken
from securevfl.jobfile.toml_text import raise_all, read_toml
from securevfl.privacy import Policy

__all__ = ["read_policy", "with_policies"]


def read_policy(path: str | Path) -> tuple[str, Policy]:
    """The party that a policy file names, and its policy.

    Raises:
        InputError: no such file, not TOML, no party, or values that are no policy; every mistake in one message.
    """
    file = Path(path)
    content = read_toml(file, "policy", 'the page "Set a policy and read the ledger"')
    party = content.pop("party", None)
    found = []
    if not isinstance(party, str) or not party:
        found.append('it does not name its party: begin with party = "…", the name in the job file')
    try:
        policy = Policy.from_values(content)
    except Mistaken as error:
        found += error.at_path("policy")
        policy = Policy()
    raise_all(file, found)
    return str(party), policy


def with_policies(policies: Mapping[str, Policy], files: Sequence[str | Path]) -> dict[str, Policy]:
    """Policies of a job file and of parties' own files; a party with both gets the stricter of the two.

    Raises:
        InputError: a file that cannot be read.
    """
    joined = dict(policies)
    for file in files:
        party, policy = read_policy(file)
        joined[party] = policy.combine_strictest(joined[party]) if party in joined else policy
    return joined

"""One-shot and few-shot VFL: two or three uploads, one or two downloads (Sun et al., ICCV 2023, arXiv 2303.16270).

*One-shot*, for each passive party:

1. it uploads the representations of the aligned training rows, by an untrained bottom;
2. the active party puts a classifier above them and returns the gradient of its loss at each representation;
3. gradients of rows of one class have similar directions: k-means puts each row into a group, and the groups replace
   the labels that the party does not have;
4. it trains its bottom locally, on the aligned rows with their groups and on its other rows by FixMatch;
5. it uploads the representations again, and the active party trains the classifier on them.

*Few-shot* continues: the passive parties also upload the representations of their other rows. The active party
estimates the other parties' representations of these rows by attention over the aligned rows (SDPA). It labels a row if
a classifier of that party and a classifier of all parties agree with confidence, and returns gradients for these rows
as well. The passive parties repeat steps 3 and 4 on more rows, and a third upload follows.

In the paper a server has the labels and all parties are clients. Here the active party is both the server and a client
with labels: it trains its bottom on the labels of all of its rows, and needs no groups.

- `config`: the configuration and the declared messages.
- `shots`: the base of both roles. `server`: the active party. `client`: a passive one.
- `fixmatch`: a client's local training: groups, augmentations, FixMatch.

Only `securevfl.algorithms` imports from here.
"""

from securevfl.algorithms.field.few_shot_vfl.config import FewShotVFL

__all__ = ["FewShotVFL"]

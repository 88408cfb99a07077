"""One-shot and few-shot VFL: two or three uploads, one or two downloads (Sun et al., ICCV 2023, arXiv 2303.16270).

*One-shot*, for each passive party:

1. it uploads the representations of the aligned training rows by a bottom that has learned nothing yet;
2. the active party puts a classifier above them and hands back the gradient of its loss at each representation;
3. gradients of one class point alike: k-means gives each row a group, and groups stand for the labels that the party
   does not have;
4. it trains its bottom by itself, on the aligned rows towards their groups and on its other rows by FixMatch;
5. it uploads the representations once more, and the active party trains the classifier on them.

*Few-shot* goes on: the passive parties upload the representations of their other rows too, the active party estimates
what the other parties lack of them by attention over the aligned rows (SDPA), labels those on which a classifier of the
one party and a classifier of all of them agree with confidence, and hands back gradients for these rows as well. Steps
3 and 4 are done again on more rows, and a third upload follows.

In the paper a server has the labels and all parties are clients. Here the active party is the server and the client
that has the labels: it trains its own bottom on them, on all of its rows, and needs no groups.

- `config`: what a job says, and every message.
- `shots`: what both sides count alike. `server`: the active party. `client`: a passive one.
- `fixmatch`: what a client does by itself: groups, augmentations, FixMatch.

Only `securevfl.algorithms` imports from here.
"""

from securevfl.algorithms.field.few_shot_vfl.config import FewShotVFL

__all__ = ["FewShotVFL"]

"""The noise that a role adds to what it releases, as the job's differential privacy requires.

A role has a `FeatureNoise` or a `LabelNoise`; algorithms call it and do not see where the noise comes from.
"""

from __future__ import annotations

from typing import Protocol as Interface

import numpy as np
import torch

from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.privacy import JointRelease, LabelRelease, Noised, RowRelease
from securevfl.privacy.loss import Loss
from securevfl.privacy.noise import NoiseShare
from securevfl.privacy.releases import Releases
from securevfl.training.bookkeeping import BookedRole, Bookkeeping
from securevfl.training.split import split_chunks

__all__ = ["FeatureNoise", "Feeding", "LabelNoise", "Labelled", "Releasing", "noisy_parties"]


class Releasing(BookedRole, Interface):
    """What noise reads of its role; see `securevfl.training.role.Role`."""

    @property
    def releases(self) -> Releases:
        """Everything that the party releases with noise."""
        ...

    @property
    def books(self) -> Bookkeeping:
        """How often the party's rows are released."""
        ...


class Feeding(Releasing, Interface):
    """A passive party's role; see `securevfl.training.passive_role.PassiveRole`."""

    def activations(self, rows: np.ndarray, *, train: bool) -> object:
        """What the party feeds for numbered rows, to train on them or to score them."""
        ...

    def count_release(self, rows: np.ndarray, width: int) -> None:
        """Count one release of numbered rows."""
        ...


class Labelled(Releasing, Interface):
    """The active party's role; see `securevfl.training.active_role.ActiveRole`."""

    @property
    def loss(self) -> Loss:
        """What training minimises; it states its own sensitivity."""
        ...


def noisy_parties(protection: Protection, parties: int) -> int:
    """Among how many passive parties the noise on z is shared. If each part can be read, each party adds all of it."""
    return parties if protection.is_sealed else 1


class FeatureNoise:
    """The noise of a passive party: none, noise on its activations, or its share of the noise on z.

    Args:
        role: the party's.

    Raises:
        PolicyError: the party's policy allows less than the plan spends.
    """

    def __init__(self, role: Feeding) -> None:
        self._role = role
        self._ahead = False
        self.release: RowRelease | None = None
        self.joint: JointRelease | None = None
        dp = role.protection.dp
        if dp is None or dp.features is None:
            return
        rows, times = role.books.release_rows(), role.books.activation_times(role.plan.epochs)
        if dp.joint_noise is not None:
            parties = noisy_parties(role.protection, len(role.site.passive))
            self.joint = role.releases.plan_joint(dp.joint_noise, rows=rows, times=times, parties=parties)
        elif dp.activation_noise is not None:
            once = not role.config.trainable
            self.release = role.releases.plan_rows(
                "activations", dp.activation_noise, rows=rows, times=times, once=once
            )

    def __call__(self, a: torch.Tensor, rows: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        """Activations (n, d) of numbered rows as they may leave: clipped, noised; gradients flow through the clip.

        Raises:
            PolicyError: a row would be released more often than planned, or more of its values opened than the party's
                policy allows.
        """
        site = self._role.site
        if not self._ahead:
            self._role.count_release(rows, a.shape[1])
        if site.observer.listening:
            site.observer.activations_fed(site.name, site.active, rows, a)
        if self.joint is not None:
            return self.joint.clip_activations(a)
        return a if self.release is None else self.release(a, rows)

    def noise_share(self, rows: np.ndarray, width: int) -> NoiseShare | None:
        """This party's share of the noise on z of these rows, (n, width); None if z carries no noise."""
        return None if self.joint is None else self.joint.draw_share(rows, width)

    def draw_ahead(self) -> None:
        """Draw the noise of all aligned rows, if it is drawn once, before the first checkpoint. A resumed run would
        draw forgotten noise again, which is one more release."""
        role = self._role
        if self.release is None or not self.release.once:
            return
        split = role.table.split
        aligned = np.intersect1d(np.concatenate([split.train, split.valid, split.test]), role.features.present_rows())
        self._ahead = True
        with torch.no_grad():
            for rows in split_chunks(aligned, role.plan.eval_rows):
                role.activations(rows, train=False)  # the noise belongs to the row, whatever it is drawn for
        self._ahead = False


class LabelNoise:
    """The noise on the active party's labels: drawn once at random, added to each gradient, or none.

    Args:
        role: whose labels they are.

    Raises:
        PolicyError: the party's policy allows less than the plan spends.
    """

    def __init__(self, role: Labelled) -> None:
        self._role = role
        self.drawn: LabelRelease | None = None
        self.release: RowRelease | None = None
        dp, table = role.protection.dp, role.table
        if dp is None or dp.label_draw is None or not role.site.passive or table.y is None:
            return
        held_out = np.concatenate([table.split.valid, table.split.test])
        training = np.setdiff1d(np.arange(table.total_count), held_out)
        self.drawn = role.releases.plan_labels(
            dp.label_draw, table.y, training, classes=table.classes, person=table.person
        )

    def drawn_labels(self, y: torch.Tensor) -> torch.Tensor:
        """Labels (rows,) with the drawn ones in place. A resumed run gets the same draw: a second one would reveal
        more."""
        return y if self.drawn is None else self.drawn.replace_labels(y)

    def plan_gradients(self) -> None:
        """Plan noise on ``∂loss/∂logits`` of each row, sized by what the role's loss states of its sensitivity.

        Raises:
            PolicyError: the party's policy allows less than the plan spends.
        """
        role = self._role
        dp = role.protection.dp
        if dp is None or dp.gradient_noise is None or not role.site.passive:
            return
        times = role.books.label_times(role.plan.epochs)
        self.release = role.releases.plan_rows(
            "gradients",
            dp.gradient_noise,
            rows=role.books.release_rows(),
            times=times,
            sensitivity=role.loss.sensitivity,
        )

    def correct_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits of the label that was drawn, from logits of the true one; the same where labels are exact."""
        return logits if self.drawn is None else self.drawn.correct_logits(logits)

    def noised_gradient(
        self, logits: torch.Tensor, targets: torch.Tensor, rows: np.ndarray
    ) -> Noised[torch.Tensor] | None:
        """``∂loss/∂logits`` with noise, (n, outputs), over the nominal batch; None if gradients carry no noise.

        Labels enter training here and nowhere else. The loss has to be the role's, because noise is sized by the
        sensitivity that it states.

        Args:
            logits: (n, outputs).
            targets: as the loss takes them, (n,) or (n, classes).
            rows: numbers of the batch's rows, (n,).

        Raises:
            InputError: targets are not probabilities.
            PolicyError: a label would be released more often than planned.
        """
        if self.release is None:
            return None
        role = self._role
        if not role.loss.accepts_targets(targets):
            raise InputError(
                "a batch's targets are not probabilities of the classes (from 0, with sum 1), or are beyond the "
                "target's range: the loss states no sensitivity for them, so noise on their gradient would be sized "
                "wrongly"
            )
        (exact,) = torch.autograd.grad(role.loss(logits, targets).sum(), logits)
        first, *also = map(role.table.merge_persons, role.books.labelled_by(rows))
        size = role.plan.batch_size
        return self.release(exact, first, also=also).map(lambda gradient: gradient / size)

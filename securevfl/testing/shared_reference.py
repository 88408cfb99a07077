"""A network on shares in floating point, to measure the error of fixed point, sigmoid chords and truncations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from securevfl_crypto.ring import decode_words
from torch import nn

from securevfl.privacy.loss import CURVATURE
from securevfl.shares import ERROR_BOUND, NetworkShape, OptimiserConstants

__all__ = ["SharedReference"]


class SharedReference(nn.Module):
    """The network of a shape in float64, with the same first weights and the same optimiser.

    Args:
        shape: its layers.
        rule: of SGD.
        batch_size: nominal rows in a batch: the loss is the sum over a batch divided by it.
        seed: the job's, from which the first weights follow.
    """

    def __init__(self, shape: NetworkShape, rule: OptimiserConstants, batch_size: int, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.batch_size = batch_size
        first = shape.first_weights(seed)
        self.weights = nn.ParameterDict(
            {_key(name): nn.Parameter(torch.from_numpy(decode_words(words))) for name, words in first.items()}
        )
        self._optimizer = torch.optim.SGD(
            self.parameters(), lr=rule.lr, momentum=rule.momentum, weight_decay=rule.decay
        )

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits (n, outputs).

        Args:
            inputs: each data party's (n, d_p), float64.
        """
        parts = {str(party): x for party, x in enumerate(inputs) if x.shape[1]}
        for level in self.shape.bottom_layers():
            for layer in level:
                party = layer.name.removeprefix("bottom ").split(".")[0]
                z = _relu(self._dense(layer.name, parts[party]))
                parts[party] = z.clamp_max(6) if layer.then == "relu6" else z
        a = torch.cat(list(parts.values()), dim=1)
        for layer in self.shape.top_layers():
            z = self._dense(layer.name, a)
            a = _relu(z) if layer.then else z
        return a

    def step(self, inputs: Sequence[torch.Tensor], targets: torch.Tensor) -> None:
        """One step on a batch.

        Args:
            inputs: as for `forward`.
            targets: of the second class (n, 1), or of all classes (n, classes), or scaled numbers (n, 1), float64.
        """
        self._optimizer.zero_grad()
        logits = self(inputs)
        if self.shape.is_numeric:
            error = nn.functional.huber_loss(logits, targets, reduction="sum", delta=ERROR_BOUND)
            loss = CURVATURE * error
        elif self.shape.classes == 2:
            loss = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        else:
            loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
        torch.autograd.backward(loss / self.batch_size)
        self._optimizer.step()

    def _dense(self, name: str, a: torch.Tensor) -> torch.Tensor:
        w = self.weights[_key(name)]
        z: torch.Tensor = a @ w[:-1] + w[-1]
        return z


def _key(name: str) -> str:
    return name.replace(".", "_")


def _relu(z: torch.Tensor) -> torch.Tensor:
    """ReLU with derivative 1 at zero, as on shares: a unit whose inputs are all zero is there when training begins."""
    return torch.where(z >= 0, z, 0.0)

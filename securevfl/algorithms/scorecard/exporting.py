"""A party's part of a scorecard for another scoring engine: a value for each bin of each of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl.algorithms.scorecard.binning import codes_of
from securevfl.algorithms.splitnn.exporting import check_in_hand
from securevfl.export import ExportedModel, PartSource
from securevfl.training.state import as_dict, as_list, as_pair, as_tensor

__all__ = ["export_card"]


def export_card(source: PartSource) -> ExportedModel:
    """The party's bins with coefficient times weight of evidence. At a cut each party learns its own at the end of
    training, also where the cut is sealed.

    Raises:
        InputError: a card in shares that was not handed out.
    """
    if source.protection.on_shares:
        check_in_hand(source.protection)
        cuts, values, bias = _read_handed_out(source)
    else:
        cuts, values, bias = _read_card(source)
    base = np.full(1, bias if source.is_active else 0.0)
    bins = [
        {"edges": cut.tolist(), "values": part[:, None].tolist(), "missing": False}
        for cut, part in zip(cuts, values, strict=True)
    ]

    def compute(x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
        found = np.zeros((len(x), 1))
        for part, codes in zip(values, codes_of(x, cuts).T, strict=True):
            found[:, 0] += part[codes]
        for name in source.head.others or ():
            found = found + others[name]
        summed: np.ndarray = found + base
        return summed

    return ExportedModel(
        kind="bins",
        model={"outputs": 1, "bins": bins, "base": base.tolist()},
        compute=compute,
        others=dict.fromkeys(source.head.others or (), 1),
    )


def _read_card(source: PartSource) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray], float]:
    weights, _ = as_pair(as_dict(source.model["parts"])["half"])
    place = "0." if source.is_active else ""
    ends, evidence = weights[f"{place}cuts"].numpy(), weights[f"{place}woe"].double().numpy()
    cuts = [row[np.isfinite(row)] for row in ends]
    columns = as_list(as_dict(source.model["scorecard"])["columns"])
    coefficients = [float(as_dict(one)["coefficient"]) for one in columns]  # type: ignore[arg-type]
    values = [
        coefficient * row[: len(cut) + 1] for coefficient, row, cut in zip(coefficients, evidence, cuts, strict=True)
    ]
    return cuts, values, float(weights["1.bias"][0]) if source.is_active else 0.0


def _read_handed_out(source: PartSource) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray], float]:
    shares = as_dict(as_dict(source.model["parts"])["shares"])
    cuts = [as_tensor(cut).numpy() for cut in as_list(shares["cuts"])]
    blocks = as_dict(as_dict(shares["regression"])["handed out"])
    found = np.concatenate([np.zeros(0), *(as_tensor(one).numpy().reshape(-1) for one in blocks.values())])
    ends = np.cumsum([len(cut) + 1 for cut in cuts])
    return cuts, np.split(found[: ends[-1] if len(ends) else 0], ends[:-1]), float(found[-1]) if len(found) else 0.0

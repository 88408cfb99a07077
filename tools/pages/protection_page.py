"""The table of docs/few-overlap-protection.md: which method for few common rows runs under which protection.

python tools/pages/protection_page.py    writes it into the page; a test holds that it is there, and that it is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import securevfl as sv
from securevfl.cut import Protection
from securevfl.errors import SecureVFLError
from securevfl.training import Algorithm, find_algorithm, registered_algorithms

__all__ = ["CIPHERS", "FEW", "PAGE", "accepted", "made", "table", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "few-overlap-protection.md"
BEGIN, END = "<!-- protections: made by tools/pages/protection_page.py -->", "<!-- end of protections -->"
OTHERS = {
    "additive",
    "best_with_trees",
    "boosted_residual",
    "boosting",
    "logistic_regression",
    "multi_vfl",
    "scorecard",
}
"""No methods for few common rows; and the one whose trees Paillier alone seals."""
FEW = [name for name in registered_algorithms() if name not in OTHERS]
CIPHERS: Mapping[str, Protection] = {
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "paillier": sv.Paillier(bits=2048),
}
NOISE: Mapping[str, Protection] = {
    "features at a passive party": sv.Plain(dp=sv.DP(features=sv.Gaussian())),
    "gradients of labels": sv.Plain(dp=sv.DP(labels=sv.Gaussian())),
    "drawn labels": sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse())),
    "z inside the ciphertext": sv.BFV(dp=sv.DP(features=sv.JointNoise(weight_bound=1.0))),
}


def made(name: str) -> Algorithm:
    """The method with trainable bottoms, where it has any."""
    kind = find_algorithm(name)
    return kind.from_values({"bottom": (4,)} if "bottom" in kind.__struct_fields__ else {})


def accepted(name: str, protection: Protection) -> bool:
    """Whether a job with this method under this protection can be made."""
    algorithm = made(name)
    try:
        sv.Job(algorithm=algorithm, epochs=max(algorithm.least_epochs, 2), protection=protection)
    except SecureVFLError:
        return False
    return True


def table() -> str:
    """In Markdown."""
    head = ["method", "in a job file", "sealed cut", *(f"noise: {where}" for where in NOISE), "why not sealed"]
    rows = []
    for name in FEW:
        kind = find_algorithm(name)
        if not made(name).exchanges(sv.Plain(), 1):
            rows.append([kind.label, f"`{name}`", *["sends nothing"] * (1 + len(NOISE)), ""])
            continue
        sealed = {accepted(name, cipher) for cipher in CIPHERS.values()}
        cells = ["yes" if sealed == {True} else "no" if sealed == {False} else "some"]
        cells += ["yes" if accepted(name, noise) else "no" for noise in NOISE.values()]
        rows.append([kind.label, f"`{name}`", *cells, kind.reveals])
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def written(page: str) -> str:
    """The page with its table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

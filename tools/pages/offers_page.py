"""The table of docs/algorithms/index.md: which algorithm runs under which protection, among how many
parties, and what it learns. It is made from what the algorithms and protections accept.

python tools/pages/offers_page.py    writes it into the page; a test holds that it is there, and that it is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import securevfl as sv
from securevfl.cut import Protection
from securevfl.errors import SecureVFLError
from securevfl.training import Algorithm, find_algorithm, registered_algorithms

__all__ = ["PAGE", "SEALED", "list_offers", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "index.md"
BEGIN, END = "<!-- offers: made by tools/pages/offers_page.py -->", "<!-- end of offers -->"
SEALED: Mapping[str, Protection] = {"bfv": sv.BFV(), "ckks": sv.CKKS(), "paillier": sv.Paillier(bits=2048)}
MODEL_NOISE = sv.DP(model=sv.Gaussian(epsilon=8.0))
CUT_NOISE = sv.DP(features=sv.Gaussian(epsilon=8.0))


def _make(name: str, *widths: int) -> Algorithm:
    """The algorithm with bottoms of these widths, where it can have such."""
    kind = find_algorithm(name)
    if "bottom" in kind.__struct_fields__:
        for bottom in (widths, (4,), ()):
            try:
                return kind.from_values({"bottom": bottom})
            except SecureVFLError:
                continue
    return kind.from_values({})


def _is_offered(algorithm: Algorithm, protection: Protection) -> bool:
    """Whether a job with this algorithm and protection can be made."""
    try:
        sv.Job(algorithm=algorithm, epochs=max(algorithm.least_epochs, 2), protection=protection, keep="last")
    except SecureVFLError:
        return False
    return True


def _offers_shares(name: str, algorithm: Algorithm) -> str:
    if _is_offered(algorithm, sv.Shares()):
        return "yes"
    if _is_offered(algorithm, sv.Shares(soft=True)):
        return "with `soft`"
    if _is_offered(_make(name), sv.Shares()):
        return "with identity bottoms"
    return "no"


def _describe_targets(algorithm: Algorithm) -> str:
    most = algorithm.most_classes
    classes = "classes" if most is None else "two classes" if most == 2 else f"up to {most} classes"
    learns = [classes, *(["numbers"] if "numbers" in algorithm.fits.learns else [])]
    return ", ".join([*learns, *(["several labels"] if "labels" in algorithm.fits.learns else [])])


def list_offers() -> str:
    """The table in Markdown."""
    head = [
        "algorithm",
        "learns",
        "parties",
        "`shares`",
        "`shares` of two",
        "`shares` with ε for the model",
        "sealed cut",
        "noise at the cut",
    ]
    rows = []
    for name in sorted(registered_algorithms(), key=lambda one: (one != "splitnn", one)):
        algorithm = _make(name, 4)
        sends = bool(algorithm.exchanges(sv.Plain(), 1))
        ciphers = [cipher for cipher, protection in SEALED.items() if _is_offered(algorithm, protection)]
        sealed = "nothing to seal" if not sends else ", ".join(f"`{cipher}`" for cipher in ciphers) or "no"
        noisy = _is_offered(_make(name), sv.Shares(dp=MODEL_NOISE, metrics="none"))
        parties = "two" if algorithm.most_passive == 1 else "any"
        rows.append(
            [
                f"`{name}`",
                _describe_targets(algorithm),
                parties,
                _offers_shares(name, algorithm),
                "yes" if _is_offered(_make(name), sv.Shares(computing=2)) else "no",
                "yes" if noisy else "no",
                "all three" if len(ciphers) == len(SEALED) and sends else sealed,
                "yes" if sends and _is_offered(algorithm, sv.Plain(dp=CUT_NOISE)) else "no",
            ]
        )
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def written(page: str) -> str:
    """The page with its table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{list_offers()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

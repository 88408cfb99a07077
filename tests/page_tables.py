"""The tables of docs/threat-model.md that are made from the code's findings and from the attack's figures.

python tests/page_tables.py    writes them into the page; a test holds that it has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from securevfl.algorithms.leakage import at_the_cut

import securevfl as sv
from securevfl.algorithms import ALGORITHMS, Algorithm
from securevfl.cut import PROTECTIONS, Protection
from securevfl.errors import SecureVFLError
from securevfl.privacy import Finding

__all__ = ["FIGURES", "PAGE", "SEALED", "blocks", "written"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "threat-model.md"
FIGURES = ROOT / "benchmarks" / "results" / "attack_on_z.json"

SEALED = [name for name, kind in PROTECTIONS.items() if kind().policy().sealed]
"""Protections that seal; a test holds that they have the same findings, so that one column tells of all."""
WAYS: dict[str, Protection] = {
    "plain": sv.Plain(),
    "plain + DP": sv.Plain(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian())),
    "sealed": sv.Paillier(),
    "sealed + DP": sv.Paillier(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian())),
}
BOTTOMS: dict[str, tuple[int, ...]] = {"identity": (), "trainable": (4,)}
ACTIVE, PASSIVE = "A", ("P", "Q")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(head), "|" + "---|" * len(head), *map(_row, rows)])


def _said(findings: Sequence[Finding]) -> str:
    bold = {"leak": "**leak**", "note": "note", "ok": "ok"}
    return "; ".join(dict.fromkeys(f"{bold[f.severity]}: {f.learns}" for f in findings))


def _kinds(name: str) -> dict[str, Algorithm]:
    """Kind of bottom → the algorithm with it."""
    found = {}
    for kind, bottom in BOTTOMS.items():
        try:
            found[kind] = ALGORITHMS[name](bottom=bottom)  # type: ignore[call-arg]
        except SecureVFLError:
            continue
    return found


def _findings(algorithm: Algorithm, protection: Protection) -> list[Finding] | None:
    """What it says under this protection, with DP on features only where on labels cannot be had; None if refused."""
    for dp in (protection.dp, replace(protection.dp, gradients=False) if protection.dp else None):
        asked = replace(protection, dp=dp)  # type: ignore[type-var]
        try:
            algorithm.check(asked)
        except SecureVFLError:
            continue
        if (dp is None) == (protection.dp is None):
            return algorithm.findings(asked, PASSIVE[: algorithm.most_passive or len(PASSIVE)], ACTIVE)
    return None


def _cut() -> str:
    rows = []
    for way, protection in WAYS.items():
        for kind in BOTTOMS:
            found = at_the_cut(protection, active=ACTIVE, passive=PASSIVE, trainable=kind == "trainable")
            sides = [[f for f in found if (f.party == ACTIVE) == active] for active in (True, False)]
            rows.append([way, kind, *map(_said, sides)])
    return _table(["protection", "bottoms", "the active party learns", "a passive party learns"], rows)


def _worst(findings: Sequence[Finding]) -> str:
    given = {f.severity for f in findings}
    return next((severity for severity in ("leak", "note", "ok") if severity in given), "nothing")


def _algorithms() -> str:
    rows = []
    for name in ALGORITHMS:
        for kind, algorithm in _kinds(name).items():
            cells = []
            for protection in WAYS.values():
                found = _findings(algorithm, protection)
                if found is None:
                    cells.append("refused")
                    continue
                to_active = [f for f in found if f.party == ACTIVE]
                cells.append(f"{_worst(to_active)} / {_worst([f for f in found if f.party in PASSIVE])}")
            rows.append([f"`{name}`", kind if ALGORITHMS[name].exchanges else "–", *cells])
    return _table(["algorithm", "bottoms", *WAYS], list(map(list, dict.fromkeys(map(tuple, rows)))))


def _beyond() -> str:
    rows = []
    for name in ALGORITHMS:
        algorithm = _kinds(name)["trainable"] if "trainable" in _kinds(name) else _kinds(name)["identity"]
        protection = WAYS["plain" if algorithm.reveals or _findings(algorithm, WAYS["sealed"]) is None else "sealed"]
        found = _findings(algorithm, protection) or []
        usual = at_the_cut(protection, active=ACTIVE, passive=PASSIVE, trainable=algorithm.trainable)
        usual += at_the_cut(protection, active=ACTIVE, passive=PASSIVE[:1], trainable=algorithm.trainable)
        more = [f for f in found if f not in usual]
        sides = [[f for f in more if f.party in who] for who in ((ACTIVE,), PASSIVE)]
        rest = [f for f in more if f.party not in (ACTIVE, *PASSIVE)]
        if more:
            third = "; ".join(f"{f.party}: {f.learns}" for f in rest)
            rows.append([f"`{name}`", *map(_said, sides), third])
    return _table(["algorithm", "the active party learns", "a passive party learns", "others learn"], rows)


def _percent(error: float | None) -> str:
    if error is None:
        return "–"
    if error > 1.005:
        return "> 100 %"
    return f"{100 * error:.0f} %" if error >= 0.095 else f"{100 * error:.2g} %"


def _attack() -> str:
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    rows = []
    for name, after in figures.items():
        if not isinstance(after, dict) or not all(isinstance(one, dict) and "steps" in one for one in after.values()):
            continue
        for epochs, one in after.items():
            looks = one["features, all looks"]
            solved = one.get("features, transcript", looks)
            cells = [_percent(min(looks[k], solved[k])) for k in ("19", "36", "72")]
            held = _percent(one["features of validation rows"].get("36"))
            size = [name, f"{one['training rows']:,}", epochs, str(one["steps"]), f"{one['test AUC']:.2f}"]
            rows.append([*size, _percent(one.get("gram")), *cells, held])
    head = ["job", "rows", "epochs", "steps", "AUC", "Gram, 0 known", "19 known", "36", "72", "validation rows, 36"]
    return _table(head, rows)


def blocks() -> dict[str, str]:
    """Name → table, as the page should have it."""
    return {"cut": _cut(), "algorithms": _algorithms(), "beyond": _beyond(), "attack": _attack()}


def written(page: str) -> dict[str, str]:
    """Name → table, as the page has it."""
    found = re.findall(r"<!-- table: (\w+) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
    return {name: text.strip() for name, text in found}


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, text in blocks().items():
        start = page.index(f"<!-- table: {name} -->")
        end = page.index("<!-- end -->", start)
        page = f"{page[:start]}<!-- table: {name} -->\n\n{text}\n\n{page[end:]}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

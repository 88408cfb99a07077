"""The tables of docs/threat-model.md and docs/differential-privacy.md that are made from what the code declares and
from measured figures.

python tools/pages/page_tables.py    writes them into the page; a test holds that it has them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import securevfl as sv
from securevfl.cut import CutUse, Protection
from securevfl.errors import SecureVFLError
from securevfl.privacy import Finding, load_measured, permitted_by
from securevfl.privacy.severity import mu_of
from securevfl.training import Algorithm, find_algorithm, registered_algorithms

__all__ = ["FIGURES", "NAMES", "NOISE_PAGE", "PAGE", "SEALED", "blocks", "noise_blocks", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
NOISE_PAGE = ROOT / "docs" / "differential-privacy.md"
GATE = ROOT / "benchmarks" / "results" / "gate.json"
FIGURES = ROOT / "benchmarks" / "results" / "attack_on_z.json"

KINDS: Mapping[str, type[Any]] = Protection.known_types()
SEALED = [name for name, kind in KINDS.items() if kind().policy().sealed and not kind.on_shares]
"""Protections that seal a cut; a test holds that they have the same findings, so that one column tells of all."""
DP = sv.DP(features=sv.Gaussian(epsilon=0.5), labels=sv.Gaussian(epsilon=0.5))
WAYS: dict[str, Protection] = {
    "plain": sv.Plain(),
    "plain + DP": sv.Plain(dp=DP),
    "sealed": sv.Paillier(),
    "sealed + DP": sv.Paillier(dp=DP),
    "shares": sv.Shares(),
}
NAMES = sorted(registered_algorithms(), key=lambda name: (name != "splitnn", name))
"""Of all algorithms, the one that the others are compared with first."""
VARIANTS: dict[str, dict[str, dict[str, str]]] = {"multi_vfl": {', aggregation="ckks"': {"aggregation": "ckks"}}}
"""Algorithm → what a row of its own is called and configured by, beside the row of the defaults."""
BOTTOMS: dict[str, tuple[int, ...]] = {"identity": (), "trainable": (4,)}
ACTIVE, PASSIVE = "A", ("P", "Q")
_LETTERS = {"active": "A", "passive": "P", "coordinator": "helper"}


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(head), "|" + "---|" * len(head), *map(_row, rows)])


def _said(findings: Sequence[Finding]) -> str:
    bold = {"leak": "**leak**", "note": "note", "ok": "ok"}
    return "; ".join(dict.fromkeys(f"{bold[f.severity]}: {f.learns}" for f in findings))


def _rows() -> list[tuple[str, str, Algorithm]]:
    """Algorithm as the tables call it, kind of bottom, configuration."""
    found = []
    for name in NAMES:
        variants: dict[str, dict[str, str]] = {"": {}} | VARIANTS.get(name, {})
        for more, settings in variants.items():
            if "bottom" not in find_algorithm(name).__struct_fields__:
                found.append((f"`{name}{more}`", "–", find_algorithm(name).from_values({**settings})))
                continue
            for kind, bottom in BOTTOMS.items():
                try:
                    algorithm = find_algorithm(name).from_values({"bottom": bottom, **settings})
                except SecureVFLError:
                    continue
                found.append((f"`{name}{more}`", kind, algorithm))
    return found


def _findings(algorithm: Algorithm, protection: Protection) -> list[Finding] | None:
    """What it says under this protection, with DP on features only where on labels cannot be had; None if refused."""
    asked = [protection]
    if protection.dp is not None:
        asked.append(protection.replace(dp=sv.DP(features=protection.dp.features)))
    for one in asked:
        try:
            algorithm.check_protection(one)
        except SecureVFLError:
            continue
        return algorithm.findings(one, PASSIVE[: algorithm.most_passive or len(PASSIVE)], ACTIVE)
    return None


def _cut() -> str:
    rows = []
    for way, protection in WAYS.items():
        for kind, bottom in BOTTOMS.items():
            found = sv.SplitNN(bottom=bottom).findings(protection, PASSIVE, ACTIVE)
            sides = [[f for f in found if (f.party == ACTIVE) == active] for active in (True, False)]
            rows.append([way, kind, *(_said(side) or "nothing" for side in sides)])
    return _table(["protection", "bottoms", "the active party learns", "a passive party learns"], rows)


def _worst(findings: Sequence[Finding]) -> str:
    given = {f.severity for f in findings}
    return next((severity for severity in ("leak", "note", "ok") if severity in given), "nothing")


def _algorithms() -> str:
    rows = []
    for name, kind, algorithm in _rows():
        cells = []
        for protection in WAYS.values():
            found = _findings(algorithm, protection)
            if found is None:
                cells.append("refused")
                continue
            to_active = [f for f in found if f.party == ACTIVE]
            cells.append(f"{_worst(to_active)} / {_worst([f for f in found if f.party in PASSIVE])}")
        sends = bool(algorithm.exchanges(WAYS["plain"], len(PASSIVE)))
        rows.append([name, kind if sends else "–", *cells])
    return _table(["algorithm", "bottoms", *WAYS], list(map(list, dict.fromkeys(map(tuple, rows)))))


def _beyond() -> str:
    rows = []
    for name, algorithm in {name: algorithm for name, _, algorithm in _rows()}.items():
        protection = WAYS["plain" if _findings(algorithm, WAYS["sealed"]) is None else "sealed"]
        found = _findings(algorithm, protection) or []
        cut = sv.SplitNN(bottom=BOTTOMS["trainable" if algorithm.trainable else "identity"])
        usual = [f for parties in (PASSIVE, PASSIVE[:1]) for f in cut.findings(protection, parties, ACTIVE)]
        more = [f for f in found if f not in usual]
        sides = [[f for f in more if f.party in who] for who in ((ACTIVE,), PASSIVE)]
        rest = [f for f in more if f.party not in (ACTIVE, *PASSIVE)]
        if more:
            third = "; ".join(f"{f.party}: {f.learns}" for f in rest)
            rows.append([name, *map(_said, sides), third])
    return _table(["algorithm", "the active party learns", "a passive party learns", "others learn"], rows)


def _two() -> str:
    rows = []
    for source, protection in (("pair", sv.Shares(computing=2)), ("helper", sv.Shares(computing=2, helper="H"))):
        for one in protection.exchanges(CutUse(trainable=False), 1):
            way = f"{_LETTERS[one.sender]} → {_LETTERS[one.receiver]}"
            learns = f"{'**leak**' if one.severity == 'leak' else one.severity}: {one.reveals}" if one.reveals else ""
            rows.append([source, f"`{one.step}`", way, one.kind.value, one.words, learns])
    return _table(["random numbers by", "step", "from → to", "kind", "content", "its receiver learns"], rows)


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


def _epsilon() -> str:
    rows = []
    for epsilon in (0.2, 0.5, 0.6, 1, 2, 4, 8, 20, 1000):
        gaussian = permitted_by(sv.Gaussian(epsilon=epsilon))
        drawn = permitted_by(sv.RandomisedResponse(epsilon=epsilon)) if epsilon <= 20 else None
        rows.append(
            [
                f"{epsilon:g}",
                f"{mu_of(epsilon, sv.Gaussian().delta):.2f}",
                f"{_up(gaussian.auc)}, {gaussian.severity}",
                _up(drawn.auc) if drawn else "refused",
            ]
        )
    return _table(["ε", "μ at δ = 10⁻⁵", "Gaussian noise, all looks: AUC at most", "randomised response: AUC"], rows)


def _up(auc: float) -> str:
    return f"{math.ceil(100 * auc - 1e-9) / 100:.2f}"


def _gate(*data: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Algorithm and protection → the gate's cells on these data, one a seed."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in json.loads(GATE.read_text(encoding="utf-8"))["cells"]:
        if cell["data"] in data:
            found.setdefault((cell["algorithm"], cell["protection"]), []).append(cell)
    return found


def _beside(cells: Sequence[dict[str, Any]], what: str, other: str) -> str:
    """The largest figure over seeds with what it is to be compared with; a dash where nothing was measured."""
    got = [cell[what] for cell in cells if cell.get(what)]
    if not got:
        return "–"
    worst = max(got, key=lambda one: one["value"])
    if other == "bound" and worst["bound"] >= 1:
        return f"{worst['value']:.2f}"
    return f"{worst['value']:.2f} ({max(worst[other], 0.0):.2f})"


def _severity(cells: Sequence[dict[str, Any]], what: str) -> str:
    (severity,) = {cell[what]["severity"] for cell in cells if cell.get(what)}
    return "**leak**" if severity == "leak" else severity


def _measured() -> str:
    rows = []
    for (algorithm, protection), cells in _gate("credit").items():
        if protection.startswith("shares"):
            continue
        figures = [_beside(cells, what, "without") for what in ("labels", "features", "attribute")]
        labels, features = (_severity(cells, what) for what in ("labels", "features"))
        rows.append([f"`{algorithm}`", protection, figures[0], labels, *figures[1:], features, str(len(cells))])
    head = ["algorithm", "protection", "labels: AUC", "finding", "features: R²", "attribute: AUC", "finding", "seeds"]
    return _table(head, rows)


def _by_gain(cells: Sequence[dict[str, Any]], what: str, chance: float = 0.0) -> str:
    """The largest gain over seeds: what was got, and in brackets what is got without it."""
    got = [cell[what] for cell in cells if cell.get(what)]
    if not got:
        return "–"
    worst = max(got, key=lambda one: one["value"] - max(one["without"], chance))
    error = f" ± {worst['error']:.2f}" if worst["error"] >= 0.005 else ""
    return f"{worst['value']:.2f}{error} ({max(worst['without'], chance):.2f})"


_DATA = {"credit": "", "planted": ", planted", "amount": ", a number"}


def _on_shares() -> str:
    rows = []
    for data in ("credit", "planted", "amount"):
        for (algorithm, protection), cells in _gate(data).items():
            if not protection.startswith("shares"):
                continue
            job = f"`{algorithm}`{protection.removeprefix('shares')}{_DATA[data]}"
            aucs = (_by_gain(cells, what, 0.5) for what in ("labels", "attribute", "order"))
            columns = (_by_gain(cells, what) for what in ("features", "predictions"))
            rows.append([job, *aucs, *columns, str(len(cells))])
    head = ["job", "labels: AUC", "attribute: AUC", "order: AUC", "features: R²", "by final predictions: R²", "seeds"]
    return _table(head, rows)


def _planted() -> str:
    rows = []
    for (algorithm, protection), cells in _gate("planted", "canaries").items():
        audits = [audit for cell in cells for audit in cell["audits"]]
        if not audits:
            continue
        figures = [_beside(cells, what, "bound") for what in ("labels", "attribute")]
        bounds = []
        for what in ("labels", "features"):
            mine = [audit for audit in audits if audit["what"] == what]
            worst = max(mine, key=lambda one: one["lower"], default=None)
            bounds.append("–" if worst is None else f"{worst['lower']:.2f} of {worst['reported']:.2f}")
        rows.append([f"`{algorithm}`", protection, *figures, *bounds, str(len(cells))])
    head = ["algorithm", "protection", "coin labels: AUC", "coin attribute: AUC"]
    return _table([*head, "ε of labels", "ε of features", "runs"], rows)


def _amounts() -> str:
    rows = []
    for (algorithm, protection), cells in _gate("amount").items():
        if protection.startswith("shares"):
            continue
        best = max((cell["labels"] for cell in cells), key=lambda one: one["correlation"])
        correlation = f"{best['correlation']:.2f} ({best['correlation_without']:.2f})"
        figures = [_beside(cells, what, "without") for what in ("labels", "features", "attribute")]
        says = [_severity(cells, what) for what in ("labels", "features")]
        rows.append(
            [f"`{algorithm}`", protection, correlation, figures[0], says[0], *figures[1:], says[1], str(len(cells))]
        )
    head = ["algorithm", "protection", "number: correlation", "above its median: AUC", "finding"]
    return _table([*head, "features: R²", "attribute: AUC", "finding", "seeds"], rows)


def _views() -> str:
    rows = []
    for view, found in load_measured().items():
        attribute = f"{found.attribute:.2f} ({found.attribute_without:.2f})" if found.attribute != 0.5 else "–"
        shown = "**leak**" if found.severity == "leak" else found.severity
        figure = f"{found.got:.2f} ({max(found.without, 0.0):.2f})"
        rows.append([view, found.about, figure, attribute, shown])
    return _table(["what a party sees, without noise", "about", "AUC or R²", "attribute: AUC", "severity"], rows)


def blocks() -> dict[str, str]:
    """Name → table, as the page should have it."""
    return {
        "views": _views(),
        "cut": _cut(),
        "algorithms": _algorithms(),
        "beyond": _beyond(),
        "gate": _measured(),
        "amounts": _amounts(),
        "shares": _on_shares(),
        "two": _two(),
        "planted": _planted(),
        "attack": _attack(),
    }


def noise_blocks() -> dict[str, str]:
    """Name → table, as the page about differential privacy should have it."""
    return {"epsilon": _epsilon()}


def written(page: str) -> dict[str, str]:
    """Name → table, as the page has it."""
    found = re.findall(r"<!-- table: (\w+) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
    return {name: text.strip() for name, text in found}


def main() -> None:
    for path, tables in ((PAGE, blocks()), (NOISE_PAGE, noise_blocks())):
        page = path.read_text(encoding="utf-8")
        for name, text in tables.items():
            start = page.index(f"<!-- table: {name} -->")
            end = page.index("<!-- end -->", start)
            page = f"{page[:start]}<!-- table: {name} -->\n\n{text}\n\n{page[end:]}"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

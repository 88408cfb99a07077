"""Exported parts: what the written files compute is what the program computes, alone and together."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import securevfl as sv
from securevfl.algorithms.scorecard.exporting import export_card
from securevfl.algorithms.splitnn.exporting import check_in_hand
from securevfl.cli import main
from securevfl.data import FeatureEncoder, Parties, PartyTable
from securevfl.export import PartHead, PartSource, evaluate_graph, finish_scores, read_part, reader
from securevfl.export.documents import describe_encodings
from securevfl.export.onnx_columns import add_column_nodes, graph_inputs
from securevfl.export.onnx_graph import Graph
from securevfl.export.raw_columns import raw_columns
from securevfl.report.printed_scores import print_score
from securevfl.run.exporting import check_exported, export_part
from securevfl.run.joint_export import check_together, score_together
from securevfl.run.simulation import join_parties
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

ROWS = 160


def make_table(name: str, *, prepared: bool, rows: int = ROWS, label: bool = False) -> PartyTable:
    """A table with all kinds of columns."""
    draw = np.random.default_rng(3)
    age, town = draw.normal(40, 10, rows), draw.choice(["Bern", "Uri", "Zug"], rows, p=[0.5, 0.3, 0.2])
    columns: dict[str, np.ndarray] = {"age": age, "town": town, "spent": draw.lognormal(3, 1.5, rows)}
    if prepared:
        columns["age"] = np.where(draw.random(rows) < 0.2, np.nan, age)
        columns["since"] = np.datetime64("2019-11-03") + draw.integers(0, 900, rows).astype("timedelta64[D]")
        columns["since"][:5] = np.datetime64("NaT")
        columns["active"] = draw.choice(np.array(["yes", "no", ""], dtype=object), rows)
    y = (age + 8 * (town == "Uri") + draw.normal(0, 5, rows) > 42).astype(np.int64)
    return PartyTable(
        name=name,
        ids=[f"c{i}" for i in range(rows)],
        columns=columns,
        categorical=frozenset(["town"]),
        preparation=sv.Preparation() if prepared else None,
        label=y if label else None,
        classes=(0, 1) if label else (),
        label_name="bad" if label else "",
    )


@pytest.fixture(scope="module")
def parties() -> Parties:
    bank, telco = make_table("bank", prepared=True, label=True), make_table("telco", prepared=False)
    return Parties.of(bank, telco)


@pytest.fixture(scope="module")
def models(parties: Parties) -> dict[str, sv.Model]:
    """A model of each kind, trained on the same alignment."""
    algorithms = [sv.SplitNN(hidden=4, bottom=(3,)), sv.Boosting(depth=3), sv.Additive()]
    found, aligned = {}, None
    for algorithm in algorithms:
        job = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=2, batch_size=64)
        aligned = aligned or join_parties(parties, job)
        found[algorithm.name] = sv.simulate(job, parties, aligned=aligned).model()
    return found


@pytest.mark.parametrize("name", ["boosting", "additive"])
def test_parts_without_a_network_print_the_scores_of_predict(
    models: dict[str, sv.Model], parties: Parties, tmp_path: Path, name: str
) -> None:
    model = models[name]
    parts = {party: export_part(model.part(party), tmp_path) for party in parties}
    aligned = join_parties(parties, model.job)
    rows = {party: one.rows for party, one in aligned.parties.items()}
    exported = score_together(parts, parties, rows)
    expected = sv.predict(model, parties, aligned=aligned).probabilities
    printed = [[print_score(value) for value in row] for row in (*exported.tolist(), *expected.tolist())]
    assert printed[: len(exported)] == printed[len(exported) :]
    assert len({row[1] for row in printed}) > 3  # a model that tells rows apart; leaves of trees have 20 rows
    assert all(check_exported(parts[party], parties[party]) < 1e-12 for party in parties)


def test_a_network_is_onnx_and_gives_the_scores_of_predict(
    models: dict[str, sv.Model], parties: Parties, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    found = models["splitnn"].export(tmp_path, parties)
    assert found.together is not None
    assert found.together.rows == ROWS
    assert found.together.difference < 1e-6
    assert max(found.differences.values()) < 2e-6
    assert (tmp_path / "telco" / "telco.onnx").exists()
    assert found.parts["bank"].document["model"]["takes"] == "others"
    with pytest.raises(ValueError, match=r"evaluate telco\.onnx with an ONNX runtime"):
        read_part(tmp_path / "telco" / "telco.part.json")


def test_a_changed_file_is_noticed(models: dict[str, sv.Model], parties: Parties, tmp_path: Path) -> None:
    part = export_part(models["boosting"].part("telco"), tmp_path)
    file = tmp_path / "telco.part.json"
    content = json.loads(file.read_text())
    content["model"]["splits"][0]["missing left"] = not content["model"]["splits"][0]["missing left"]
    file.write_text(json.dumps(content))
    check_exported(part, parties["telco"])  # this table lacks no value, so that the change shows in no row
    content["model"]["splits"][0]["threshold"] = None
    content["model"]["splits"][0].pop("levels", None)
    file.write_text(json.dumps(content))
    with pytest.raises(sv.InputError, match=r"part of 'telco' \(telco\.part\.json\) differs from the program"):
        check_exported(part, parties["telco"])


def test_parts_of_two_models_do_not_add_up(models: dict[str, sv.Model], parties: Parties, tmp_path: Path) -> None:
    model = models["additive"]
    parts = {party: export_part(model.part(party), tmp_path) for party in parties}
    file = tmp_path / "telco.part.json"
    content = json.loads(file.read_text())
    for one in content["model"]["bins"]:
        one["values"] = [[0.5 * value for value in row] for row in one["values"]]
    file.write_text(json.dumps(content))
    with pytest.raises(sv.InputError, match="together differ from predict by"):
        check_together(parts, parties, model.job, lambda rows: sv.predict(model, parties, aligned=rows).probabilities)


def test_a_passive_part_tells_nothing_of_the_others(models: dict[str, sv.Model], tmp_path: Path) -> None:
    for name in ("boosting", "additive"):
        export_part(models[name].part("telco"), tmp_path / name)
        text = (tmp_path / name / "telco.part.json").read_text()
        assert "since" not in text
        assert "link" not in text
        assert "training counts" not in text
    export_part(models["boosting"].part("bank"), tmp_path)
    nodes = [
        node
        for tree in json.loads((tmp_path / "bank.part.json").read_text())["model"]["trees"]
        for node in tree["nodes"]
    ]
    theirs = [node for node in nodes if "owner" in node]
    assert theirs
    assert all(node.keys() == {"owner", "split", "left", "right"} for node in theirs)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_columns_are_encoded_as_in_training(*, prepared: bool, scale: str) -> None:
    table = make_table("bank", prepared=prepared)
    if prepared:
        object.__setattr__(table, "preparation", sv.Preparation(scale=scale))
    encoder = FeatureEncoder.fit(table, np.arange(0, ROWS, 2), scale=scale)
    document = {"party": "bank", "view": encoder.view, "clip": encoder.clip, "columns": describe_encodings(encoder)}
    document = json.loads(json.dumps(document))
    raw, expected = raw_columns(encoder, table), encoder.transform(table)
    assert expected.std(axis=0).min() > 0
    np.testing.assert_array_equal(reader.encode_columns(document, raw), expected)
    pytest.importorskip("onnx")
    graph = Graph()
    graph.add_output(add_column_nodes(graph, document, encoder.row_shape), "x", "float", expected.shape[1])
    found = evaluate_graph(graph.finish({}), graph_inputs(document, raw))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_blocks_and_new_levels_are_encoded_as_in_training() -> None:
    draw = np.random.default_rng(0)
    columns = {"scan": draw.random((30, 2, 3)).astype(np.float32)}
    table = PartyTable(name="clinic", ids=[str(i) for i in range(30)], columns=columns)
    encoder = FeatureEncoder.fit(table, np.arange(20))
    document = {"party": "clinic", "view": "network", "clip": encoder.clip, "columns": describe_encodings(encoder)}
    found = reader.encode_columns(document, raw_columns(encoder, table))
    np.testing.assert_array_equal(found, encoder.transform(table).reshape(30, -1))
    codes = {"how": "codes", "levels": ["a", "b"]}
    coded = {"party": "x", "view": "coded", "columns": {"c": codes}}
    assert reader.encode_columns(coded, {"c": ["b", "new", "a"]}).tolist() == [[1], [2], [0]]
    assert np.isnan(reader.encode_columns(coded, {"c": [""]})).all()


def test_a_scorecard_adds_coefficient_times_evidence() -> None:
    weights = {
        "0.cuts": torch.tensor([[0.0, 1.0], [0.5, torch.inf]]),
        "0.woe": torch.tensor([[-1.0, 0.5, 2.0], [0.25, -0.5, 0.0]]),
        "1.bias": torch.tensor([-0.75]),
    }
    card = {"columns": [{"coefficient": 2.0}, {"coefficient": -1.0}]}
    head = PartHead(party="bank", others=("telco",), job="", run="", part="")
    table = PartyTable(name="bank", ids=["1", "2"], columns={"a": np.zeros(2), "b": np.ones(2)})
    encoder = FeatureEncoder.fit(table, np.arange(2))
    model = {"parts": {"half": (weights, None)}, "scorecard": card}
    source = PartSource(head=head, protection=sv.BFV(), model=model, encoder=encoder, outputs=1, link={})
    found = export_card(source)
    x = np.array([[0.0, 0.5], [1.5, 0.6]], dtype=np.float32)
    assert found.compute(x, {"telco": np.array([[1.0], [0.0]])})[:, 0].tolist() == [
        -2.0 - 0.25 + 1 - 0.75,
        4.0 + 0.5 - 0.75,
    ]
    assert found.model["base"] == [-0.75]
    assert found.model["bins"][1] == {"edges": [0.5], "values": [[-0.25], [0.5]], "missing": False}


def test_scores_of_numbers_and_many_classes() -> None:
    number = {"sums are": "logits", "then": "number", "exponential": True, "scale": 2.0, "centre": 1.0}
    assert finish_scores(number, np.array([[0.0], [99.0]]))[:, 0].tolist() == [3.0, 2 * np.exp(50.0) + 1]
    many = {"sums are": "logits", "then": "classes", "temperature": 2.0, "intercept": [1.0, 0.0, -1.0]}
    found = finish_scores(many, np.log([[0.25, 0.25, 0.5]]))
    raised = np.sqrt([0.25, 0.25, 0.5]) * np.exp([1.0, 0.0, -1.0])
    np.testing.assert_allclose(found[0], raised / raised.sum())
    labels = {"sums are": "logits", "then": "labels"}
    assert finish_scores(labels, np.zeros((1, 2))).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("protection", "reason"),
    [
        (sv.BFV(), "in two shares, of which each party has one"),
        (sv.CKKS(), "in two shares"),
        (sv.Paillier(), "in two shares"),
        (sv.Shares(), "no party has weights of it"),
        (sv.Shares(computing=2), "no party has weights of it"),
        (sv.Plain(fixed_point=True), "for comparisons"),
    ],
)
def test_weights_in_shares_are_in_nobodys_hands(protection: object, reason: str) -> None:
    with pytest.raises(sv.InputError, match=reason):
        check_in_hand(protection)  # type: ignore[arg-type]
    check_in_hand(sv.Plain())
    check_in_hand(sv.Shares(model="parts"))


def test_what_is_not_exported_is_refused_with_its_reason(models: dict[str, sv.Model], tmp_path: Path) -> None:
    from dataclasses import replace

    part = models["splitnn"].part("bank")
    noisy = part.job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=2.0, clip=1.0))))
    with pytest.raises(sv.InputError, match="every answer of this job carries noise"):
        export_part(replace(part, job=noisy), tmp_path)
    with pytest.raises(sv.InputError, match="RISA has no exported form: those of additive"):
        export_part(replace(part, job=part.job.replace(algorithm=sv.RISA())), tmp_path)
    trees = models["boosting"].part("bank")
    with pytest.raises(sv.InputError, match="leaves are in shares and no party has them"):
        export_part(replace(trees, job=trees.job.replace(protection=sv.Shares())), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_reader_needs_numpy_alone() -> None:
    tree = ast.parse(Path(reader.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} == {
        "__future__",
        "collections",
        "hashlib",
        "json",
        "numpy",
        "pathlib",
        "typing",
    }


@pytest.fixture
def run(models: dict[str, sv.Model], parties: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder with the additive model, and the tables as files."""
    monkeypatch.chdir(tmp_path)
    sections = []
    for name, table in parties.items():
        label = "" if table.label is None else 'label = "bad"\n'
        prepare = "" if table.preparation is None else 'prepare = "auto"\n'
        sections.append(
            f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\ncategorical = ["town"]\n{label}{prepare}'
        )
        columns = {
            "id": list(table.ids),
            **{key: np.asarray(values).astype(str) for key, values in table.columns.items()},
        }
        if table.label is not None:
            columns["bad"] = table.label.astype(str)
        lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines).replace("nan", "").replace("NaT", "") + "\n")
    models["additive"].save(tmp_path / "r" / "model")
    job = '[job]\nepochs = 2\nbatch_size = 64\n[algorithm]\nname = "additive"\n[protection]\nname = "plain"\n'
    (tmp_path / "r" / "model" / "job.toml").write_text(job + "\n".join(sections))
    return tmp_path / "r"


def test_the_commands_export_and_drift(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "r", "--data", "bank=bank.csv", "--data", "telco=telco.csv"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    assert "telco: bins of 3 columns; at most" in shown
    assert "All parts together: the scores of predict on 160 common rows, off by at most" in shown
    assert {file.name for file in Path("exported", "telco").iterdir()} == {"telco.part.json", "read_part.py"}
    with pytest.raises(SystemExit):
        main(["export", "r", "--as", "telco", "--out", "one"])
    assert "Not checked: to compare the files with the program, add --data telco=FILE" in capsys.readouterr().out
    later = Path("telco.csv").read_text().splitlines()
    moved = [",".join([i, str(float(age) + 12), *rest]) for i, age, *rest in (line.split(",") for line in later[1:])]
    Path("next.csv").write_text("\n".join([later[0], *moved]) + "\n")
    with pytest.raises(SystemExit):
        main(["drift", "r", "--data", "telco=next.csv"])
    shown = capsys.readouterr().out
    assert "telco: 1 of 3 columns drifted: age PSI" in shown
    assert "major" in shown
    with pytest.raises(SystemExit) as ended:
        main(["drift", "r"])
    assert ended.value.code == 2
    assert "a run's folder holds no tables: add --data bank=FILE" in capsys.readouterr().err


def test_a_party_exports_and_measures_drift_from_its_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = make_parties(passive=1, rows=80)
    shop = tables.passive[0].name
    company = create_company(tmp_path, tables, sv.Job(algorithm=sv.Additive(), protection=sv.Plain(), epochs=1))
    job = company.agreement.proposal.job_of()
    model = sv.simulate(job, company.people, aligned=join_parties(company.people, job)).model()
    model.save(company.state_folder(shop) / "model")
    own = ["agreement.toml", "--as", shop, "--file", str(tmp_path / f"{shop}.toml")]
    own[0] = str(tmp_path / own[0])
    with pytest.raises(SystemExit) as ended:
        main(["export", *own, "--out", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    assert f"{shop}: bins of {len(tables[shop].columns)} columns; at most 0 from the program on its own rows" in shown
    assert json.loads((tmp_path / "out" / f"{shop}.part.json").read_text())["run"] == company.agreement.digest
    with pytest.raises(SystemExit):
        main(["drift", *own])
    assert f"{shop}: 0 of" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["drift", *own[:2], "bank", *own[3:]])
    assert ended.value.code == 2
    assert f"is of {shop!r} and --as is 'bank'" in capsys.readouterr().err

"""The picture of the house is that of today's imports, and no imports go round in a circle."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import house

    return house


def _tree(folder: Path, files: dict[str, str]) -> Any:
    """The source of a package `toy` with these files."""
    import imports

    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return imports.Source([folder / "toy"])


def test_the_committed_picture_is_that_of_todays_imports(tools: ModuleType) -> None:
    current = tools.PICTURE.read_text(encoding="utf-8")
    assert current == tools.picture(), "out of date: run python tools/house.py"


def test_no_folder_imports_in_a_circle(tools: ModuleType) -> None:
    import imports

    source = tools.read_repository(tools.ROOT)
    roots = {name for name in source.packages if "." not in name}
    assert roots == {"securevfl", "securevfl_net", "securevfl_psi", "securevfl_psi_cli", "securevfl_crypto"}
    assert not imports.circle(source.graph(roots))
    for root in sorted(roots):
        assert not imports.circle(source.graph(source.units(root))), root


def test_no_file_imports_in_a_circle(tools: ModuleType) -> None:
    """Between the files of each folder, imports for type checkers included."""
    import imports

    source = tools.read_repository(tools.ROOT)
    for package in sorted(source.packages):
        assert not imports.circle(source.graph(source.units(package))), package


def test_imports_are_read_through_packages_functions_and_type_checking(tools: ModuleType, tmp_path: Path) -> None:
    source = _tree(
        tmp_path,
        {
            "low/__init__.py": "from toy.low.deep import thing\n",
            "low/deep.py": "import toy.other\n",
            "other.py": "",
            "high.py": "from toy.low import thing\n",
            "late.py": "def f():\n    from toy import other\n",
            "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.high import x\n",
        },
    )
    assert source.imports["toy.high"] == {"toy.low.deep"}
    assert source.imports["toy.late"] == {"toy.other"}
    assert source.imports["toy.typed"] == {"toy.high"}
    assert type(source)([tmp_path / "toy"], types=False).imports["toy.typed"] == frozenset()
    assert source.graph(["toy.low", "toy.other", "toy.high"]) == {
        "toy.low": {"toy.other"},
        "toy.other": frozenset(),
        "toy.high": {"toy.low"},
    }


@pytest.mark.parametrize(
    ("files", "floors", "words"),
    [
        ({"a.py": "import toy.b", "b.py": "import toy.a"}, [["toy.a"], ["toy.b"]], "circle: toy.a → toy.b → toy.a"),
        ({"a.py": "", "b.py": "import toy.a"}, [["toy.a"], ["toy.b"]], "toy.b imports toy.a, which is on no lower"),
        ({"a.py": "import toy.b", "b.py": ""}, [["toy.a", "toy.b"]], "toy.a imports toy.b, which is on no lower"),
        ({"a.py": "", "b.py": ""}, [["toy.a"]], "toy.b is on no floor: name it in the contract"),
    ],
)
def test_what_makes_no_house_is_refused(
    tools: ModuleType, tmp_path: Path, files: dict[str, str], floors: list[list[str]], words: str
) -> None:
    with pytest.raises(tools.HouseError, match=re.escape(words)):
        tools.house(floors, _tree(tmp_path, files))


def test_rooms_do_not_overlap_and_arrows_point_down_from_room_to_room(tools: ModuleType, tmp_path: Path) -> None:
    files = {
        "a.py": "import toy.b, toy.c, toy.d, toy.g",
        "b.py": '"""Says < something & more. And this too."""\nimport toy.e',
        "c.py": "import toy.e, toy.f, toy.h",
        "d.py": "import toy.f",
        "e.py": "import toy.g",
        "f.py": "import toy.g",
        "g.py": "",
        "h.py": "",
    }
    floors = [[f"toy.{name}" for name in floor] for floor in ("a", "bcd", "ef", "gh")]
    plan = tools.house(floors, _tree(tmp_path, files))
    assert plan.says["toy.b"] == "Says < something & more"
    assert "toy.g" not in plan.arrows["toy.a"]  # follows from the others
    text = tools.draw(plan)
    assert text == tools.draw(plan)
    svg = ElementTree.fromstring(text)  # noqa: S314 - made here
    space = "{http://www.w3.org/2000/svg}"
    rooms = [
        tuple(float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
        for shape in svg.iter(f"{space}rect")
        if "stroke" in shape.attrib
    ]
    assert len(rooms) == len(files)
    for index, (x, y, width, _) in enumerate(rooms):
        assert 0 <= x <= x + width <= tools.WIDTH
        assert all(other[1] != y or x + width < other[0] or other[0] + other[2] < x for other in rooms[index + 1 :])
    arrows = [path.attrib["d"] for path in svg.iter(f"{space}path") if path.get("class") == "arrow"]
    assert len(arrows) == sum(map(len, plan.arrows.values()))
    for arrow in arrows:
        points = [tuple(map(float, point)) for point in re.findall(r"([\d.]+) ([\d.]+)", arrow)]
        heights = [y for _, y in points]
        assert heights == sorted(heights)
        (x, y), (end, bottom) = points[0], points[-1]
        assert any(left <= x <= left + width and y == top + height for left, top, width, height in rooms)
        assert any(left <= end <= left + width and bottom == top - 1 for left, top, width, _ in rooms)


def test_the_check_names_the_command(
    tools: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "house.svg"
    monkeypatch.setattr(tools, "picture", lambda: "today's")
    monkeypatch.setattr(sys, "argv", ["house.py", "--check", "--out", str(file)])
    for content in (None, "yesterday's"):
        if content:
            file.write_text(content, encoding="utf-8")
        assert tools.main() == 1
        assert "run python tools/house.py" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["house.py", "--out", str(file)])
    assert tools.main() == 0
    assert file.read_text(encoding="utf-8") == "today's"


_PAGE = ROOT / "docs" / "architecture.md"


def _rooms_of_the_contract() -> set[str]:
    """Each room of the first layers contract of import-linter, without the package's name before it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["name"] == "the layers point one way")
    return {room.strip().removeprefix("securevfl.") for layer in layers for room in re.split(r"[|:]", layer)}


def test_the_architecture_page_lists_every_room_of_the_contract() -> None:
    section = re.search(r"^## The rooms\n(.*?)^## ", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert section is not None
    listed = re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)
    assert len(listed) == len(set(listed))
    rooms = _rooms_of_the_contract()
    assert rooms
    assert set(listed) == rooms, "docs/architecture.md and the layers contract of pyproject.toml list different rooms"


def test_the_files_that_the_architecture_page_names_exist() -> None:
    named = set(re.findall(r"`(\w+(?:/\w+)*(?:/\w+\.py|/))`", _PAGE.read_text(encoding="utf-8")))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / "securevfl" / path).exists()] == []


def test_large_folders_small_files_and_names_defined_twice_are_those_of_the_list(tools: ModuleType) -> None:
    """What is new has to be mended, what was mended has to leave the list: `python tools/rooms.py --write`."""
    import rooms

    listed = tomllib.loads(rooms.EXCEPTIONS.read_text(encoding="utf-8"))
    found = rooms.exceptions()
    assert listed.keys() == found.keys()
    for rule, ones in found.items():
        assert not set(ones) - set(listed[rule]), f"{rule}: mend these; the list of exceptions only shrinks"
        assert not set(listed[rule]) - set(ones), f"{rule}: no longer needed, run python tools/rooms.py --write"


def test_a_small_file_and_a_name_of_two_rooms_are_found(tools: ModuleType, tmp_path: Path) -> None:
    import rooms

    source = _tree(
        tmp_path,
        {
            "one/__init__.py": "from toy.one.small import helper\n",
            "one/small.py": '__all__ = ["helper"]\n\n\ndef helper(): ...\n\n\ndef other(): ...\n',
            "one/user.py": "from toy.one.small import helper\n\n\ndef other(): ...\n",
            "two.py": "def helper(): ...\n\n\ndef _hidden(): ...\n",
            "three.py": "def _hidden(): ...\n",
        },
    )
    lines = dict.fromkeys(source.trees, 10)
    assert rooms.small_files(source, lines) == ["toy.one.small in toy.one.user"]
    assert rooms.small_files(source, lines | {"toy.one.small": rooms.SMALL}) == []
    assert rooms.shared_names(source) == ["toy: helper in one, two"]

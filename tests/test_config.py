"""Configurations: every field is held against its annotation, all mistakes are told at once, and files read alike."""

from __future__ import annotations

import abc
import json
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

import securevfl as sv
from securevfl.config import Config
from securevfl.errors import InputError

Rate = Annotated[float, Meta(gt=0, le=100, description="lower it where training diverges")]
Bottom = tuple[Annotated[int, Meta(ge=1, le=512)], ...] | Literal["cnn", "resnet18"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Model(Config):
    """A base of several, with a registry."""

    name: ClassVar[str]

    @property
    @abc.abstractmethod
    def title(self) -> str: ...

    @classmethod
    def known_types(cls) -> Mapping[str, type[Config]]:
        return {"split": Split, "wide": Wide}


class Split(Model):
    name: ClassVar[str] = "split"
    hidden: Annotated[int, Meta(ge=1, le=64)] = 16
    lr: Rate = 0.1
    bottom: Bottom = ()
    server: Literal["fedavg", "fedadam"] = "fedavg"
    fast: bool = False
    colours: frozenset[Colour] = frozenset()
    limit: float | None = None
    box: tuple[int, float] = (1, 2.0)
    label: Annotated[str, Meta(min_length=1, max_length=5)] = "run"

    def problems(self) -> list[str]:
        found = super().problems()
        if self.fast and self.hidden > 32:
            found.append(f"{self.name}.hidden is {self.hidden}; with fast it is 32 at most")
        if self.fast and self.bottom == "cnn":
            found.append(f"{self.name}.bottom is 'cnn', which fast does not have")
        return found

    @property
    def title(self) -> str:
        return "split"


class Wide(Split):
    """Overrides the default of a field, and adds one that has none."""

    name: ClassVar[str] = "wide"
    bottom: Bottom = (32,)
    width: int

    @property
    def title(self) -> str:
        return f"wide {self.width}"


class Leaf(Config):
    tag_field: ClassVar[str] = "kind"
    kind: ClassVar[str] = "leaf"
    size: Annotated[int, Meta(ge=0)] = 0


class Branch(Config):
    tag_field: ClassVar[str] = "kind"
    kind: ClassVar[str] = "branch"
    left: Leaf = Leaf()


class Whole(Config):
    model: Model = Split()
    tree: Leaf | Branch | None = None
    leaf: Leaf | None = None
    leaves: Mapping[str, Leaf] = {}
    rounds: tuple[Leaf, ...] = ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": 0}, "split.hidden is 0; a whole number from 1 to 64 was expected"),
        ({"hidden": True}, "split.hidden is True; a whole number from 1 to 64 was expected"),
        ({"hidden": 3.0}, "split.hidden is 3.0; a whole number from 1 to 64 was expected"),
        ({"hidden": "3"}, "split.hidden is '3'; a whole number from 1 to 64 was expected"),
        ({"lr": math.nan}, "split.lr is nan; a number above 0 and up to 100 was expected: lower it where training"),
        ({"lr": math.inf}, "split.lr is inf; a number"),
        ({"lr": 10**400}, "split.lr is 1000"),
        ({"bottom": [3, 0]}, "split.bottom[1] is 0; a whole number from 1 to 512 was expected"),
        ({"bottom": "cn"}, "split.bottom is 'cn'; did you mean 'cnn'? Known: 'cnn', 'resnet18'"),
        ({"bottom": 3}, "split.bottom is 3; a list of a whole number from 1 to 512 or one of 'cnn', 'resnet18' was"),
        ({"server": "fedadm"}, "split.server is 'fedadm'; did you mean 'fedadam'? Known: 'fedadam', 'fedavg'"),
        ({"server": 3}, "split.server is 3; one of 'fedavg', 'fedadam' was expected"),
        ({"fast": 1}, "split.fast is 1; true or false was expected"),
        ({"colours": ["red", "rose"]}, "split.colours[1] is 'rose'; did you mean 'red'? Known: 'blue', 'red'"),
        ({"colours": "red"}, "split.colours is 'red'; a list of one of 'red', 'blue' was expected"),
        ({"limit": "much"}, "split.limit is 'much'; a number or None was expected"),
        ({"box": [1]}, "split.box is [1]; a list of 2 values: a whole number, a number was expected"),
        ({"box": [1.5, 1]}, "split.box[0] is 1.5; a whole number was expected"),
        ({"label": ""}, "split.label is ''; a text of 1 to 5 letters was expected"),
        ({"hiden": 3}, "split has no 'hiden'; did you mean 'hidden'? Known: 'bottom', 'box'"),
        ({"fast": True, "hidden": 33}, "split.hidden is 33; with fast it is 32 at most"),
    ],
)
def test_mistakes_give_path_value_and_bound(values: dict[str, Any], message: str) -> None:
    for make in (
        lambda: Split(**values),
        lambda: Split.from_values(values),
        lambda: Model.from_values({"name": "split"} | values),
    ):
        with pytest.raises(InputError) as error:
            make()
        text = str(error.value).replace("model: ", "").replace("model.", "split.").replace("model ", "split ")
        assert text.startswith(message)


def test_all_mistakes_are_told_at_once() -> None:
    values: dict[str, Any] = {"hiden": 3, "lr": -1, "bottom": [0, -1], "server": "x"}
    for make in (lambda: Split(**values), lambda: Split.from_values(values)):
        with pytest.raises(InputError) as error:
            make()
        text = str(error.value)
        assert text.startswith("split has 5 mistakes:\n")
        for part in ("'hiden'", "split.lr", "split.bottom[0]", "split.bottom[1]", "split.server"):
            assert part in text
    with pytest.raises(InputError, match=r"2 mistakes(.|\n)*with fast it is 32(.|\n)*which fast does not have"):
        Split(fast=True, hidden=40, bottom="cnn")


def test_nested_mistakes_are_told_at_once_with_their_paths() -> None:
    values = {
        "model": {"name": "wide", "lr": -1},
        "leaf": {"size": -1},
        "leaves": {"a": {"size": -2}, "b": {"sise": 1}},
        "rounds": [{"size": 1}, {"size": -3}],
        "tree": {"kind": "branch", "left": {"size": -4}},
    }
    with pytest.raises(InputError) as error:
        Whole.from_values(values, "job")
    text = str(error.value)
    assert text.startswith("job has 7 mistakes:")
    for part in (
        "job.model.width is missing; a whole number was expected",
        "job.model.lr is -1",
        "job.leaf.size is -1",
        "job.leaves.a.size is -2",
        "job.leaves.b has no 'sise'; did you mean 'size'",
        "job.rounds[1].size is -3",
        "job.tree.left.size is -4",
    ):
        assert part in text
    with pytest.raises(InputError, match=r"job.model: split.hidden is 40; with fast"):
        Whole.from_values({"model": {"name": "split", "fast": True, "hidden": 40}}, "job")


def test_values_take_the_fields_own_form() -> None:
    split = Split(lr=1, bottom=[4, 2], colours=["red"], box=[1, 2], limit=3, hidden=np.int64(5))  # type: ignore[arg-type]
    assert split == Split(lr=1.0, bottom=(4, 2), colours=frozenset({Colour.RED}), box=(1, 2.0), limit=3.0, hidden=5)
    assert [type(value) for value in (split.lr, split.bottom, split.box[1], split.limit, split.hidden)] == [
        float,
        tuple,
        float,
        float,
        int,
    ]
    assert type(Split(lr=np.float32(0.5)).lr) is float  # type: ignore[arg-type]


def test_configurations_are_frozen_equal_by_content_and_hashable() -> None:
    with pytest.raises(AttributeError):
        Split().hidden = 3  # type: ignore[misc]
    whole = Whole(leaves={"a": Leaf(size=1)})
    same = Whole.from_values({"leaves": {"a": {"size": 1}}})
    assert whole == same
    assert hash(whole) == hash(same)
    assert len({Split(), Split(lr=0.1), Split(lr=0.2)}) == 2
    assert Split() != Wide(width=1)
    with pytest.raises(TypeError):
        whole.leaves["b"] = Leaf()  # type: ignore[index]


def test_a_default_can_be_overridden_and_abstract_classes_cannot_be_made() -> None:
    assert Wide(width=2).bottom == (32,)
    assert Wide(width=2).title == "wide 2"
    assert isinstance(Wide(width=2), Split)
    with pytest.raises(TypeError, match="abstract"):
        Model()  # type: ignore[abstract]
    with pytest.raises(InputError, match="keywords only"):
        Split(3)  # type: ignore[misc]

    class Half(Model):
        name: ClassVar[str] = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


def test_repr_holds_what_differs_from_the_defaults() -> None:
    assert repr(Split()) == "Split()"
    assert repr(Wide(width=1, lr=2)) == "Wide(lr=2.0, width=1)"
    assert repr(Whole(model=Split(lr=2), leaves={"a": Leaf()})) == "Whole(model=Split(lr=2.0), leaves={'a': Leaf()})"


def test_replacing_is_checked_like_making() -> None:
    assert Split(lr=2).replace(hidden=3) == Split(lr=2, hidden=3)
    with pytest.raises(InputError, match="did you mean 'hidden'"):
        Split().replace(hiden=3)
    with pytest.raises(InputError, match=r"split\.hidden is 65"):
        Split().replace(hidden=65)


def test_classes_are_named_by_their_tag() -> None:
    assert Whole(model="split") == Whole.from_values({"model": "split"}) == Whole()  # type: ignore[arg-type]
    assert Whole.from_values({"model": {"name": "wide", "width": 1}}).model == Wide(width=1)
    assert Whole.from_values({"tree": {"kind": "leaf", "size": 2}}).tree == Leaf(size=2)
    assert (
        Whole.from_values({"leaf": {"size": 2}}).leaf == Whole.from_values({"leaf": {"kind": "leaf", "size": 2}}).leaf
    )
    for values, match in (
        ({"model": {"lr": 1}}, "whole.model has no name; add name = one of 'split', 'wide'"),
        ({"model": {"name": "splt"}}, "whole.model.name is 'splt'; did you mean 'split'"),
        ({"tree": {"size": 1}}, "whole.tree has no kind; add kind = one of 'branch', 'leaf'"),
        ({"leaf": {"kind": "branch"}}, "whole.leaf.kind is 'branch'"),
        ({"leaf": 3}, "whole.leaf is 3"),
        ({"leaves": {"a": 3}}, "whole.leaves.a is 3"),
        ([], r"whole is \[\]; a section"),
    ):
        with pytest.raises(InputError, match=match):
            Whole.from_values(values)
    with pytest.raises(InputError, match="'wide'"):
        Wide.from_values({"name": "split", "width": 1})  # a class of its own registry, but no Wide
    with pytest.raises(InputError, match=r"whole\.leaf is"):
        Whole(leaf={"size": 2})  # type: ignore[arg-type]


def test_old_keywords_can_be_explained() -> None:
    class Renamed(Config):
        new: int = 0

        @classmethod
        def refuse_keywords(cls, values: Mapping[str, object], where: str = "") -> None:
            if "old" in values:
                raise InputError(f"{where or 'Renamed'}: old is new now")

    with pytest.raises(InputError, match="Renamed: old is new now"):
        Renamed(old=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"job\.x: old is new now"):
        Renamed.from_values({"old": 3}, "job.x")


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.integers(-2, 600), max_size=3),
)
SPLITS = st.builds(
    Split,
    hidden=st.integers(1, 64),
    lr=st.floats(0, 100, exclude_min=True),
    bottom=st.one_of(st.lists(st.integers(1, 512), max_size=3), st.sampled_from(["cnn", "resnet18"])),
    server=st.sampled_from(["fedavg", "fedadam"]),
    colours=st.frozensets(st.sampled_from(Colour)),
    limit=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    box=st.tuples(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
)


@given(SPLITS)
def test_a_description_is_plain_and_reads_back(split: Split) -> None:
    assert Model.from_values(json.loads(json.dumps(split.describe()))) == split
    assert Split.from_values(split.describe()) == split
    if not split.colours:  # members of an enumeration have no repr that reads back
        assert eval(repr(split), {"Split": Split}) == split  # noqa: S307
    assert split.replace() == split
    assert hash(split.replace()) == hash(split)


@given(st.dictionaries(st.sampled_from([*Split.__struct_fields__, "nonsense"]), PLAIN))
def test_whatever_the_values_they_are_taken_or_refused_and_never_break(values: dict[str, Any]) -> None:
    """An object that exists keeps its bounds, from Python and from files alike."""
    made: list[Callable[[], Split]] = [lambda: Split(**values), lambda: Split.from_values(values)]
    outcomes = []
    for make in made:
        try:
            split = make()
        except InputError as error:
            outcomes.append(str(error))
            continue
        outcomes.append("")
        assert 1 <= split.hidden <= 64
        assert 0 < split.lr <= 100
        assert type(split.hidden) is int
        assert type(split.lr) is float
        assert isinstance(split.bottom, str) or all(1 <= width <= 512 for width in split.bottom)
    assert outcomes[0] == outcomes[1]


def test_names_of_other_libraries_are_told_as_what_they_are_here() -> None:
    with pytest.raises(sv.InputError) as caught:
        sv.Boosting(n_estimators=100, max_depth=3, dept=4)  # type: ignore[call-arg]
    text = str(caught.value)
    assert "has no 'n_estimators'; here it is epochs of the job" in text
    assert "has no 'max_depth'; here it is depth" in text
    assert "has no 'dept'; did you mean 'depth'" in text
    with pytest.raises(sv.InputError, match="has no 'random_state'; here it is seed"):
        sv.Job(protection=sv.Plain(), random_state=1)  # type: ignore[call-arg]


def test_what_other_names_point_to_is_there() -> None:
    for kind, other in ((sv.Boosting, sv.Job), (sv.Job, sv.SplitNN)):
        fields = {*kind.__struct_fields__, *other.__struct_fields__}
        for name, here in kind.elsewhere.items():
            assert name not in kind.__struct_fields__
            assert fields.intersection(here.replace(":", "").split()), (name, here)

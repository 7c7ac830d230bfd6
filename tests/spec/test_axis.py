"""An axis field takes every member that its package defines, and nothing else."""

from __future__ import annotations

import sys
from abc import abstractmethod
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError, create_model

from twin.optimizers.base import Optimizer
from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.schedules.base import Schedule
from twin.spec.axis import Axis, axes, members
from twin.spec.base import Spec


class Shape(Spec):
    """The base of the test's axis."""

    kind: str

    @abstractmethod
    def area(self) -> float: ...


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with two members, one of which takes a setting."""
    name = f"shapes_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    folder.joinpath("__init__.py").write_text("")
    head = f"from typing import Literal, final\nfrom {__name__} import Shape\n"
    folder.joinpath("circle.py").write_text(
        head + "@final\nclass Circle(Shape):\n"
        "    kind: Literal['circle'] = 'circle'\n    radius: float = 1.0\n"
        "    def area(self) -> float: return 3 * self.radius**2\n"
    )
    folder.joinpath("square.py").write_text(
        head + f"from {name}.circle import Circle\n"
        "@final\nclass Square(Shape):\n    kind: Literal['square']\n    side: float = 1.0\n"
        "    def area(self) -> float: return self.side**2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    return name


def test_members_are_found_by_kind_and_an_imported_one_counts_once(package: str) -> None:
    assert list(members(package, Shape)) == ["circle", "square"]


def test_a_field_takes_a_mapping_a_bare_name_or_an_instance(package: str) -> None:
    adapter = TypeAdapter(Annotated[Shape, Axis(package)])
    circle = adapter.validate_python({"kind": "circle", "radius": 2.0})
    assert circle.area() == 12
    assert adapter.validate_python(circle) == circle
    assert adapter.validate_python("square") == adapter.validate_python({"kind": "square"})
    assert adapter.dump_python(circle) == {"kind": "circle", "radius": 2.0}


@pytest.mark.parametrize(
    "value", ["oval", {"kind": "oval"}, {"radius": 1.0}, {"kind": "square", "radius": 1}, 3]
)
def test_a_field_takes_nothing_else(package: str, value: object) -> None:
    adapter = TypeAdapter(Annotated[Shape, Axis(package)])
    with pytest.raises(ValidationError):
        adapter.validate_python(value)


def test_the_json_schema_tells_the_kinds_apart(package: str) -> None:
    schema = TypeAdapter(Annotated[Shape, Axis(package)]).json_schema()
    assert set(schema["discriminator"]["mapping"]) == {"circle", "square"}
    names = [one["const"] for one in schema["anyOf"] if "const" in one]
    assert names == ["circle", "square"]


def test_axes_are_found_in_nested_sections(package: str) -> None:
    inner = create_model("Inner", __base__=Spec, shape=(Annotated[Shape, Axis(package)], ...))
    outer = create_model("Outer", __base__=Spec, inner=(inner, ...), size=(int, ...))
    assert axes(outer) == {("inner", "shape"): Axis(package)}


def test_an_axis_that_may_be_absent_takes_null_too(package: str) -> None:
    adapter = TypeAdapter(Annotated[Shape | None, Axis(package)])
    assert adapter.validate_python(None) is None
    assert adapter.validate_python("square") == adapter.validate_python({"kind": "square"})
    assert {"type": "null"} in adapter.json_schema()["anyOf"]
    with pytest.raises(ValidationError):
        adapter.validate_python("oval")


def test_a_scenario_has_four_axes() -> None:
    assert set(axes(Scenario)) == {
        ("model", "mixer"),
        ("parallel", "schedule"),
        ("train", "optimizer"),
        ("train", "routing"),
    }


def test_every_schedule_and_optimizer_can_be_written() -> None:
    assert members("twin.schedules", Schedule) == SCHEDULES
    assert {"adamw", "muonclip"} <= set(members("twin.optimizers", Optimizer))

"""The repository: how varied tools are, what is rejected, what is imported, what is drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from reference.agentic.domain import entities
from reference.agentic.imported import read_tools
from reference.agentic.operations.base import ToolSpec, form_of, operations
from reference.agentic.report import coverage_svg, coverage_table
from reference.agentic.repository import evolve, masked, share_near, sift
from reference.agentic.spec import RepositorySpec
from reference.text.near import NearSpec
from tests.reference.agentic.worlds import scene
from twin.errors import ScenarioError, UsageError

NEAR = NearSpec(shingle=3)


def test_domains_are_26_categories_of_three_applications_each() -> None:
    categories = {one.category for one in entities().values()}
    assert len(categories) == 26
    for category in categories:
        own = [one for one in entities().values() if one.category == category]
        assert len({one.application for one in own}) == 3


def test_a_domain_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, line, message in (
        ("word", "name:title(A,B) what is this", "odd.ware: TW560 cannot read `what is this`"),
        ("owner", "name:title(A) >nothing", "its owner `nothing` is no entity"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "odd.yaml").write_text(f"shop:\n  ware: WA {line}\n")
        with pytest.raises(ScenarioError, match=message):
            entities(tmp_path / name)


def test_no_two_tools_have_one_name_and_every_application_has_some() -> None:
    tools = scene().repository.tools
    assert len(tools) == 80
    assert len({one.application for one in tools.values()}) == 9
    candidates = [
        t for e in entities().values() for o in operations().values() for t in o.tools(e, False)
    ]
    assert len({one.name for one in candidates}) == len(candidates) > 2500


def test_arguments_differ_in_form_not_only_in_name() -> None:
    tools = scene().repository.tools.values()
    assert len({str(form_of(one.parameters)) for one in tools}) > 0.7 * len(tools)
    text = json.dumps([one.parameters for one in tools])
    for word in ("enum", "format", "pattern", "minimum", "items", "anyOf", "default", "maxItems"):
        assert f'"{word}"' in text
    nested = [
        one
        for one in tools
        if any(inner.get("type") == "object" for inner in one.parameters["properties"].values())
    ]
    assert len(nested) > 5
    optional = [
        one for one in tools if len(one.parameters["required"]) < len(one.parameters["properties"])
    ]
    assert len(optional) > 30


def test_a_tool_with_other_names_and_numbers_is_a_near_duplicate() -> None:
    tools = list(scene().repository.tools.values())
    one = next(tool for tool in tools if tool.operation == "get")
    renamed = replace(
        one,
        name="zz_other",
        parameters={
            **one.parameters,
            "properties": {
                f"zz_{name}": value for name, value in one.parameters["properties"].items()
            },
            "required": [f"zz_{name}" for name in one.parameters["required"]],
        },
    )
    found = sift([*tools, renamed], NEAR)
    assert [line.split()[0] for line in found.rejected] == ["zz_other"]
    assert share_near([*tools, renamed], NEAR) == pytest.approx(1 / 81)


def test_names_of_arguments_and_numbers_are_masked_and_on_demand_nouns() -> None:
    tool = ToolSpec(
        "rate_film_scene",
        "Rate the film scene 14 times by takes.",
        {"type": "object", "properties": {"takes": {"type": "integer", "maximum": 40}}},
        "media",
        "film_studio",
        "update",
        "assign",
        {"entity": "film_scene"},
    )
    assert masked(tool).startswith("Rate the film scene 0 times by NAME.")
    assert "40" not in masked(tool)
    assert masked(tool, nouns=True).startswith("Rate the NAME 0 times by NAME.")


def test_the_repository_holds_no_near_duplicates_and_counts_the_rejected() -> None:
    repository = scene().repository
    assert share_near(repository.tools.values(), NEAR) == 0
    assert share_near(repository.tools.values(), NEAR, nouns=True) < 0.05
    loose = evolve(
        RepositorySpec(tools=40, categories=("finance",), near=NearSpec(shingle=3, threshold=0.3)),
        0,
    )
    assert loose.rejected
    assert " of " in loose.rejected[0]


def test_the_same_seed_gives_the_same_tools_another_one_others() -> None:
    spec = RepositorySpec(tools=30, categories=("finance",))
    assert evolve(spec, 1) == evolve(spec, 1)
    assert evolve(spec, 1).tools.keys() != evolve(spec, 2).tools.keys()


def test_held_out_applications_share_no_tool_with_agents_of_training() -> None:
    held = scene().repository.held_out
    assert held
    for agent in scene().agents:
        apart = {one.application in held for one in agent.tools}
        assert apart == {agent.split == "held_out"}
    assert {one.split for one in scene().agents} == {"train", "held_out"}


def test_agents_have_three_to_twelve_tools_and_some_distractors() -> None:
    sizes = [len(one.tools) for one in scene().agents]
    assert set(sizes) <= set(range(3, 13))
    assert len(set(sizes)) > 3
    assert any({t.application for t in one.tools} != {one.application} for one in scene().agents)
    assert len({one.system for one in scene().agents}) == len(sizes)


def test_terse_tools_have_few_plain_arguments() -> None:
    spec = RepositorySpec(
        tools=60, categories=("finance",), terse=True, most_arguments=3, mask_nouns=False
    )
    for one in evolve(spec, 0).tools.values():
        kinds = {inner["type"] for inner in one.parameters["properties"].values()}
        assert kinds <= {"string", "number", "integer"}
        assert len(json.dumps(one.declaration())) < 450


def test_the_map_is_xml_with_one_area_per_tool_and_the_table_counts_them() -> None:
    tools = list(scene().repository.tools.values())
    root = ET.fromstring(coverage_svg(tools))
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert {f"{one.name} ({one.effect})" for one in tools} <= set(titles)
    areas = [
        float(one.attrib["width"]) * float(one.attrib["height"])
        for one in root.iter("{http://www.w3.org/2000/svg}rect")
        if (title := one.find("{http://www.w3.org/2000/svg}title")) is not None
        and (title.text or "").endswith("tools")
        and (title.text or "").split(":")[0] in {"finance", "travel", "charity"}
    ]
    assert sum(areas) == pytest.approx(1600 * 1000, rel=1e-3)
    rows = coverage_table(tools).splitlines()[2:]
    assert sum(int(row.split("|")[3]) for row in rows) == 80


MCP = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "tools": [
            {
                "name": "get_weather",
                "title": "Weather",
                "description": "Weather of a city",
                "inputSchema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
                "annotations": {"readOnlyHint": True},
            }
        ]
    },
}


def test_tools_of_mcp_and_openai_are_imported(tmp_path: Path) -> None:
    (tmp_path / "weather.json").write_text(json.dumps(MCP))
    tool = read_tools(tmp_path / "weather.json")[0]
    assert (tool.path, tool.effect) == ("unknown/weather/get_weather", "read")
    (tmp_path / "mine.json").write_text(json.dumps([tool.declaration()]))
    again = read_tools(tmp_path / "mine.json")[0]
    assert again.declaration() == tool.declaration()
    spec = RepositorySpec(tools=30, categories=("finance",))
    assert "get_weather" in evolve(spec, 0, [tool]).tools


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read"),
        ('{"tools": 3}', "neither MCP"),
        ('[{"name": "bad name"}]', "is no name"),
        ('[{"name": "ok", "inputSchema": {"type": "object", "not": {}}}]', "not understood"),
    ],
)
def test_a_file_of_tools_that_is_none_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "tools.json").write_text(text)
    with pytest.raises(UsageError, match=f"TW565(?s:.*){told}"):
        read_tools(tmp_path / "tools.json")

"""Worlds are values; tools fail as often as the specification says, and only by seed and state."""

from __future__ import annotations

import copy
import json
from collections import Counter

from reference.agentic.domain import create_tables, entities
from reference.agentic.operations.base import operations
from reference.agentic.spec import ChanceSpec
from reference.agentic.world import World, act
from reference.dialog import Call

TOOLS = {
    tool.name: tool
    for kind in ("portfolio", "trade_order", "campaign", "donation")
    for operation in operations().values()
    for tool in operation.tools(entities()[kind], True)
}
TABLES = create_tables(["trade_order", "donation"], 8, 4, 7)
KEY = next(iter(TABLES["trade_order"]))


def _call(name: str, **given: object) -> Call:
    return Call("", name, json.dumps(given))


def test_a_write_gives_another_world_and_leaves_the_old_one() -> None:
    before = copy.deepcopy(TABLES)
    world = World(TABLES)
    after, told = act(
        world, _call("set_trade_order_state", trade_order_id=KEY, state="filled"), TOOLS, None, 0
    )
    assert json.loads(told)["state"] == "filled"
    assert after.tables["trade_order"][KEY]["state"] == "filled"
    assert before == TABLES
    assert after.calls == 1


def test_no_operation_changes_the_rows_in_place() -> None:
    before = copy.deepcopy(TABLES)
    parent = TABLES["trade_order"][KEY]["portfolio_id"]
    for tool in TOOLS.values():
        given = {
            name: KEY if name == "trade_order_id" else parent if name == "portfolio_id" else 3
            for name in tool.parameters["properties"]
        }
        act(World(TABLES), _call(tool.name, **given), TOOLS, None, 0)
    assert before == TABLES


def test_equal_calls_on_equal_states_give_equal_answers_with_chance_too() -> None:
    chance = ChanceSpec(transient=0.3, partial=0.3, edge=0.3)
    call = _call("get_trade_order", trade_order_id=KEY)
    for calls in range(40):
        one = act(World(TABLES, calls), call, TOOLS, chance, 5)
        assert one == act(World(TABLES, calls), call, TOOLS, chance, 5)
    told = {act(World(TABLES, calls), call, TOOLS, chance, 5)[1] for calls in range(40)}
    assert len(told) > 4


def test_failures_come_as_often_as_specified_and_leave_the_rows_alone() -> None:
    chance = ChanceSpec(transient=0.2, partial=0.1, edge=0.05)
    other = next(one for one in ("filled", "open") if one != TABLES["trade_order"][KEY]["state"])
    call = _call("set_trade_order_state", trade_order_id=KEY, state=other)
    read = _call("get_trade_order", trade_order_id=KEY)
    seen: Counter[str] = Counter()
    for calls in range(2000):
        world = World(TABLES, calls)
        after, told = act(world, call, TOOLS, chance, 1)
        seen["transient"] += told.startswith("Error: ")
        assert (after.tables == TABLES) == told.startswith("Error: ")
        seen["partial"] += "incomplete" in act(world, read, TOOLS, chance, 1)[1]
        seen["edge"] += "warnings" in told
    # Three standard errors of a share of 2,000: 0.027 at 0.2.
    assert abs(seen["transient"] / 2000 - 0.2) < 0.027
    assert abs(seen["partial"] / 2000 - 0.1) < 0.02
    assert abs(seen["edge"] / 2000 - 0.05) < 0.015


def test_wrong_calls_are_told_what_is_wrong() -> None:
    world = World(TABLES)
    told = [
        act(world, call, TOOLS, None, 0)[1]
        for call in (
            Call("", "no_such_tool", "{}"),
            Call("", "get_trade_order", "{"),
            Call("", "get_trade_order", "[]"),
            _call("get_trade_order"),
            _call("get_trade_order", trade_order_id="TO-1"),
            _call("get_trade_order", trade_order_id=KEY, more=1),
            _call("set_trade_order_state", trade_order_id=KEY, state="gone"),
        )
    ]
    words = (
        "no tool",
        "no JSON",
        "must be a JSON object",
        "missing",
        "no trade order",
        "not known",
        "one of",
    )
    for text, word in zip(told, words, strict=True):
        assert text.startswith("Error: ")
        assert word in text
        assert "try again" not in text


def test_the_id_of_a_new_thing_does_not_depend_on_the_order_of_calls() -> None:
    campaign = next(iter(TABLES["campaign"]))
    tool = TOOLS["add_donation"]
    model = next(iter(TABLES["donation"].values()))
    given = {name: model[name] for name in tool.binding["needed"]} | {"campaign_id": campaign}
    calls = [_call(tool.name, **given | {"donor": name}) for name in ("Zoe Zimmer", "Abe Aalto")]

    def made(order: list[Call]) -> tuple[World, set[str]]:
        world, told = World(TABLES), set[str]()
        for call in order:
            world, answer = act(world, call, TOOLS, None, 0)
            told.add(answer)
        return world, told

    one, other = made(calls), made(calls[::-1])
    assert one == other
    assert len(one[1]) == 2
    assert len(one[0].tables["donation"]) == len(TABLES["donation"]) + 2


def test_what_others_belong_to_cannot_be_deleted() -> None:
    owner = TABLES["trade_order"][KEY]["portfolio_id"]
    world, told = act(World(TABLES), _call("delete_portfolio", portfolio_id=owner), TOOLS, None, 0)
    assert "still belong" in told
    assert world.tables == TABLES

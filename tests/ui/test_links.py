"""A link opens the workspace that it was made from, for ever; a broken one says why it does not."""

import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.loading.files import shipped_scenarios
from twin.ui.links import BrokenLinkError, address, decode, encode, last
from twin.ui.workspace import MOST_PLANS, Draft, Workspace

ROOT = Path(__file__).parents[2]
NAMES = st.text(min_size=1, max_size=20)
TEXTS = st.none() | st.text(min_size=1, max_size=200)
EDITS = st.dictionaries(NAMES, st.text(max_size=30), max_size=4).map(lambda d: tuple(d.items()))
PLANS = st.lists(
    st.builds(Draft, NAMES, NAMES, TEXTS, EDITS),
    min_size=1,
    max_size=MOST_PLANS,
    unique_by=lambda plan: plan.name,
)


@st.composite
def workspaces(draw):
    plans = tuple(draw(PLANS))
    index = st.integers(0, len(plans) - 1)
    return Workspace(plans, draw(index), draw(st.none() | index))


@given(workspaces())
def test_a_workspace_survives_its_link_whatever_was_typed(space):
    assert decode(encode(space)) == space


@given(workspaces())
def test_a_workspace_survives_a_browser_s_address_bar(space):
    link = address("http://localhost:8501/result?old=1", space, None)
    parts = urlsplit(link)
    assert parts.path == "/result"
    assert decode(parse_qs(parts.query, keep_blank_values=True)) == space
    assert link.isascii()


@given(workspaces(), st.data())
def test_a_link_that_was_cut_opens_nothing_or_a_workspace_but_never_fails(space, data):
    query = encode(space)
    at = data.draw(st.integers(0, len(query["plan"]) - 1))
    text = query["plan"][at]
    query["plan"][at] = text[: data.draw(st.integers(0, len(text)))]
    with suppress(BrokenLinkError):
        decode(query)


def test_a_link_of_today_opens_tomorrow():
    """Written down as it was made by the first version: it must never be read otherwise."""
    packed = "eNpLrShJzUsptlJILyjRNTQ3TdI1M6lINDQw0E0rzcnhAgCmpAm4"
    query = {
        "v": ["1"],
        "plan": [
            "kimi-k2-256xh800;parallel.pipeline=8;memory.recompute=[full]",
            f"mine.yaml;!name=half the nodes;!text={packed};expect=[fits %3D%3D true]",
        ],
        "open": ["1"],
        "baseline": ["0"],
    }
    first, second = decode(query).plans
    assert first == Draft(
        "kimi-k2-256xh800",
        "kimi-k2-256xh800",
        None,
        (("parallel.pipeline", "8"), ("memory.recompute", "[full]")),
    )
    assert (second.name, second.scenario) == ("half the nodes", "mine.yaml")
    assert second.text == "extends: gpt-175b-64xa100-full\n"
    assert second.edits == (("expect", "[fits == true]"),)
    assert decode(query).shown == 1
    assert decode(query).baseline == 0


def test_a_preset_with_its_edits_can_be_read_in_the_address_bar():
    plan = Draft("a", "a", None, (("parallel.pipeline", "8"), ("memory.recompute", "[full]")))
    assert address("http://x/", Workspace((plan,)), None) == (
        "http://x/?v=1&plan=a;parallel.pipeline=8;memory.recompute=[full]"
    )


def test_a_link_written_by_hand_may_leave_out_the_version():
    assert decode({"plan": ["a;parallel.pipeline=8"]}).open.sets == ("parallel.pipeline=8",)


def test_a_weight_update_of_an_old_link_is_the_open_plan():
    query = {"v": ["1"], "plan": ["a"], "update": ["b;weight_update.x=y"]}
    update = Draft("b", "b", None, (("weight_update.x", "y"),))
    assert decode(query) == Workspace((Draft("a", "a"), update), shown=1)


def test_a_section_and_a_run_are_a_part_of_the_link():
    query = encode(Workspace((Draft("a", "a"),)), section="memory", run=None)
    assert last(query, "section") == "memory"
    assert last(query, "run") is None


def test_a_text_is_packed():
    text = "extends: gpt-175b-64xa100-full\n" + "# a comment that says little\n" * 60
    (packed,) = encode(Workspace((Draft("a.yaml", "a.yaml", text),)))["plan"]
    assert len(packed) < len(text) / 10


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"v": ["2"], "plan": ["a"]}, "newer twin"),
        ({"v": ["one"], "plan": ["a"]}, "no number"),
        ({"v": ["1"]}, "names no plan"),
        ({"v": ["1"], "plan": [""]}, "names no scenario"),
        ({"v": ["1"], "plan": ["a;parallel.pipe"]}, "no edit"),
        ({"v": ["1"], "plan": ["a;x=1;x=2"]}, "twice"),
        ({"v": ["1"], "plan": ["a;!text=eNrzSM3JyVco"]}, "cut"),
        ({"v": ["1"], "plan": ["a;!text=%%%"]}, "cut"),
        ({"v": ["1"], "plan": ["a;!text=eNrz\u00e9"]}, "cut"),
        ({"v": ["1"], "plan": ["a%ff"]}, "names no scenario"),
        ({"v": ["1"], "plan": ["a", "a"]}, "same name"),
        ({"v": ["1"], "plan": ["a"], "open": ["1"]}, "plan 2 of 1"),
        ({"v": ["1"], "plan": ["a"], "baseline": ["-1"]}, "no number"),
        ({"v": ["1"], "plan": [str(n) for n in range(MOST_PLANS + 1)]}, "where 8 fit"),
    ],
)
def test_a_broken_link_says_why(query, reason):
    with pytest.raises(BrokenLinkError, match=reason):
        decode(query)


def test_a_text_that_unpacks_without_end_is_refused():
    huge = encode(Workspace((Draft("a", "a", " " * 1_000_000),)))
    with pytest.raises(BrokenLinkError, match="too long"):
        decode(huge)


UPDATES = [name for name in shipped_scenarios() if "weight-update" in name]


@pytest.mark.parametrize("name", UPDATES)
def test_a_link_to_a_weight_update_opens_that_update_and_no_other(name):
    """Beside other updates, open or not, and as old links wrote it."""
    drafts = tuple(Draft(one, one) for one in UPDATES)
    at = UPDATES.index(name)
    for workspace in (Workspace((drafts[at],)), Workspace(drafts, at)):
        query = parse_qs(urlsplit(address("http://app/result", workspace, None)).query)
        assert decode(query).open.scenario == name
    old = {"update": [name], "plan": [one for one in UPDATES if one != name], "open": ["0"]}
    assert decode(old).open.scenario == name


def test_a_link_in_the_documentation_that_names_a_scenario_leads_to_it():
    """`[kimi-k2-256xh800](...kimi-k2-256xh800.yaml)`: the text and the target agree."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        found
        for page in pages
        for found in re.findall(r"\[`?([\w.-]+)`?\]\(([^)#]+\.yaml)\)", page.read_text())
    ]
    known = {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")}
    named = [(text.removesuffix(".yaml"), target) for text, target in links]
    assert [pair for pair in named if pair[0] in known and Path(pair[1]).stem != pair[0]] == []
    assert named

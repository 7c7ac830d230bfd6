"""The cluster's drawing: links as thick as they are used, groups filled, collectives in parts."""

import pytest

from tests.figures.made import layout, traces
from tests.reports.runs import played
from twin.engine.lower import lower
from twin.figures.network import GROUP_WORDS, MEANING, USE_STEPS, collectives, links, topology
from twin.figures.palette import LINKS
from twin.reports.network_map import network_map
from twin.reports.network_use import network_use


def drawn(name, group=None):
    planned, trace, _ = played(name)
    use = network_use(planned, lower(planned), trace)
    return topology(network_map(planned), use, group, "plan", "light"), use


def test_lines_say_the_use_of_their_class_of_link():
    picture, use = drawn("1f1b")
    names = [trace.name for trace in traces(picture.figure) if trace.mode == "lines"]
    steps = {
        max(at for at, (least, _) in enumerate(USE_STEPS) if link.use >= least)
        for link in use.links
    }
    assert set(names) == {"Links, unused"} | {
        f"Links, {USE_STEPS[at][1]} used" for at in steps if at
    }


def test_busier_links_are_thicker_and_every_step_has_a_colour():
    picture, _ = drawn("1f1b")
    widths = [trace.line.width for trace in traces(picture.figure) if trace.mode == "lines"]
    assert widths == sorted(widths)
    assert all(len(colours) == len(USE_STEPS) for colours in LINKS.values())


@pytest.mark.parametrize("group", ["expert", "pipeline", "data"])
def test_a_group_is_filled_where_its_gpus_are(group):
    planned, _, _ = played("1f1b")
    picture, _ = drawn("1f1b", group)
    filled = [trace for trace in traces(picture.figure) if "of rank 0" in (trace.name or "")]
    assert len(filled) == 1
    assert len(filled[0].x) == len(network_map(planned).groups[group])
    assert f"the {GROUP_WORDS[group]} of rank 0" in picture.caption


def test_every_group_that_can_be_shown_has_words_and_a_colour():
    planned, _, _ = played("tensor")
    assert set(network_map(planned).groups) <= set(GROUP_WORDS) == set(MEANING)


def test_labels_and_table_say_use_and_capacity():
    picture, use = drawn("1f1b")
    notes = " ".join(note.text for note in layout(picture.figure).annotations)
    for word in ("NVLink", "NIC", "node 0"):
        assert word in notes
    assert len(picture.table) == len(use.links) + sum(len(link.parts) for link in use.links)
    assert picture.title.startswith("plan: the busiest class of link is")


def test_collectives_are_as_long_as_they_take_exposed_and_hidden():
    planned, trace, _ = played("k2")
    use = network_use(planned, lower(planned), trace)
    picture = collectives(use, "plan", "light")
    total = {}
    for one in traces(picture.figure):
        for name, size in zip(one.y, one.x, strict=True):
            total[name] = total.get(name, 0.0) + size
    for one in use.collectives:
        label = one.name.replace("_", " ").capitalize()
        assert total[label] == pytest.approx(one.total_seconds)
    assert len(picture.table) == len(use.collectives)
    assert {"Payload", "Alone", "Exposed", "algbw", "busbw"} <= set(picture.table[0])


def test_a_link_s_bar_is_as_long_as_it_is_in_use():
    planned, trace, _ = played("k2")
    use = network_use(planned, lower(planned), trace)
    picture = links(use, "plan", "light")
    full, more = traces(picture.figure)
    for link, at_rate, beyond in zip(use.links, full.x, more.x, strict=True):
        assert at_rate == pytest.approx(100 * link.use)
        assert at_rate + beyond == pytest.approx(100 * max(link.busy, link.use))
    assert picture.title.startswith("plan: the busiest class of link is the")

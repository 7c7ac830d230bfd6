"""What can be done with the plans on a desk: nothing typed is lost, no two share a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.ui.desk import MOST_PLANS, Desk, Draft, free_name, varied

A, B, C = (Draft(name, name) for name in "abc")
EDITED = A.edited("parallel.pipeline", "8")


def test_an_edited_scenario_never_passes_for_the_original():
    assert A.title == "a"
    assert EDITED.title == "a (edited)"
    assert varied(EDITED, {}, "half").title == "half"


def test_a_variant_is_called_after_all_its_edits():
    assert A.described == "a"
    plan = varied(EDITED, {"parallel.schedule.kind": "gpipe", "parallel.micro_batch": "2"}, "")
    assert plan.described == "a (pipeline 8, schedule gpipe, micro batch 2)"


def test_an_edit_of_the_same_field_takes_the_place_of_the_earlier_one():
    again = EDITED.edited("cost", "x").edited("parallel.pipeline", "4")
    assert again.edits == (("parallel.pipeline", "4"), ("cost", "x"))
    assert again.without("cost").edits == (("parallel.pipeline", "4"),)


def test_outer_sections_are_set_before_their_fields():
    plan = A.edited("cluster.node.nic.bandwidth", "50GB/s").edited("cluster.node", "h800-8gpu")
    assert plan.sets == ("cluster.node=h800-8gpu", "cluster.node.nic.bandwidth=50GB/s")


def test_another_kind_forgets_the_settings_of_the_one_before():
    plan = A.edited("parallel.schedule.extra_warmup", "1").edited("parallel.virtual", "2")
    other = plan.edited("parallel.schedule.kind", "gpipe", forget="parallel.schedule")
    assert dict(other.edits) == {"parallel.virtual": "2", "parallel.schedule.kind": "gpipe"}


def test_a_scenario_opens_in_the_place_of_an_untouched_one_and_beside_an_edited_one():
    assert Desk((A,)).opened(B) == Desk((B,))
    assert Desk((EDITED,)).opened(B) == Desk((EDITED, B), shown=1)
    assert Desk((A,), baseline=0).opened(B) == Desk((A, B), shown=1, baseline=0)


def test_the_baseline_is_the_scenario_as_it_was_written_unless_one_is_chosen():
    assert Desk((EDITED,)).reference == A
    assert Desk((EDITED, B), baseline=1).reference == B


def test_a_comparison_shows_the_baseline_first_and_no_plan_twice():
    assert Desk((EDITED, B)).compared == (A, EDITED, B)
    assert Desk((EDITED, B), baseline=1).compared == (B, EDITED)
    assert Desk((A,)).compared == (A,)


def test_removing_a_plan_keeps_the_others_where_they_are():
    desk = Desk((A, B, C), shown=2, baseline=1)
    assert desk.removed(0) == Desk((B, C), shown=1, baseline=0)
    assert desk.removed(1) == Desk((A, C), shown=1, baseline=None)
    assert desk.removed(2) == Desk((A, B), shown=1, baseline=1)
    assert Desk((A,)).removed(0) == Desk((A,))


def test_names_stay_apart():
    assert free_name("a", ["a", "a (2)"]) == "a (3)"
    assert free_name("a (2)", ["a", "a (2)"]) == "a (3)"
    desk = Desk((A, B), shown=1).renamed("a")
    assert [plan.name for plan in desk.plans] == ["a", "a (2)"]
    assert desk.renamed("  ").plans == desk.plans


@given(st.lists(st.sampled_from(["add", "remove", "open", "baseline", "rename"]), max_size=40))
def test_whatever_is_done_a_desk_stays_sound(moves):
    desk = Desk((EDITED,))
    for number, move in enumerate(moves):
        match move:
            case "add":
                desk = desk.added(desk.open)
            case "remove":
                desk = desk.removed(number % len(desk.plans))
            case "open":
                desk = desk.opened(B)
            case "baseline":
                desk = Desk(desk.plans, desk.shown, number % len(desk.plans))
            case _:
                desk = desk.renamed("x")
        assert 1 <= len(desk.plans) <= MOST_PLANS
        assert desk.open in desk.plans
        assert desk.reference
        assert len({plan.name for plan in desk.plans}) == len(desk.plans)


@pytest.mark.parametrize("show", [True, False])
def test_on_a_full_desk_the_open_plan_and_the_baseline_stay(show):
    plans = tuple(Draft(str(n), str(n)) for n in range(MOST_PLANS))
    desk = Desk(plans, shown=0, baseline=1).added(Draft("new", "new"), show=show)
    names = [plan.name for plan in desk.plans]
    assert {"0", "1", "new"} <= set(names)
    assert desk.reference.name == "1"
    assert desk.open.name == ("new" if show else "0")

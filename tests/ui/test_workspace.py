"""What can be done with the plans in a workspace: nothing typed is lost, no two share a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.ui.workspace import (
    MOST_PLANS,
    MOST_STEPS,
    Draft,
    History,
    Workspace,
    difference,
    free_name,
    varied,
)

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
    assert Workspace((A,)).opened(B) == Workspace((B,))
    assert Workspace((EDITED,)).opened(B) == Workspace((EDITED, B), shown=1)
    assert Workspace((A,), baseline=0).opened(B) == Workspace((A, B), shown=1, baseline=0)


def test_the_baseline_is_the_scenario_as_it_was_written_unless_one_is_chosen():
    assert Workspace((EDITED,)).reference == A
    assert Workspace((EDITED, B), baseline=1).reference == B


def test_a_comparison_shows_the_baseline_first_and_no_plan_twice():
    assert Workspace((EDITED, B)).compared == (A, EDITED, B)
    assert Workspace((EDITED, B), baseline=1).compared == (B, EDITED)
    assert Workspace((A,)).compared == (A,)


def test_removing_a_plan_keeps_the_others_where_they_are():
    space = Workspace((A, B, C), shown=2, baseline=1)
    assert space.removed(0) == Workspace((B, C), shown=1, baseline=0)
    assert space.removed(1) == Workspace((A, C), shown=1, baseline=None)
    assert space.removed(2) == Workspace((A, B), shown=1, baseline=1)
    assert Workspace((A,)).removed(0) == Workspace((A,))


def test_names_stay_apart():
    assert free_name("a", ["a", "a (2)"]) == "a (3)"
    assert free_name("a (2)", ["a", "a (2)"]) == "a (3)"
    space = Workspace((A, B), shown=1).renamed("a")
    assert [plan.name for plan in space.plans] == ["a", "a (2)"]
    assert space.renamed("  ").plans == space.plans


@given(st.lists(st.sampled_from(["add", "remove", "open", "baseline", "rename"]), max_size=40))
def test_whatever_is_done_a_workspace_stays_sound(moves):
    space = Workspace((EDITED,))
    for number, move in enumerate(moves):
        match move:
            case "add":
                space = space.added(space.open)
            case "remove":
                space = space.removed(number % len(space.plans))
            case "open":
                space = space.opened(B)
            case "baseline":
                space = Workspace(space.plans, space.shown, number % len(space.plans))
            case _:
                space = space.renamed("x")
        assert 1 <= len(space.plans) <= MOST_PLANS
        assert space.open in space.plans
        assert space.reference
        assert len({plan.name for plan in space.plans}) == len(space.plans)


@pytest.mark.parametrize("show", [True, False])
def test_on_a_full_workspace_the_open_plan_and_the_baseline_stay(show):
    plans = tuple(Draft(str(n), str(n)) for n in range(MOST_PLANS))
    space = Workspace(plans, shown=0, baseline=1).added(Draft("new", "new"), show=show)
    names = [plan.name for plan in space.plans]
    assert {"0", "1", "new"} <= set(names)
    assert space.reference.name == "1"
    assert space.open.name == ("new" if show else "0")


@given(st.lists(st.sampled_from("abc"), max_size=2 * MOST_STEPS))
def test_a_history_goes_back_to_where_it_began_and_forward_to_where_it_was(names):
    history = History(Workspace((A,)))
    for name in names:
        history = history.changed(history.now.renamed(name))
    last, steps = history, len(history.past)
    assert steps <= MOST_STEPS
    for _ in range(steps):
        history = history.back()
    assert history == history.back()
    for _ in range(steps):
        history = history.forward()
    assert history == last == last.forward()


def test_a_change_after_an_undo_forgets_what_was_undone():
    one, two, three = (Workspace((plan,)) for plan in (A, B, C))
    history = History(one).changed(two).back().changed(three)
    assert (history.past, history.now, history.undone) == ((one,), three, ())
    assert History(one).changed(one) == History(one)


def test_a_difference_says_what_was_done():
    one, two = Workspace((A,)), Workspace((A, B))
    assert difference(one, Workspace((EDITED,))) == "pipeline 8 on a"
    assert difference(Workspace((EDITED,)), one) == "pipeline as in the scenario on a"
    assert difference(one, two) == "b added"
    assert difference(two, one) == "b removed"
    assert difference(one, one.renamed("c")) == "a became c"
    assert difference(two, Workspace((A, B), shown=1)) == "the open plan"
    assert difference(two, Workspace((A, B), baseline=1)) == "the baseline"

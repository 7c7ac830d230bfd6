"""Every page, as its visitor drives it; nothing is lost when a plan is wrong."""

import os

import pytest

from tests.ui.conftest import PAGES as PAGES_FOLDER
from tests.ui.conftest import checked, events
from twin.engine import plan
from twin.errors import TwinError
from twin.loading import load
from twin.reports import verdict
from twin.reports.together import Together
from twin.ui import answers, place
from twin.ui.answers import Question, influences, on_one_fabric, studied
from twin.ui.explore import work
from twin.ui.explore.questions import SweepAsked
from twin.ui.scenarios import stamp

FULL, SELECTIVE = "gpt-175b-64xa100-full", "gpt-175b-64xa100-selective"
K2 = "kimi-k2-256xh800"
MOVED = ("Step time", "Run time, no failures")


def field(app, path, plan=FULL):
    """The widget of a field of a plan."""
    kinds = (app.text_input, app.selectbox, app.pills, app.toggle)
    (widget,) = (one for kind in kinds for one in kind if key(one) == f"{plan}|{path}")
    return widget


def key(widget):
    """The key of a widget without the number that tells a renewed one from the one before."""
    return str(widget.key).partition("#")[0]


def chosen(app, name):
    """What a list of the bar shows."""
    (widget,) = (one for one in app.sidebar.selectbox if key(one).startswith(name))
    return widget.value


def edited(app, path, value, plan=FULL):
    field(app, path, plan).set_value(value)
    return checked(app.run())


def words(app):
    """All text that stands on the page."""
    kinds = (app.markdown, app.caption, app.success, app.error, app.warning, app.info, app.code)
    return "\n".join(one.value for kind in kinds for one in kind)


def said(app):
    """The verdict: whether the plan fits in a box, the rest below."""
    return " ".join(one.value for one in (*app.success, *app.main.markdown))


def plans(app):
    """The plans of the link in the address bar."""
    found = app.query_params.get("plan")
    return [found] if isinstance(found, str) else found


@pytest.fixture(scope="module", autouse=True)
def _played():
    """The answers that most tests show, played once."""
    events(FULL)
    events(SELECTIVE)


PAGES = [
    ("plan", "scenario"),
    ("plan", "catalog"),
    ("result", "summary"),
    ("result", "memory"),
    ("result", "network"),
    ("compare", ""),
    ("explore", "search"),
    ("explore", "sensitivity"),
]


@pytest.mark.parametrize(("page", "section"), PAGES)
def test_every_page_shows_the_plan_its_verdict_and_its_figures(opened, page, section):
    app = opened(FULL, SELECTIVE, page=page, section=section)
    assert chosen(app, "open plan") == 0
    assert "Fits" in words(app)
    assert [one.label for one in app.sidebar.metric] == [
        "Run time, no failures",
        "Cost, no failures",
        "Step time",
        "MFU",
    ]


@pytest.mark.parametrize(("page", "section"), PAGES)
def test_every_page_says_what_is_wrong_with_an_invalid_plan(opened, page, section):
    app = opened(f"{FULL};parallel.tensor=7", page=page, section=section)
    assert "Invalid" in words(app)
    if section != "catalog":
        assert "TW102" in words(app)


@pytest.mark.parametrize(("page", "section"), [*PAGES[2:6], ("result", "timeline")])
def test_every_figure_has_its_finding_as_text(opened, page, section):
    charts = opened(FULL, SELECTIVE, page=page, section=section).get("plotly_chart")
    assert charts
    assert all(chart.proto.alt for chart in charts)


def test_the_verdict_is_the_sentence_of_the_command_line(opened):
    app = opened(FULL, page="result")
    assert verdict(events(FULL).report) in said(app)


def test_an_edit_changes_the_answer_and_the_link_at_once(opened):
    app = edited(opened(FULL), "cluster.nodes", "16")
    assert plans(app) == [f"{FULL};cluster.nodes=16"]
    assert "cluster.nodes=16" in words(app)
    assert all(one.delta for one in app.sidebar.metric if not one.label.startswith("Cost"))


def test_an_edit_back_to_what_stood_there_is_none(opened):
    app = edited(opened(FULL), "cluster.nodes", "16")
    app = edited(app, "cluster.nodes", "8")
    assert plans(app) == [FULL]
    assert "No edits" in words(app)


def test_a_wrong_edit_shows_what_the_command_line_shows_and_is_kept(opened):
    app = edited(opened(FULL), "parallel.tensor", "7")
    with pytest.raises(TwinError) as error:
        plan(load(FULL, ["parallel.tensor=7"]))
    assert str(error.value) in [code.value for code in app.code]
    assert field(app, "parallel.tensor").value == "7"
    assert "(invalid)" in field(app, "parallel.tensor").label
    mended = edited(app, "parallel.tensor", "8")
    assert verdict(events(FULL).report) in said(mended)


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("train.global_batch", "64", "TW012"),
        ("train.tokens", "64GB", "TW013"),
        ("parallel.pipeline", "many", "TW014"),
        ("parallel.pipeline", "0", "TW015"),
        ("parallel.pipeline", "[", "TW002"),
    ],
)
def test_whatever_is_typed_stays_and_its_problem_has_a_code_and_a_fix(opened, path, text, code):
    app = edited(opened(FULL), path, text)
    assert field(app, path).value == text
    shown = [one.value for one in app.code]
    assert any(code in one for one in shown)
    assert plans(app) == [f"{FULL};{path}={text}"]


def test_two_plans_of_a_link_are_open_side_by_side(opened):
    app = opened(FULL, SELECTIVE, page="compare", baseline="0", open="1")
    assert "faster than in" in words(app)
    assert chosen(app, "open plan") == 1
    assert chosen(app, "baseline") == 0


def test_a_comparison_says_first_which_plans_fit_and_then_how_fast_they_are(opened, monkeypatch):
    said, info = [], place.st.info
    monkeypatch.setattr(
        place.st, "info", lambda text, **how: said.append(text) or info(text, **how)
    )
    new = [f"{FULL};!name={size};train.tokens={size}" for size in ("2T", "3T", "4T")]
    new[1] += ";parallel.tensor=4"
    app = opened(FULL, *new, page="compare", baseline="0")
    *_, first = (one for one in said if "Fits with" in one)
    assert "Fits with" in first
    assert "Does not fit" in first
    assert first not in words(app)


def test_a_comparison_of_one_unedited_plan_says_how_to_begin(opened):
    assert "An example" in words(opened(FULL, page="compare"))


def test_good_and_bad_are_said_in_words_too(opened):
    app = opened(FULL, SELECTIVE, page="compare", baseline="0")
    cells = [cell for table in app.table for cell in table.value.to_numpy().ravel()]
    assert any(", better" in str(cell) for cell in cells)
    app.toggle(key="on one fabric").set_value(True)
    questions = [Question(name, None, (), stamp()) for name in (FULL, SELECTIVE)]
    assert isinstance(studied(on_one_fabric, *questions).within(180), Together)
    assert "no step changes" in words(checked(app.run()))


def test_a_plan_that_does_not_fit_is_never_praised_and_its_neighbours_are_named(opened):
    app = edited(opened(FULL), "memory.recompute", [])
    app = edited(app, "parallel.micro_batch", "8")
    assert any(box.value.startswith("Does not fit") for box in app.error)
    assert not any("better" in (one.delta or "") for one in app.metric)


def test_a_plan_that_may_fit_or_not_is_neither_green_nor_red(opened):
    app = opened(f"{FULL};cluster.node.gpu.memory=59GiB", page="result")
    assert any("It may not fit" in box.value for box in app.warning)
    assert not app.success
    assert "Fits, uncertain" in words(app)


def test_an_undo_and_a_reset_take_edits_back(opened):
    app = edited(opened(FULL), "cluster.nodes", "16")
    app = edited(app, "parallel.micro_batch", "2")
    button = app.button(key=f"undo {FULL}|cluster.nodes")
    app = checked(button.click().run())
    assert plans(app) == [f"{FULL};parallel.micro_batch=2"]
    (reset,) = (one for one in app.button if one.label == "Reset all")
    assert plans(checked(reset.click().run())) == [FULL]


def test_every_change_is_undone_and_made_again_by_button_and_by_the_browser(opened):
    app = edited(opened(FULL), "parallel.micro_batch", "2")
    changed = dict(app.query_params)
    (undo,) = (one for one in app.button if one.label == "Undo")
    assert undo.help == f"Undo: micro batch 2 on {FULL}"
    app = checked(undo.click().run())
    assert plans(app) == [FULL]
    (redo,) = (one for one in app.button if one.label == "Redo")
    app = checked(redo.click().run())
    assert plans(app) == [f"{FULL};parallel.micro_batch=2"]
    app = edited(app, "parallel.micro_batch", "4")
    app.run()  # the browser has the link by now
    app.query_params.clear()
    app.query_params.update(changed)  # "Back": a run with an earlier link, and nothing else
    assert plans(checked(app.run())) == [f"{FULL};parallel.micro_batch=2"]
    assert field(app, "parallel.micro_batch").value == "2"


def test_an_old_link_that_comes_with_an_edit_is_late_and_takes_nothing_back(opened):
    app = opened(FULL)
    before = dict(app.query_params)
    app = edited(app, "parallel.micro_batch", "2")
    app.query_params.clear()
    app.query_params.update(before)
    app = edited(app, "parallel.tensor", "4")
    assert plans(app) == [f"{FULL};parallel.micro_batch=2;parallel.tensor=4"]


def test_a_part_that_the_file_names_anyway_is_no_edit(opened):
    app = opened(FULL, section="catalog")
    app.segmented_control(key="category").set_value("models").run()
    app.selectbox(key="part of models").set_value("gpt-175b").run()
    (use,) = (one for one in app.button if one.label.startswith("Use in"))
    assert plans(checked(use.click().run())) == [FULL]


def test_a_switch_is_an_edit_there_and_back(opened):
    app = opened(FULL)
    path = "parallel.sequence_parallel"
    before = field(app, path).value
    app = edited(app, path, not before)
    assert plans(app) == [f"{FULL};{path}={str(not before).lower()}"]
    assert plans(edited(app, path, before)) == [FULL]


def test_a_problem_is_said_once_on_the_page_where_it_is_mended(opened):
    app = edited(opened(FULL), "parallel.tensor", "7")
    assert sum("TW102" in code.value for code in app.code) == 1
    assert "kept on the page Plan" not in words(app)


def test_what_follows_from_the_fields_stands_above_them(opened):
    assert "64 GPUs in total, 1-way data parallel" in words(opened(FULL))


def test_untouched_sliders_show_the_figures_beside_the_page(opened):
    sets = ("cluster.nodes=16", "model.layers=24", "train.global_batch=16seq")
    events(FULL, *sets)
    answers.studied(influences, answers.Question(FULL, None, sets, stamp())).within(120)
    app = opened(";".join((FULL, *sets)), page="explore", section="sensitivity")
    figures = {label: [one.value for one in app.metric if one.label == label] for label in MOVED}
    assert all(len(both) == 2 and len(set(both)) == 1 for both in figures.values()), figures


def test_a_duplicate_can_be_edited_beside_the_original(opened):
    app = opened(FULL)
    (twice,) = (one for one in app.button if one.label.startswith("Duplicate"))
    app = checked(twice.click().run())
    app = edited(app, "cluster.nodes", "16", plan=f"{FULL} (2)")
    assert plans(app) == [FULL, f"{FULL};!name={FULL} (2);cluster.nodes=16"]


def test_a_broken_link_says_so_and_opens_the_usual_scenario(opened):
    app = opened("kimi-k2-256xh800;parallel.pipe")
    assert "could not be opened" in words(app)
    assert "no edit" in words(app)


def test_a_parameter_that_nobody_knows_is_told_and_the_rest_opens(opened):
    app = opened(FULL, sektion="memory")
    assert plans(app) == [FULL]
    (told,) = (box.value for box in app.warning if "sektion" in box.value)
    assert "Did you mean `section`?" in told


def test_a_link_to_a_file_of_another_machine_says_so(opened):
    assert "knows no scenario `theirs.yaml`" in words(opened("theirs.yaml"))


def test_two_sessions_do_not_see_each_other_s_edits(opened):
    one, other = opened(FULL), opened(FULL)
    one = edited(one, "cluster.nodes", "16")
    other = checked(other.run())
    assert field(other, "cluster.nodes").value == "8"
    assert plans(other) == [FULL]


def test_a_file_is_opened_under_its_name_and_followed_as_it_changes(opened, tmp_path, monkeypatch):
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: {FULL}\nparallel: {{micro_batch: 2}}\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(file)])
    app = opened()
    assert field(app, "parallel.micro_batch", "mine.yaml").value == "2"
    file.write_text(f"extends: {FULL}\nparallel: {{micro_batch: 4}}\n")
    os.utime(file, ns=(0, 0))
    app = checked(app.run())
    assert field(app, "parallel.micro_batch", "mine.yaml").value == "4"


def test_a_fault_of_the_twin_is_said_in_short_and_its_traceback_is_logged(monkeypatch, caplog):
    def wrong(_):
        raise KeyError("not a thing")

    monkeypatch.setattr(answers, "kind_of", wrong)
    asked = answers.Question(FULL, None, ("cluster.nodes=24",), -1)
    found = answers.plan_of(asked)
    assert isinstance(found, answers.Bug)
    assert "KeyError" in found.text
    assert "Traceback" in caplog.text


def test_a_text_from_a_browser_reads_no_file_of_this_machine():
    asked = answers.Question("mine.yaml", "extends: /etc/passwd\n", (), 0)
    found = answers.scenario_of(asked)
    assert isinstance(found, answers.Refusal)
    assert "extend shipped scenarios only" in found.text
    assert "root:" not in found.text


@pytest.mark.parametrize(
    ("text", "edit", "axis"),
    [
        ("parallel: {schedule: FILE}", "", ""),
        ("train: {optimizer: FILE}", "", ""),
        ("sweep: {grid: {parallel.schedule: [FILE]}}", "", ""),
        (None, "parallel.schedule=FILE", ""),
        (None, "parallel={schedule: FILE}", ""),
        (None, "", "parallel.schedule=gpipe,FILE"),
    ],
)
def test_what_a_link_says_names_no_file_of_this_machine(text, edit, axis, tmp_path):
    """Neither a text, an edit nor the axis of a sweep: what is wrong in a file would be shown."""
    file = tmp_path / "secret.yaml"
    file.write_text("kind: custom\npassword: hunter2\n")
    text = text and f"extends: {FULL}\n{text}\n".replace("FILE", str(file))
    sets = (edit.replace("FILE", str(file)),) if edit else ()
    asked = answers.Question("mine.yaml" if text else FULL, text, sets, 0)
    if axis:
        found = work.swept(SweepAsked(asked, (axis.replace("FILE", str(file)),)), lambda _: None)
    else:
        found = answers.scenario_of(asked)
    assert isinstance(found, answers.Refusal)
    assert f"the app opens no file `{file}`" in found.text
    assert "hunter2" not in found.text
    assert "password" not in found.text


def test_what_is_wrong_with_a_brought_text_is_shown_at_its_own_name():
    asked = answers.Question("mine.yaml", f"extends: {FULL}\nparallel: {{tensr: 7}}\n", (), 0)
    found = answers.scenario_of(asked)
    assert isinstance(found, answers.Refusal)
    assert found.text.startswith("mine.yaml:2:")


def test_a_link_is_made_when_share_is_opened_and_leads_to_the_page_that_is_there(opened):
    """While a page is drawn, the sidebar of the page before stands beside it: a link that already
    stood there would lead to that page."""
    app = opened(FULL, page="result")
    assert not any("plan=" in one.value for one in app.sidebar.code)
    assert not app.sidebar.get("download_button")
    app.session_state["Share"] = True
    app.switch_page(str(PAGES_FOLDER / "compare.py"))
    checked(app.run())
    (link,) = (one.value for one in app.sidebar.code if "plan=" in one.value)
    assert f"?v=1&plan={FULL}" in link
    app.session_state["Export"] = True
    checked(app.run())
    assert len(app.sidebar.get("download_button")) > 1


def test_sections_that_a_scenario_leaves_out_wait_folded_until_they_are_edited(opened):
    app = opened(FULL)
    (box,) = (one for one in app.expander if one.label.startswith("Not in this scenario"))
    assert "RL" in box.label
    assert "Train" not in box.label
    assert not any(key(one).startswith(f"{FULL}|rl.") for one in app.text_input)
    app.session_state["sections left out"] = True
    assert any(key(one).startswith(f"{FULL}|rl.") for one in checked(app.run()).text_input)
    app = opened(f"{FULL};data.bytes_per_token=4B")
    (box,) = (one for one in app.expander if one.label.startswith("Not in this scenario"))
    assert "Data" not in box.label

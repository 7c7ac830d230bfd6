"""The built-in tasks are what their builder makes, and wrong ones are told."""

import json

import pytest

from reference.config import TaskChoice
from reference.evaluate.build import CASES, text_of
from reference.evaluate.task import FOLDER, names, open_task
from twin.errors import TwinError


def test_the_cases_in_the_tree_are_those_that_are_built():
    for name in CASES:
        assert (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8") == text_of(name), name


@pytest.mark.parametrize("name", names())
def test_every_built_in_task_opens_and_names_its_source(name):
    task = open_task(TaskChoice(name=name), held_out=["a document"])
    assert task.cases
    assert task.spec.source
    assert len({case.id for case in task.cases}) == len(task.cases)
    for case in task.cases:
        if "choices" in case.row:
            assert case.row["target"] in case.row["choices"]


def test_the_digest_follows_cases_and_settings():
    one = open_task(TaskChoice(name="copying"))
    assert one.digest == open_task(TaskChoice(name="copying")).digest
    assert one.digest != open_task(TaskChoice(name="copying", limit=3)).digest
    assert one.digest != open_task(TaskChoice(name="copying", context_tokens=100)).digest


def _task(tmp_path, lines, **fields):
    said = {"name": "own", "about": "x.", "source": "here", "ask": "generate", "cases": "own.jsonl"}
    (tmp_path / "own.yaml").write_text(json.dumps({**said, "scorer": "exact", **fields}))
    (tmp_path / "own.jsonl").write_text(lines)
    return TaskChoice(name=str(tmp_path / "own.yaml"))


GOOD = '{"prompt": "a", "target": "b"}\n'


def test_a_task_of_ones_own_is_a_file_with_cases_beside_it(tmp_path):
    task = open_task(_task(tmp_path, GOOD * 3, samples=2, temperature=1.0), limit=2)
    assert [case.id for case in task.cases] == ["1", "2"]


@pytest.mark.parametrize(
    ("lines", "fields", "code"),
    [
        ("not json\n", {}, "TW583"),
        ('{"prompt": "a"}\n', {}, "TW583"),
        ("", {}, "TW583"),
        (GOOD, {"scorer": None}, "TW582"),
        (GOOD, {"samples": 4}, "TW582"),
        (GOOD, {"samples": 2, "temperature": 1.0, "ks": [4]}, "TW582"),
        (GOOD, {"output_tokens": 64, "context_tokens": 64}, "TW582"),
        (GOOD, {"ask": "needle"}, "TW582"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_code(tmp_path, lines, fields, code):
    with pytest.raises(TwinError, match=code):
        open_task(_task(tmp_path, lines, **fields))


def test_a_name_that_is_none_is_told_with_the_nearest():
    with pytest.raises(TwinError, match="TW581") as caught:
        open_task(TaskChoice(name="copyng"))
    assert "copying" in str(caught.value)

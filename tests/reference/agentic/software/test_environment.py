"""A repository as a world: its tools, its state, and what the verdict asks for."""

from __future__ import annotations

import json

import pytest

from reference.agentic.environment import Turn, follow
from reference.agentic.software.environment import SoftwareEnvironment, package_of
from reference.agentic.software.generate import make_many, projects
from reference.dialog import Call

CART = projects()["cart"]


@pytest.fixture(scope="module")
def environment() -> SoftwareEnvironment:
    boundary = make_many([(CART, CART.bugs[0], 0)])[0]
    return SoftwareEnvironment(boundary, cpu_s=0.3)


def _told(environment: SoftwareEnvironment, name: str, **given: str) -> str:
    call = Call("functions.x:0", name, json.dumps(given))
    return environment.call(environment.start(), call)[1]


def test_files_are_listed_read_and_searched(environment: SoftwareEnvironment) -> None:
    repository = environment.repository
    listed = _told(environment, "list_files").splitlines()
    assert listed == sorted(repository.files)
    assert (
        _told(environment, "read_file", path=repository.gold.path)
        == (repository.files[repository.gold.path])
    )
    found = _told(environment, "search", text="def shipping")
    assert found.startswith(f"{repository.source}/prices.py:")
    assert _told(environment, "search", text="no such words") == "No line holds it."


def test_wrong_calls_are_told(environment: SoftwareEnvironment) -> None:
    path = environment.repository.gold.path
    for told, name, given in (
        ("there is no tool fly", "fly", {}),
        ("there is no file a/b", "read_file", {"path": "a/b"}),
        ("stands 0 times", "edit_file", {"path": path, "old": "nowhere", "new": ""}),
        ("it must stand once", "edit_file", {"path": path, "old": "e", "new": ""}),
        ("stands 0 times", "edit_file", {"path": path, "old": "", "new": "x"}),
        ("TW540", "write_file", {"path": "../out", "text": ""}),
        ("arguments.path: is missing", "delete_file", {}),
        ("is a file and no folder", "write_file", {"path": f"{path}/x", "text": ""}),
        ("tests is a folder", "write_file", {"path": "tests", "text": ""}),
        ("too long", "write_file", {"path": "n" * 300, "text": ""}),
        ("and no more", "write_file", {"path": "big", "text": "x" * 2**21}),
        ("not Unicode", "write_file", {"path": "odd", "text": "\ud800"}),
    ):
        assert told in _told(environment, name, **given)


def test_a_change_is_a_new_workspace_and_the_old_one_stays(
    environment: SoftwareEnvironment,
) -> None:
    gold = environment.repository.gold
    words = {"path": gold.path, "old": gold.old, "new": gold.new}
    start = environment.start()
    state, told = environment.call(start, Call("f:0", "edit_file", json.dumps(words)))
    assert told == f"{gold.path} is changed."
    assert start == environment.start() != state
    assert state.read(gold.path) == environment.repository.mended()[gold.path].encode()


def test_a_mended_repository_passes_with_runs_of_its_tests_that_tell_the_same(
    environment: SoftwareEnvironment,
) -> None:
    gold = environment.repository.gold
    edit = ("edit_file", {"path": gold.path, "old": gold.old, "new": gold.new})
    state, dialog = follow(
        environment, [Turn(calls=(("run_tests", {}), edit, ("run_tests", {}))), Turn("Done.")]
    )
    told = [one.content for one in dialog.messages if one.role == "tool"]
    assert told[0] == told[2]  # no visible test sees this bug
    assert "Ran 3 tests\n\nOK" in told[0]
    assert environment.judge(state, dialog).success


def test_a_patch_that_breaks_something_else_fails(environment: SoftwareEnvironment) -> None:
    repository = environment.repository
    changed = repository.mended()
    wrong = next(one for one in repository.wrong if one.path != repository.gold.path)
    changed[wrong.path] = changed[wrong.path].replace(wrong.old, wrong.new)
    state = environment.start().write(changed)
    verdict = environment.judge(state, environment.opening)
    assert not verdict.success
    assert verdict.causes == ("broke what worked",)


def test_hidden_tests_see_the_package_and_nothing_beside_it(
    environment: SoftwareEnvironment,
) -> None:
    repository = environment.repository
    state = environment.start().write({"json.py": "", "conftest.py": ""})
    own = {path for path in repository.files if path.startswith(f"{repository.source}/")}
    assert set(package_of(repository, state)) == own

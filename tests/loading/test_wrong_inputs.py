"""Every wrong input says where it is wrong, with a stable code, a caret and the nearest fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.loading import wrong_keys, wrong_values
from tests.loading.wrong_inputs import WrongInput
from twin.errors import CODES, ScenarioError, TwinError
from twin.loading import load

CASES = [*wrong_keys.CASES, *wrong_values.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_input_is_explained(case: WrongInput, workshop: Path) -> None:
    for name, text in case.files.items():
        workshop.joinpath(name).write_text(text, encoding="utf-8")
    with pytest.raises(TwinError) as caught:
        load(case.scenario, case.overrides)
    assert str(caught.value) == case.text
    assert caught.value.exit_code == case.exit_code


KINDS = "custom, dualpipe, gpipe, interleaved_1f1b, 1f1b, zb_h1, zb_h2"
OVERRIDES = [
    ("value=3", "7: TW010 unknown key `value`", "the keys here are: extends, schema"),
    ("extends=x", "7: TW005 only a file can extend another", "write `extends: x` into the"),
    ("schema=true", "14: TW016 `true` is not one of the choices", "write one of: 1"),
    ("schema=1.0", "14: TW016 `1.0` is not one of the choices", "write one of: 1"),
    ("parallel.zero=true", "21: TW016 `true` is not one of the choices", "write one of: 0, 1"),
    ("cluster.fabric.oversubscription=.inf", "39: TW015 must be at most 1,000", ""),
    ("cluster.fabric.hop_latency=2s", "34: TW015 must be at most 1s", ""),
    ("cluster.node.nic.bandwidth=0B/s", "34: TW015 must be at least 100kB/s", ""),
    ("cluster.nodes=125001", "21: TW015 125,001 nodes x 8 GPUs are more than", "at most 125,000"),
    ("model.layers=2001", "20: TW015 must be at most 2,000", ""),
    ("train.tokens=1e30T", "20: TW015 must be at most 1000000Ttok", ""),
    ("train.global_batch=1e20seq", "26: TW015 must be at most 1000000Ttok", ""),
    ("train.sequence=1Ttok", "22: TW015 must be at most 100,000,000", ""),
    ("parallel.schedule.kind=", "29: TW016 nothing is no kind of `schedule`", f"one of: {KINDS}"),
    ("parallel.schedule.kind=[1f1b]", "30: TW016 a list is no kind of", f"one of: {KINDS}"),
    ("parallel.schedule=null", "25: TW014 expected keys with", f"add `kind:` and one of: {KINDS}"),
    ("train.optimizer=3", "23: TW014 expected keys with", "add `kind:` and one of: adamw"),
    ("model.attention=gqa", "23: TW014 expected keys with", "add `kind:` and one of: mla, gqa"),
    ("memory=full", "14: TW014 expected keys with values", "the keys here are: recompute"),
    ("model.attention.kind=mla", "13: TW011 the key `kv_lora_rank` is", "add `kv_lora_rank: ...`"),
    ('model="a\\0"', "13: TW006 there is no `a?` among", "write one of:"),
    ("parallel.tensor=" + "9" * 5000, "23: TW014 expected a whole number, got the text `999", ""),
    ("phases=-1", "14: TW014 expected a list, got `-1`", ""),
    ("a." * 3000 + "a=1", "7: TW005 an override of 3001 keys", "sections are at most"),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "told", "fix"), OVERRIDES, ids=lambda text: text[:40])
@pytest.mark.usefixtures("workshop")
def test_a_wrong_override_is_named_with_its_fix(argument: str, told: str, fix: str) -> None:
    with pytest.raises(TwinError) as caught:
        load("toy.yaml", [argument])
    text = str(caught.value)
    assert f"--set:1:{told}" in text
    assert fix in text
    assert max(map(len, text.splitlines())) < 400


def test_a_file_that_is_one_wrapped_number_holds_an_unknown_key(workshop: Path) -> None:
    workshop.joinpath("toy.yaml").write_text("value: 1\n")
    with pytest.raises(ScenarioError, match=r"toy\.yaml:1:1: TW010 unknown key `value`"):
        load("toy.yaml")


def test_a_part_that_is_one_wrapped_number_holds_an_unknown_key(workshop: Path) -> None:
    workshop.joinpath("catalog/models/odd.yaml").write_text("kind: assumed\nvalue: 1\n")
    with pytest.raises(ScenarioError, match=r"odd\.yaml:2:1: TW010 unknown key `value`"):
        load("toy.yaml", ["model=odd"])


def test_files_may_extend_each_other_only_so_often(workshop: Path) -> None:
    toy = workshop.joinpath("toy.yaml").read_text()
    for number in range(150):
        workshop.joinpath(f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    workshop.joinpath("150.yaml").write_text(toy)
    with pytest.raises(ScenarioError, match=r"99\.yaml:1:10: TW005 more than 100 files extend"):
        load("0.yaml")
    assert load("51.yaml").name == "a toy run"


def test_every_loading_code_is_explained_and_shown_by_a_case() -> None:
    shown = {code for code in CODES if any(f"{code} " in case.text for case in CASES)}
    # What commands say of their own files is shown by the tests of those commands.
    of_commands = {code for code in CODES if code.startswith("TW06") or "TW040" < code < "TW050"}
    assert shown == set(CODES) - of_commands


@pytest.mark.usefixtures("workshop")
def test_problems_are_also_flat_data() -> None:
    with pytest.raises(TwinError) as caught:
        load("toy.yaml", ["parallel.pipelin=8"])
    assert [problem.as_dict() for problem in caught.value.problems] == [
        {
            "code": "TW010",
            "path": "parallel.pipelin",
            "message": "unknown key `pipelin` in `parallel`",
            "hint": "did you mean `pipeline`?",
            "file": "--set",
            "line": 1,
            "column": 16,
        }
    ]


def test_what_does_not_end_or_is_far_too_long_is_refused_at_once(workshop: Path) -> None:
    endless = Path("/dev/zero")
    if endless.exists():
        with pytest.raises(ScenarioError, match="TW001 `/dev/zero` is larger than 100 MB"):
            load(endless)
    workshop.joinpath("long.yaml").write_text("x: 1\n" * 50_001)
    with pytest.raises(ScenarioError, match="TW002 more than 250,000 characters"):
        load("long.yaml")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_is_refused_and_not_waited_for(workshop: Path) -> None:
    os.mkfifo(workshop / "pipe.yaml")
    workshop.joinpath("child.yaml").write_text("schema: 1\nextends: pipe.yaml\n")
    for name in ("pipe.yaml", "child.yaml"):
        with pytest.raises(ScenarioError, match=r"TW001 `pipe\.yaml` cannot be read"):
            load(name)


@pytest.mark.usefixtures("workshop")
def test_a_stream_of_this_process_is_read() -> None:
    text = Path("toy.yaml").read_text(encoding="utf-8")
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    assert load(f"/dev/fd/{reader}").name == load("toy.yaml").name
    os.close(reader)


def test_of_very_many_problems_the_first_are_shown(workshop: Path) -> None:
    keys = "".join(f"x{number}: 1\n" for number in range(1000))
    workshop.joinpath("many.yaml").write_text((workshop / "toy.yaml").read_text() + keys)
    with pytest.raises(ScenarioError) as caught:
        load("many.yaml")
    assert len(caught.value.problems) == 1000
    assert str(caught.value).endswith("... and 950 more problems")
    assert str(caught.value).count("TW010") == 50
    hints = [problem.hint for problem in caught.value.problems]
    assert all(hints[:100])
    assert not any(hints[100:])

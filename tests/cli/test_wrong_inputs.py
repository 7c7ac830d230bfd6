"""Wrong inputs, each with the exit code, the place, the code and the words that a planner sees.

A case edits one good scenario, runs `twin check` on it, and names what must come back. No case may
end in a traceback, and the JSON form must tell the same. The loader's tests show every wrong value
(`tests/loading`), the planner's every layout that cannot run (`tests/planning`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command import Command, Outcome

GOOD = """\
schema: 1
name: wrong
model: kimi-k2
cluster:
  node: h800-8gpu
  nodes: 32
  fabric: rail-fat-tree-400g
parallel:
  pipeline: 16
  virtual: 4
  expert: 16
  tensor: 1
  context: 1
  micro_batch: 1
  schedule: interleaved_1f1b
memory:
  recompute: [full]
train:
  tokens: 15.5T
  global_batch: 67108864tok
  sequence: 4096tok
  optimizer: muonclip
cost:
  gpu_hour: 2.0USD
calibration: h800-hopper-bf16
"""


class Wrong(NamedTuple):
    """One wrong input and what must come of it. `under` is the text that the caret points at."""

    edit: tuple[str, str]
    code: str
    at: str
    under: str
    message: str
    hint: str = ""
    sets: tuple[str, ...] = ()
    exit: int = 3


ALIKE = ("", "")
TRAIN = GOOD[GOOD.index("train:") : GOOD.index("cost:")]
CASES: dict[str, Wrong] = {
    "a key": Wrong(
        ("  micro_batch: 1", "  micro_bach: 1"),
        "TW010", "wrong.yaml:14:3", "micro_bach",
        "unknown key `micro_bach` in `parallel`", "did you mean `micro_batch`?",
    ),
    "a value of two readings": Wrong(
        ("  sequence: 4096tok", "  sequence: 4k"),
        "TW013", "wrong.yaml:21:13", "4k",
        "`4k` can be read in two ways",
        "write `4000tok` (steps of 1,000) or `4096tok` (steps of 1,024)",
    ),
    "a section that is missing": Wrong(
        (TRAIN, ""),
        "TW011", "wrong.yaml:1:1", "schema: 1", "the key `train` is missing", "add `train: ...`",
    ),
    "a tab": Wrong(
        ("  recompute: [full]", "\trecompute: [full]"),
        "TW002", "wrong.yaml:17:1", " ",
        "not YAML: found character '\\t' that cannot start any token "
        "while scanning for the next token",
        "indent with spaces, not tabs",
    ),
    "an empty file": Wrong(
        (GOOD, ""),
        "TW005", "wrong.yaml:1:1", "", "the file must hold keys with values",
    ),
    "a part nobody knows": Wrong(
        ("  node: h800-8gpu", "  node: h800"),
        "TW006", "wrong.yaml:5:9", "h800",
        "there is no `h800` among the nodes of the catalog", "did you mean `h800-8gpu`?",
    ),
    "a parent that does not exist": Wrong(
        ("name: wrong", "name: wrong\nextends: base.yaml"),
        "TW001", "wrong.yaml:3:10", "base.yaml", "no file `base.yaml`",
    ),
    "an override without a value": Wrong(
        ALIKE, "TW005", "--set:1:7", "parallel.pipeline", "an override needs a value",
        "write `--set parallel.pipeline=VALUE`", ("parallel.pipeline",), exit=2,
    ),
    "an override of two readings": Wrong(
        ALIKE, "TW013", "--set:1:31", "80G", "`80G` can be read in two ways",
        "write `80GB` (powers of 1,000) or `80GiB` (powers of 1,024)",
        ("cluster.node.gpu.memory=80G",),
    ),
    "stages that do not divide the GPUs": Wrong(
        ("  pipeline: 16", "  pipeline: 24"),
        "TW102", "wrong.yaml:9:13", "24",
        "tensor=1 x pipeline=24 = 24 does not divide 256 GPUs",
        "nearest pipeline=16 or 32",
    ),
    "a batch that does not divide over the data ranks": Wrong(
        ("  global_batch: 67108864tok", "  global_batch: 4097seq"),
        "TW115", "wrong.yaml:20:17", "4097seq",
        "4097 sequences do not divide over data=16 ranks", "nearest global_batch=4096seq",
    ),
    "more chunks than layers can fill": Wrong(
        ("  virtual: 4", "  virtual: 8"),
        "TW118", "wrong.yaml:10:12", "8",
        "virtual=8 cuts 61 layers into 128 chunks, a whole round of which would be empty",
        "at most 4",
    ),
    "experts asked of a dense model": Wrong(
        ("model: kimi-k2", "model: gpt-175b"),
        "TW103", "wrong.yaml:11:11", "16", "expert=16 on gpt-175b, which has no experts",
        "set expert to 1",
    ),
}  # fmt: skip


def outcome(case: Wrong, twin_command: Command, tmp_path: Path, *words: str) -> Outcome:
    """`twin check` of a case."""
    old, new = case.edit
    assert not old or GOOD.count(old) == 1
    (tmp_path / "wrong.yaml").write_text(GOOD.replace(old, new, 1))
    overrides = [word for one in case.sets for word in ("--set", one)]
    return twin_command("check", "wrong.yaml", *overrides, *words)


def test_the_good_scenario_is_good(twin_command: Command, tmp_path: Path) -> None:
    """Its batch is a sixteenth here: of so many passes a check plays more before they repeat."""
    (tmp_path / "good.yaml").write_text(GOOD)
    assert twin_command("check", "good.yaml", "--set", "train.global_batch=4194304tok").code == 0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_input_is_named_where_it_stands_in_text_and_in_json(
    case: Wrong, twin_command: Command, tmp_path: Path
) -> None:
    done = outcome(case, twin_command, tmp_path, "--json")
    assert done.code == case.exit
    assert "Traceback" not in done.err
    lines = done.err.splitlines()
    said = next(i for i, text in enumerate(lines) if text.startswith(f"{case.at}: {case.code} "))
    assert case.message in lines[said]
    assert case.hint in done.err
    assert at_the_caret(*lines[said + 1 : said + 3]) == case.under
    assert place_in_json(done.out, case) == case.at


def at_the_caret(source: str, caret: str) -> str:
    """The text of a shown line that the carets below it stand under."""
    start = caret.index("^")
    return source[start : start + caret.count("^")]


def place_in_json(document: str, case: Wrong) -> str:
    """Where the JSON document puts the one problem with the code and words of a case."""
    answer = json.loads(document)
    assert answer["version"] == 1
    (told,) = [
        problem
        for problem in answer["problems"]
        if problem["code"] == case.code and case.message in problem["message"]
    ]
    assert case.hint in told["hint"]
    return f"{told['file']}:{told['line']}:{told['column']}"


def test_all_mistakes_are_told_at_once(twin_command: Command, tmp_path: Path) -> None:
    wrong = (
        GOOD.replace("tensor: 1", "tensr: 1").replace("4096tok", "4096").replace("kimi-k2", "k2")
    )
    (tmp_path / "wrong.yaml").write_text(wrong)
    done = twin_command("check", "wrong.yaml")
    places = [one.split(" ")[0] for one in done.err.splitlines() if one.startswith("wrong.yaml:")]
    assert places == ["wrong.yaml:3:8:", "wrong.yaml:12:3:", "wrong.yaml:21:13:"]


def test_a_mistake_in_a_parent_points_into_the_parent(
    twin_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "base.yaml").write_text(GOOD.replace("virtual: 4", "virtual: four"))
    (tmp_path / "child.yaml").write_text("extends: base.yaml\nname: child\n")
    done = twin_command("run", "child.yaml")
    assert done.code == 3
    assert "base.yaml:10:12: TW014" in done.err
    assert "from: child.yaml:1:10 extends base.yaml" in done.err


COMMANDS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no verb like this": (("rnu", "x.yaml"), 2, "No such command 'rnu'"),
    "no option like this": (("run", "x.yaml", "--pipeline", "8"), 2, "No such option: --pipeline"),
    "no scenario given": (("run",), 2, "Missing argument 'SCENARIO'"),
    "one scenario to compare": (("compare", "good.yaml"), 2, "at least two scenarios"),
    "--set without an argument": (("run", "good.yaml", "--set"), 2, "requires an argument"),
    "no file like this": (("run", "godo.yaml"), 2, "TW001 there is no scenario `godo.yaml`"),
    "the nearest file": (("run", "godo.yaml"), 2, "did you mean `good.yaml`?"),
    "a folder": (("run", "."), 2, "TW001 there is no scenario `.`"),
    "no category like this": (("catalog", "gpu"), 2, "TW006 the catalog has no category `gpu`"),
    "no part like this": (("catalog", "gpus", "h80"), 2, "TW006 there is no `h80` among the gpus"),
    "a part without a name": (("catalog", "models", ""), 2, "TW006 there is no `` among"),
    "no schedule like this": (("catalog", "schedules", "1f"), 2, "TW006 there is no `1f` among"),
    "no choice like this": (
        ("run", "good.yaml", "--fidelity", "all of it"),
        2,
        "Invalid value for '--fidelity': 'all of it' is not one of 'events'",
    ),
    "a port out of range": (("ui", "--port", "70000"), 2, "Invalid value for '--port'"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "message"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_wrong_command_is_a_usage_error(
    words: tuple[str, ...], code: int, message: str, twin_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    done = twin_command(*words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("verb", ["calibrate", "check", "measured", "import megatron", "track"])
def test_a_name_that_no_file_can_have_is_no_bug_of_ours(twin_command: Command, verb: str) -> None:
    once = ["--once"] if verb == "track" else []
    done = twin_command(*verb.split(), "a" * 300, *once)
    assert done.code not in (0, 1), done.err
    assert "bug" not in done.err


@pytest.mark.parametrize("verb", ["check", "import", "measured", "run", "validate"])
@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_word_that_no_system_passes_on_is_a_usage_error(
    twin_command: Command, verb: str, name: str
) -> None:
    done = twin_command(verb, name)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert "holds a character that no argument can hold" in done.err

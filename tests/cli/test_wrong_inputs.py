"""Wrong inputs, each with the exit code, the place, the code and the words that a planner sees.

A case edits one good scenario, runs `twin check` on it, and names what must come back. No case may
end in a traceback, and the JSON form must tell the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Command, Outcome

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

    edits: dict[str, str]
    code: str
    at: str
    under: str
    message: str
    hint: str = ""
    sets: tuple[str, ...] = ()
    exit: int = 3


def line(
    edit: tuple[str, str], code: str, at: str, under: str, message: str, hint: str = ""
) -> Wrong:
    """The good scenario with one other line."""
    return Wrong(dict([edit]), code, at, under, message, hint)


def override(argument: str, code: str, at: str, under: str, message: str, hint: str = "") -> Wrong:
    """The good scenario with one `--set`."""
    return Wrong({}, code, at, under, message, hint, (argument,))


TRAIN = GOOD[GOOD.index("train:") : GOOD.index("cost:")]
CASES: dict[str, Wrong] = {
    # what is written
    "an unknown key": line(
        ("  micro_batch: 1", "  micro_bach: 1"),
        "TW010", "wrong.yaml:14:3", "micro_bach",
        "unknown key `micro_bach` in `parallel`", "did you mean `micro_batch`?",
    ),
    "a key written twice": line(
        ("  tensor: 1", "  tensor: 1\n  pipeline: 8"),
        "TW003", "wrong.yaml:13:3", "pipeline",
        "the key `pipeline` is written twice", "keep one of them; the first is at wrong.yaml:9:3",
    ),
    "a bare number": line(
        ("  sequence: 4096tok", "  sequence: 4096"),
        "TW012", "wrong.yaml:21:13", "4096",
        "`4096` has no unit; this field takes a number of tokens", "write `4096tok`",
    ),
    "a batch that may be tokens or sequences": line(
        ("  global_batch: 67108864tok", "  global_batch: 16384"),
        "TW012", "wrong.yaml:20:17", "16384",
        "a batch is a number of tokens or of sequences, and says which",
        "write `16384tok` or `16384seq`",
    ),
    "a unit of something else": line(
        ("  gpu_hour: 2.0USD", "  gpu_hour: 2.0s"),
        "TW013", "wrong.yaml:24:13", "2.0s",
        "`2.0s` is a time; this field takes US dollars", "write US dollars, such as `2.0USD`",
    ),
    "4k, which is 4,000 or 4,096": line(
        ("  sequence: 4096tok", "  sequence: 4k"),
        "TW013", "wrong.yaml:21:13", "4k",
        "`4k` can be read in two ways",
        "write `4000tok` (steps of 1,000) or `4096tok` (steps of 1,024)",
    ),
    "text for a number": line(
        ("  virtual: 4", "  virtual: four"),
        "TW014", "wrong.yaml:10:12", "four",
        "expected a whole number, got the text `four`",
    ),
    "a number in quotes": line(
        ("  virtual: 4", '  virtual: "4"'),
        "TW014", "wrong.yaml:10:12", '"4"',
        "expected a whole number, got the text `4`", "write 4 without quotes",
    ),
    "none where one is least": line(
        ("  virtual: 4", "  virtual: 0"),
        "TW015", "wrong.yaml:10:12", "0", "must be more than 0",
    ),
    "yes for true": line(
        ("  tensor: 1", "  sequence_parallel: yes"),
        "TW014", "wrong.yaml:12:22", "yes",
        "expected true or false, got the text `yes`", "write true",
    ),
    "one item for a list": line(
        ("  recompute: [full]", "  recompute: full"),
        "TW014", "wrong.yaml:17:14", "full",
        "expected a list, got the text `full`", "write the whole list, [full]",
    ),
    "a slip in a choice": line(
        ("  recompute: [full]", "  recompute: [fulll]"),
        "TW016", "wrong.yaml:17:15", "fulll",
        "the text `fulll` is not one of the choices", "did you mean `full`?",
    ),
    "a section that is missing": line(
        (TRAIN, ""),
        "TW011", "wrong.yaml:1:1", "schema: 1", "the key `train` is missing", "add `train: ...`",
    ),
    "a format of the future": line(
        ("schema: 1", "schema: 2"),
        "TW016", "wrong.yaml:1:9", "2", "`2` is not one of the choices", "write one of: 1",
    ),
    "a bracket left open": line(
        ("  recompute: [full]", "  recompute: [full"),
        "TW002", "wrong.yaml:18:6", ":",
        "not YAML: expected ',' or ']', but got ':' while parsing a flow sequence",
        "close the bracket",
    ),
    "a tab": line(
        ("  recompute: [full]", "\trecompute: [full]"),
        "TW002", "wrong.yaml:17:1", " ",
        "not YAML: found character '\\t' that cannot start any token "
        "while scanning for the next token",
        "indent with spaces, not tabs",
    ),
    "an empty file": line(
        (GOOD, ""),
        "TW005", "wrong.yaml:1:1", "", "the file must hold keys with values",
    ),
    # what is named
    "a model nobody knows": line(
        ("model: kimi-k2", "model: kimi-k3"),
        "TW006", "wrong.yaml:3:8", "kimi-k3",
        "there is no `kimi-k3` among the models of the catalog", "did you mean `kimi-k2`?",
    ),
    "a node nobody knows": line(
        ("  node: h800-8gpu", "  node: h800"),
        "TW006", "wrong.yaml:5:9", "h800",
        "there is no `h800` among the nodes of the catalog", "did you mean `h800-8gpu`?",
    ),
    "a fabric nobody knows": line(
        ("  fabric: rail-fat-tree-400g", "  fabric: rail-fat-tree-40g"),
        "TW006", "wrong.yaml:7:11", "rail-fat-tree-40g",
        "there is no `rail-fat-tree-40g` among the fabrics of the catalog",
        "did you mean `rail-fat-tree-400g`?",
    ),
    "a calibration nobody knows": line(
        ("calibration: h800-hopper-bf16", "calibration: h800"),
        "TW006", "wrong.yaml:25:14", "h800",
        "there is no `h800` among the calibrations of the catalog",
        "did you mean `h800-deepseek-2025`?",
    ),
    "a schedule nobody knows": line(
        ("  schedule: interleaved_1f1b", "  schedule: interleaved"),
        "TW016", "wrong.yaml:15:13", "interleaved",
        "`interleaved` is no kind of `schedule`", "did you mean `interleaved_1f1b`?",
    ),
    "an optimizer nobody knows": line(
        ("  optimizer: muonclip", "  optimizer: lion"),
        "TW016", "wrong.yaml:22:14", "lion",
        "`lion` is no kind of `optimizer`", "write one of: adamw, muon, muonclip",
    ),
    "a parent that does not exist": line(
        ("name: wrong", "name: wrong\nextends: base.yaml"),
        "TW001", "wrong.yaml:3:10", "base.yaml", "no file `base.yaml`",
    ),
    "a file that extends itself": line(
        ("name: wrong", "name: wrong\nextends: wrong.yaml"),
        "TW004", "wrong.yaml:3:10", "wrong.yaml",
        "these files extend each other: wrong.yaml -> wrong.yaml",
        "remove one `extends` of the circle",
    ),
    # what is overridden
    "an override without a value": override(
        "parallel.pipeline",
        "TW005", "--set:1:7", "parallel.pipeline", "an override needs a value",
        "write `--set parallel.pipeline=VALUE`",
    )._replace(exit=2),
    "an override of nothing": override(
        "parallel.pipelines=8",
        "TW010", "--set:1:16", "pipelines",
        "unknown key `pipelines` in `parallel`", "did you mean `pipeline`?",
    ),
    "an override with a wrong value": override(
        "parallel.pipeline=x",
        "TW014", "--set:1:25", "x", "expected a whole number, got the text `x`",
    ),
    "400Gb/s, bits or bytes": override(
        "cluster.node.nic.bandwidth=400Gb/s",
        "TW013", "--set:1:34", "400Gb/s", "`400Gb/s` can be read in two ways",
        "write `400Gbps` (bits) or `400GB/s` (bytes)",
    ),
    "80G, powers of ten or of two": override(
        "cluster.node.gpu.memory=80G",
        "TW013", "--set:1:31", "80G", "`80G` can be read in two ways",
        "write `80GB` (powers of 1,000) or `80GiB` (powers of 1,024)",
    ),
    "TFLOPS, a rate or a count": override(
        "cluster.node.gpu.bf16_dense=989TFLOPS",
        "TW013", "--set:1:35", "989TFLOPS", "`989TFLOPS` can be read in two ways",
    ),
    # what cannot run
    "stages that do not divide the GPUs": line(
        ("  pipeline: 16", "  pipeline: 24"),
        "TW102", "wrong.yaml:9:13", "24",
        "tensor=1 x pipeline=24 = 24 does not divide 256 GPUs",
        "nearest pipeline=16 or 32",
    ),
    "expert ranks that do not divide the experts": line(
        ("  expert: 16", "  expert: 20"),
        "TW104", "wrong.yaml:11:11", "20",
        "expert=20 does not divide 384 experts", "nearest 16 or 24",
    ),
    "expert ranks that do not divide the ranks of a stage": line(
        ("  expert: 16", "  expert: 32"),
        "TW105", "wrong.yaml:11:11", "32",
        "expert=32 does not divide the 16 ranks of a stage (GPUs / pipeline)", "nearest",
    ),
    "a batch that does not divide over the data ranks": line(
        ("  global_batch: 67108864tok", "  global_batch: 4097seq"),
        "TW115", "wrong.yaml:20:17", "4097seq",
        "4097 sequences do not divide over data=16 ranks", "nearest global_batch=4096seq",
    ),
    "a batch of half a sequence": line(
        ("  global_batch: 67108864tok", "  global_batch: 67108865tok"),
        "TW017", "wrong.yaml:20:17", "67108865tok",
        "67108865 tokens are no whole number of sequences of 4096 tokens",
        "write `16384seq` (67108864tok) or `16385seq` (67112960tok)",
    ),
    "heads that do not divide over tensor ranks": line(
        ("  tensor: 1", "  tensor: 3"),
        "TW106", "wrong.yaml:12:11", "3", "tensor=3 does not divide heads=64",
        "nearest tensor=2 or 4",
    ),
    "a split of layers for other chunks": line(
        ("  context: 1", "  layers: [30, 31]"),
        "TW119", "wrong.yaml:13:11", "[30, 31]",
        "layers has 2 entries for 64 chunks", "write 64 entries",
    ),
    "a split that does not add up": Wrong(
        {
            "  virtual: 4": "  virtual: 1",
            "  schedule: interleaved_1f1b": "  schedule: 1f1b",
            "  context: 1": f"  layers: {[4] * 16}",
        },
        "TW121", "wrong.yaml:13:11", str([4] * 16),
        "layers adds up to 64", "",
    ),
    "a schedule of one chunk with four": line(
        ("  schedule: interleaved_1f1b", "  schedule: 1f1b"),
        "TW114", "wrong.yaml:10:12", "4", "1f1b runs one chunk per stage, not 4",
        "set virtual to 1, or schedule kind to interleaved_1f1b",
    ),
    "a sequence cut over three ranks": line(
        ("  context: 1", "  context: 3"),
        "TW102", "wrong.yaml:13:12", "3",
        "tensor=1 x context=3 x pipeline=16 = 48 does not divide 256 GPUs",
        "nearest context=2 or 4, or nodes=30 or 36",
    ),
    "an expectation of nothing": line(
        ("schema: 1", "schema: 1\nexpect: [stp_seconds < 25s]"),
        "TW051", "wrong.yaml:2:10", "stp_seconds < 25s",
        "no key figure is called `stp_seconds`", "did you mean `step_seconds`?",
    ),
    "more chunks than layers can fill": line(
        ("  virtual: 4", "  virtual: 8"),
        "TW118", "wrong.yaml:10:12", "8",
        "virtual=8 cuts 61 layers into 128 chunks, a whole round of which would be empty",
        "at most 4",
    ),
    "experts asked of a dense model": line(
        ("model: kimi-k2", "model: gpt-175b"),
        "TW103", "wrong.yaml:11:11", "16", "expert=16 on gpt-175b, which has no experts",
        "set expert to 1",
    ),
}  # fmt: skip


def outcome(case: Wrong, twin_command: Command, tmp_path: Path, *words: str) -> Outcome:
    """`twin check` of a case."""
    text = GOOD
    for old, new in case.edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "wrong.yaml").write_text(text)
    overrides = [word for one in case.sets for word in ("--set", one)]
    return twin_command("check", "wrong.yaml", *overrides, *words)


def test_the_good_scenario_is_good(twin_command: Command, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    assert twin_command("check", "good.yaml").code == 0


def test_there_are_at_least_thirty_cases() -> None:
    assert len(CASES) >= 30


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


def test_what_does_not_fit_is_no_mistake_and_exits_with_4(
    twin_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "tight.yaml").write_text(GOOD.replace("[full]", "[]"))
    done = twin_command("check", "tight.yaml")
    assert done.code == 4
    assert done.err == ""
    assert done.out.startswith("Does not fit: stage ")
    assert "GiB too much; largest there: activations" in done.out


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

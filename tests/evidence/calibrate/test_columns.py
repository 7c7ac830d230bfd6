"""Tables of step times: three formats say the same, and what is wrong is shown where it stands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from twin.errors import TwinError
from twin.evidence.calibrate.columns import StepRow, steps
from twin.evidence.calibrate.table import read_table

HEAD = "name,gpu,gpus,model,pipeline,micro_batch,recompute,global_batch,sequence,seconds"
ROW = "a,h100,16,llama3-8b,2,1,attention_core,64,8192,4.1"


def read(folder: Path, text: str, name: str = "steps.csv", sets: tuple[str, ...] = ()) -> StepRow:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return steps(read_table(path), None, sets)[0]


def test_a_row_is_the_scenario_that_it_says(tmp_path: Path) -> None:
    step = read(tmp_path, f"# mine\n{HEAD}\n{ROW}\n")
    scenario = step.scenario
    assert (step.name, step.measured, step.use) == ("a", 4.1, "fit")
    assert (scenario.cluster.node.name, scenario.cluster.nodes) == ("h100-8gpu", 2)
    assert scenario.cluster.fabric.name == "rail-fat-tree-400g"
    assert (scenario.parallel.pipeline, scenario.memory.recompute) == (2, ("attention_core",))
    assert (scenario.train.global_batch_sequences, scenario.train.sequence) == (64, 8192)


def test_yaml_and_parquet_say_what_csv_says(tmp_path: Path) -> None:
    csv = read(tmp_path, f"{HEAD}\n{ROW}\n").scenario
    pairs = dict(zip(HEAD.split(","), ROW.split(","), strict=True))
    text = "rows:\n- {" + ", ".join(f"{k}: {v}" for k, v in pairs.items()) + "}\n"
    assert read(tmp_path, text, "steps.yaml").scenario == csv
    numbers = {k: [int(v) if v.isdecimal() else v] for k, v in pairs.items()} | {"seconds": [4.1]}
    parquet.write_table(pa.table(numbers), tmp_path / "steps.parquet")
    (step,) = steps(read_table(tmp_path / "steps.parquet"), None, ())
    assert step.scenario == csv


def test_seconds_may_have_a_unit_and_any_field_a_column(tmp_path: Path) -> None:
    text = f"{HEAD},model.layers,data\n{ROW.replace('4.1', '4100ms')},16,8\n"
    step = read(tmp_path, text)
    assert step.measured == pytest.approx(4.1)
    assert step.scenario.model.layers == 16


def test_overrides_hold_for_every_row(tmp_path: Path) -> None:
    step = read(tmp_path, f"{HEAD}\n{ROW}\n", sets=("train.optimizer=muonclip",))
    assert step.scenario.train.optimizer.kind == "muonclip"


def test_fewer_gpus_than_a_node_are_a_part_of_it(tmp_path: Path) -> None:
    step = read(tmp_path, f"{HEAD}\n{ROW.replace('h100,16', 'h100,4')}\n")
    assert (step.scenario.cluster.nodes, step.scenario.cluster.node.gpus) == (1, 4)


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "words"),
    [
        ("pipeline", "pp", "TW351", "2:21", "write `pipeline`"),
        ("pipeline", "pipelin", "TW351", "2:21", "did you mean `pipeline`?"),
        ("seconds", "cost.gpu_hour", "TW352", "2:1", "each row needs the seconds"),
        ("4.1", "4.1 parsec", "TW353", "3:48", "no unit of a time"),
        ("4.1", "-4.1", "TW353", "3:48", ""),
        ("4.1", "0", "TW353", "3:48", "none that can be predicted"),
        ("llama3-8b", "llama3-9b", "TW006", "3:11", "llama3-8b"),
        ("h100", "h101", "TW006", "3:3", "h100"),
        ("h100", "a100-80gb", "TW356", "3:3", "add a column `node`"),
        (",16,", ",12,", "TW353", "3:8", "no whole nodes of 8"),
        ("64,8192", "63,8192", "TW1", "3:1", ""),
        (",attention_core", ",attention_cor", "TW016", "3:25", "attention_core"),
        (",4.1", "", "TW350", "3:1", "9 cells under 10 columns"),
    ],
)
def test_what_is_wrong_is_shown_where_it_stands(
    tmp_path: Path, old: str, new: str, code: str, place: str, words: str
) -> None:
    text = f"# mine\n{HEAD}\n{ROW}\n".replace(old, new, 1)
    with pytest.raises(TwinError) as caught:
        read(tmp_path, text)
    problem = caught.value.problems[0]
    assert problem.code.startswith(code)
    assert str(problem.origin).endswith(f"steps.csv:{place}")
    assert words in f"{problem.message} {problem.hint}"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("steps.csv", "", "TW350"),
        ("steps.csv", HEAD, "TW350"),
        ("steps.csv", "seconds,seconds\n1,2\n", "TW350"),
        ("steps.yaml", "columns: []\n", "TW350"),
        ("steps.yaml", "rows: [1]\n", "TW350"),
        ("steps.yaml", "rows: [{seconds: {a: 1}}]\n", "TW350"),
        ("steps.parquet", "no parquet", "TW350"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    with pytest.raises(TwinError) as caught:
        read(tmp_path, text, name)
    assert caught.value.problems[0].code == code


def test_ranks_for_data_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match="TW357 `data` is 4, and the other columns leave 8"):
        read(tmp_path, f"{HEAD},data\n{ROW},4\n")


def test_rows_of_two_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match="TW354 rows of H100 and of H200"):
        read(tmp_path, f"{HEAD}\n{ROW}\n{ROW.replace('h100', 'h200')}\n")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = f"{HEAD}\n{ROW.replace('4.1', 'x')}\n{ROW.replace('llama3-8b', 'llama4-1b')}\n"
    with pytest.raises(TwinError) as caught:
        read(tmp_path, text)
    assert [problem.code for problem in caught.value.problems] == ["TW353", "TW006"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("no-such-step.yaml", "TW001"), ("kimi-k2-weight-update-256xh20", "TW158")],
)
def test_a_scenario_that_no_row_can_be_is_shown_in_its_cell(
    tmp_path: Path, name: str, code: str
) -> None:
    with pytest.raises(TwinError) as caught:
        read(tmp_path, f"seconds,scenario\n4.1,gpt-175b-64xa100-full\n4.2,{name}\n")
    (problem,) = caught.value.problems
    assert problem.code == code
    assert str(problem.origin).endswith("steps.csv:3:5")

"""Plan, section Import: every file that `twin import` takes, read in the same words; and what is
none of them says what to do with it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.evidence.live.test_log_lines import TITAN
from tests.ui.conftest import checked
from tests.ui.test_pages import words
from twin.cli.main import main
from twin.interop.importing.hf_config import Imported
from twin.ui.answers import Refusal
from twin.ui.launch_file import Brought, Read, read

HERE = Path(__file__).parents[1] / "interop" / "importing"
CLUSTER = ("--node", "h100-8gpu", "--fabric", "rail-fat-tree-400g", "--nodes", "8")
OPTIONS = {"architecture": "--architecture", "more": "--with"}
DEEPSPEED = "--max_seq_length 2048 --per_device_train_batch_size 4"
LAUNCHES = {
    "launches/llama3-8b-fp8.sh": {"more": "--vocab-size 128256"},
    "launches/qwen3-30b-bridge.yaml": {},
    "launches/llama3-70b.toml": {},
    "launches/verl.slurm": {},
    "launches/verl-fsdp.yaml": {},
    "launches/zero3.json": {"architecture": "llama3-8b", "more": DEEPSPEED},
}
"""Files, and what they leave open beside the cluster."""


def uploaded(opened, name: str, data: bytes):
    """The section after a file was brought."""
    app = opened("gpt-175b-64xa100-full", page="plan", section="import")
    return checked(app.file_uploader[0].set_value((name, data, "text/plain")).run())


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_read_as_the_command_reads_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / Path(name).name
    file.write_bytes((HERE / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    open_words = [w for key, value in LAUNCHES[name].items() for w in (OPTIONS[key], value)]
    assert main(["import", file.name, *CLUSTER, *open_words, "-o", "out", "-q"]) == 0
    found = read(Brought(file.read_text(), file.name, "H100", "8", **LAUNCHES[name]))
    assert isinstance(found, Read)
    assert found.draft.text == (tmp_path / "out").read_text()


def test_what_was_read_and_what_is_left_out_is_told(opened) -> None:
    text = (HERE / "launches" / "verl.slurm").read_bytes()
    told = words(uploaded(opened, "job.slurm.gz", gzip.compress(text)))
    assert "This is a launch of verl." in told
    assert "keys are read" in told
    assert "MEAN_RESPONSE" in told
    assert "twin import job.slurm.gz --node h100-8gpu" in told


def test_a_card_stands_beside_its_prediction(opened) -> None:
    app = uploaded(opened, "card.yaml", (HERE / "launches" / "card.yaml").read_bytes())
    metrics = {one.label: one for one in app.main.metric}
    assert metrics["Measured step"].value == "20.0 s"
    assert "x measured" in metrics["Predicted step"].delta
    found = read(Brought((HERE / "launches" / "card.yaml").read_text(), "card.yaml", "A100"))
    assert isinstance(found, Refusal)
    assert "H100, GB300" in found.text


def test_a_model_alone_leads_to_a_new_plan_of_it(opened) -> None:
    data = (HERE / "configs" / "qwen3-4b.json").read_bytes()
    found = read(Brought(data.decode(), "qwen3-4b.json", "H100"))
    assert isinstance(found, Imported)
    app = uploaded(opened, "qwen3-4b.json", data)
    assert "qwen3-4b: 4.0" in words(app)
    (button,) = (one for one in app.button if one.label == "Plan its training")
    app = checked(button.click().run())
    assert "parameters, 36 layers" in words(app)
    assert "Your question" in [one.value for one in app.header]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TITAN.format(at=1.0, step=1).encode(), "twin track train.out"),
        (b'{"traceEvents": []}', "twin measured train.out"),
        (b"\0\1\2 nothing", "no file of a format that is known"),
    ],
)
def test_what_is_no_launch_says_what_reads_it(opened, data: bytes, said: str) -> None:
    app = uploaded(opened, "train.out", data)
    assert app.main.error[0].value == "This is no file that can be imported."
    assert said in words(app)


def test_the_upload_of_a_plan_takes_the_same_files(opened) -> None:
    app = opened("gpt-175b-64xa100-full", page="plan")
    data = (HERE / "launches" / "llama3-8b-fp8.sh").read_bytes()
    app = checked(app.file_uploader[0].set_value(("a.sh", data, "text/plain")).run())
    assert "or paste it here" in [one.label for one in app.text_area]


@pytest.mark.parametrize("name", ["titan.slurm", "zero3.slurm"])
def test_a_visitor_s_script_reads_no_file_of_this_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the app runs, a file of the named one's name may lie."""
    monkeypatch.chdir(HERE / "launches")
    found = read(Brought((HERE / "launches" / name).read_text(), name, "H100", "8"))
    assert isinstance(found, Refusal)
    assert "itself" in found.text


def test_a_visitor_s_recipe_imports_no_module_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = (
        "from common import secret\nfrom megatron.bridge.training.config import ConfigContainer\n"
        "def own_config():\n    cfg = ConfigContainer()\n    cfg.model.name = secret\n"
        "    return cfg\n"
    )
    (tmp_path / "common.py").write_text('secret = "hunter2"\n')
    monkeypatch.chdir(tmp_path)
    found = read(Brought(recipe, "recipe.py", "H100", "8"))
    assert isinstance(found, Refusal)
    assert "hunter2" not in found.text

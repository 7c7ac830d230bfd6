"""`twin import` and `twin catalog` as commands: data on stdout, words on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command
from twin.cli.catalog import CATEGORIES
from twin.loading import catalog_parts, unavailable
from twin.loading.catalog import PART_KINDS

CONFIGS = Path(__file__).parents[1] / "interop" / "importing" / "configs"
K2 = str(CONFIGS / "kimi-k2.json")


def test_the_yaml_alone_is_on_stdout_and_loads(twin_command: Command, tmp_path: Path) -> None:
    done = twin_command("import", "hf-config", K2)
    assert done.code == 0
    assert "kimi-k2: 1,026,408,232,448 parameters." in done.err
    models = tmp_path / "catalog" / "models"
    models.mkdir(parents=True)
    (models / "mine.yaml").write_text(done.out)
    (tmp_path / "s.yaml").write_text(
        "schema: 1\nextends: kimi-k2-256xh800.yaml\nname: s\nmodel: mine\n"
    )
    assert twin_command("check", "s.yaml", "-q").code == 0


def test_the_output_is_named_as_the_file_and_never_replaced_unasked(
    twin_command: Command, tmp_path: Path
) -> None:
    words = ("import", "hf-config", K2, "--output", "k3.yaml")
    done = twin_command(*words)
    assert (done.code, done.out) == (0, "")
    assert "k3: 1,026,408,232,448 parameters, written to k3.yaml." in done.err
    assert "name: k3\n" in (tmp_path / "k3.yaml").read_text()
    again = twin_command(*words)
    assert again.code == 2
    assert "TW064 `k3.yaml` exists already" in again.err
    assert twin_command(*words, "--force").code == 0
    nowhere = twin_command("import", "hf-config", K2, "-o", "no/k3.yaml")
    assert (nowhere.code, "TW063 there is no folder `no`" in nowhere.err) == (2, True)


def test_a_config_json_is_named_as_its_folder(twin_command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "Kimi-K2-Base"
    folder.mkdir()
    (folder / "config.json").write_text(Path(K2).read_text())
    assert (
        "name: Kimi-K2-Base\n"
        in twin_command("import", "hf-config", str(folder / "config.json")).out
    )


def test_json_has_the_model_its_counts_and_what_to_know(twin_command: Command) -> None:
    done = twin_command("import", "hf-config", str(CONFIGS / "deepseek-v3.json"), "--json")
    answer = json.loads(done.out)
    assert answer["family"] == "deepseek_v3"
    assert answer["parameters"]["total"] == 671_026_419_200
    assert answer["model"]["mtp_layers"] == 1
    assert answer["warnings"] == [
        "The released weights are quantized; their scales are not counted."
    ]
    assert answer["written"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hf-konfig", K2), "did you mean `hf-config`?"),
        (("hf-config", "no.json"), "TW001 `no.json` cannot be read"),
        (("hf-config", "."), "TW001 `.` cannot be read"),
    ],
)
def test_a_wrong_import_is_explained(
    words: tuple[str, ...], said: str, twin_command: Command
) -> None:
    done = twin_command("import", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_lists_its_members_as_text_and_data(
    category: str, twin_command: Command
) -> None:
    text = twin_command("catalog", category)
    rows = json.loads(twin_command("catalog", category, "--json").out)[category]
    for name in (row.get("name", row.get("kind")) for row in rows):
        assert f"{name}: " in text.out or f"{name} (also " in text.out


def test_the_catalog_is_the_names_of_all_categories(twin_command: Command) -> None:
    everything = json.loads(twin_command("catalog", "--json").out)["catalog"]
    assert list(everything) == list(CATEGORIES)
    for kind in PART_KINDS:
        assert everything[kind] == list(catalog_parts(kind))


def test_models_come_with_exact_counts_and_with_what_cannot_be_expressed(
    twin_command: Command,
) -> None:
    answer = json.loads(twin_command("catalog", "models", "--json").out)
    totals = {row["name"]: row["parameters"]["total"] for row in answer["models"]}
    assert list(totals) == list(catalog_parts("models"))
    assert totals["kimi-k2"] == 1_026_408_232_448
    assert totals["gpt-oss-120b"] == 116_829_156_672
    assert {row["name"]: row["reason"] for row in answer["not_expressible"]} == unavailable(
        "models"
    )
    text = twin_command("catalog", "models").out
    assert "not expressible, nemotron-v3-ultra-550b-26.04: the widths" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("modles",), "did you mean `models`?"),
        (("gpus", "H1000"), "did you mean `h100`?"),
        (("topologies", "rail"), "did you mean `rail_fat_tree`?"),
        (("routings", "zip"), "did you mean `zipf`?"),
        (("models", "nemotron-v3-ultra-550b-26.04"), "cannot be expressed: the widths"),
        (("xyzzy",), "write one of: gpus, nodes, fabrics"),
    ],
)
def test_a_wrong_category_or_entry_is_explained(
    words: tuple[str, ...], said: str, twin_command: Command
) -> None:
    done = twin_command("catalog", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_what_a_choice_must_be_told_has_no_default(twin_command: Command) -> None:
    answer = json.loads(twin_command("catalog", "routings", "--json").out)
    settings = {one["kind"]: one["settings"] for one in answer["routings"]}
    assert list(settings) == ["balanced", "by_layer", "histogram", "random", "zipf"]
    (exponent,) = settings["zipf"]
    assert (exponent["name"], exponent["required"], exponent["default"]) == ("s", True, None)
    text = twin_command("catalog", "routings", "zipf").out
    assert "  s = ...: exponent: the i-th most popular expert gets 1 / i^s" in text


LAUNCHES = Path(__file__).parents[1] / "interop" / "importing" / "launches"
ON_H100 = ("--node", "h100-8gpu", "--fabric", "rail-fat-tree-400g")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("llama3-70b.toml", "torchtitan"),
        ("zero3.slurm", "deepspeed"),
        ("verl.slurm", "verl"),
        ("verl-fsdp.yaml", "verl"),
        ("qwen3-30b-bridge.yaml", "bridge"),
        ("llama3-8b-fp8.sh", "megatron"),
    ],
)
def test_a_launch_of_a_format_that_is_not_named_is_recognised_and_runs(
    name: str, form: str, twin_command: Command
) -> None:
    words = (*ON_H100, "--nodes", "12") if form == "verl" else (*ON_H100, "--nodes", "8")
    done = twin_command("import", str(LAUNCHES / name), *words, "-o", "made.yaml", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["format"] == form
    assert answer["keys"]["read"] > 5
    assert f"by `twin import {form}`" in Path("made.yaml").read_text()
    assert twin_command("check", "made.yaml", "-q").code in (0, 4)


@pytest.mark.parametrize("launch", ["gpt3-175b.sh", "llama3-70b.toml", "qwen3-30b-bridge.yaml"])
def test_an_open_quote_is_told(twin_command: Command, launch: str) -> None:
    file = Path(__file__).parents[1] / "interop" / "importing" / "launches" / launch
    where = ("--node", "h100-8gpu", "--nodes", "4", "--fabric", "rail-fat-tree-400g")
    done = twin_command("import", str(file), *where, "--with", "--a 'b")
    assert (done.code, "TW014 no closing quotation" in done.err) == (2, True)


def test_another_count_of_gpus_than_the_script_has_is_told(twin_command: Command) -> None:
    words = ("--node", "gb200-nvl72", "--fabric", "rail-fat-tree-nvl72", "--nodes", "1")
    done = twin_command("import", str(LAUNCHES / "zero3.slurm"), *words)
    assert "The file has 8 GPUs per node, and gb200-nvl72 has 72." in done.err


def test_a_card_is_predicted_and_compared_in_one_command(
    twin_command: Command,
) -> None:
    done = twin_command(
        "import", str(LAUNCHES / "card.yaml"), "--node", "h100-8gpu", "-o", "card.scenario.yaml"
    )
    assert done.code == 0, done.err
    assert "Predicted / measured" in done.out
    assert "20.0 s" in done.out
    answer = json.loads(twin_command("import", str(LAUNCHES / "card.yaml"), "--json").out)
    assert [one["gpu"] for one in answer["entries"]] == ["H100", "GB300"]
    again = twin_command("run", "card.scenario.yaml", "--json")
    assert again.code in (0, 4)
    assert f"{json.loads(again.out)['kpis']['step_seconds'] / 20.0:.2f}" in done.out

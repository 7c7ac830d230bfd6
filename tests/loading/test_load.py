"""Loading: what a scenario file, what it extends, names and is overridden by, come to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.errors import DEFAULT, Problem, ScenarioError, UsageError
from twin.loading import catalog_parts, load, load_part, resolve, rows, scenario_hash
from twin.loading.files import shipped_scenarios
from twin.loading.load import read_overrides
from twin.loading.tree import Branch, Child, Leaf, Node, merge, plain
from twin.spec.cluster import NodeSpec

SHIPPED = shipped_scenarios()


def write(folder: Path, name: str, text: str) -> None:
    folder.joinpath(name).write_text(text, encoding="utf-8")


def test_quantities_become_si_numbers(workshop: Path) -> None:
    scenario = load(workshop / "toy.yaml")
    node = scenario.cluster.node
    assert node.nic.bandwidth == 12.5e9
    assert node.gpu.memory == 10 * 2**30
    assert node.nic.latency == pytest.approx(2e-6)
    assert scenario.train.tokens == 1_000_000


@pytest.mark.usefixtures("workshop")
def test_a_batch_in_sequences_equals_one_in_tokens() -> None:
    in_sequences = load("toy.yaml")
    in_tokens = load("toy.yaml", ["train.global_batch=2048tok"])
    assert in_sequences == in_tokens
    assert in_sequences.train.global_batch == 2048
    assert in_sequences.train.global_batch_sequences == 16
    longer = load("toy.yaml", ["train.sequence=256tok"])
    assert longer.train.global_batch_sequences == 16
    assert longer.train.global_batch == 4096


def test_mappings_merge_and_lists_replace(workshop: Path) -> None:
    write(
        workshop, "base.yaml", (workshop / "toy.yaml").read_text() + "memory: {recompute: [full]}"
    )
    write(
        workshop,
        "child.yaml",
        "extends: base.yaml\ncluster: {nodes: 4}\nmemory: {recompute: [attention_core]}\n",
    )
    child = load("child.yaml")
    assert child.cluster.nodes == 4
    assert child.cluster.node == load("base.yaml").cluster.node
    assert child.memory.recompute == ("attention_core",)


def test_of_several_parents_the_last_wins_and_the_file_itself_over_all(workshop: Path) -> None:
    write(workshop, "a.yaml", "cluster: {nodes: 3}\nparallel: {pipeline: 2}\nname: a\n")
    write(workshop, "b.yaml", "cluster: {nodes: 5}\nname: b\n")
    write(workshop, "child.yaml", "extends: [toy.yaml, a.yaml, b.yaml]\nname: child\n")
    child = load("child.yaml")
    assert (child.name, child.cluster.nodes, child.parallel.pipeline) == ("child", 5, 2)


def test_a_file_that_comes_in_twice_goes_where_it_comes_last(workshop: Path) -> None:
    write(workshop, "a.yaml", "extends: toy.yaml\nname: a\ncluster: {nodes: 3}\n")
    write(workshop, "b.yaml", "extends: toy.yaml\nparallel: {pipeline: 2}\n")
    write(workshop, "child.yaml", "extends: [a.yaml, b.yaml]\n")
    child = load("child.yaml")
    assert (child.name, child.cluster.nodes, child.parallel.pipeline) == ("a toy run", 2, 2)


def test_files_that_double_with_each_generation_are_read_once(workshop: Path) -> None:
    write(workshop, "0.yaml", "extends: toy.yaml\nname: first\n")
    for n in range(1, 41):
        write(workshop, f"{n}.yaml", f"extends: [{n - 1}.yaml, {n - 1}.yaml]\n")
    assert load("40.yaml").name == "first"


@pytest.mark.usefixtures("workshop")
def test_a_pipe_is_read_as_a_file_in_the_current_folder() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        pipe.write("extends: toy.yaml\nname: piped\n")
    assert load(f"/dev/fd/{reader}").name == "piped"
    os.close(reader)


def test_a_folder_is_no_scenario_and_no_part(workshop: Path) -> None:
    workshop.joinpath("folder.yaml").mkdir()
    workshop.joinpath("catalog/models/folder.yaml").mkdir()
    with pytest.raises(UsageError) as caught:
        load("folder.yaml")
    assert "folder.yaml`?" not in str(caught.value)
    assert "folder" not in catalog_parts("models", [workshop])


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + "/x.yaml", "a\0b"])
@pytest.mark.usefixtures("workshop")
def test_a_name_that_no_file_can_have_is_not_found(name: str) -> None:
    with pytest.raises(UsageError, match="TW001"):
        load(name)


def test_shipped_scenarios_load_in_a_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert load(SHIPPED[0]).name


@pytest.mark.usefixtures("workshop")
def test_another_kind_of_attention_starts_anew_and_another_activation_does_not() -> None:
    latent = (
        "{kind: mla, heads: 4, kv_lora_rank: 8, qk_nope_head_dim: 4, qk_rope_head_dim: 4, "
        "v_head_dim: 4}"
    )
    assert load("toy.yaml", [f"model.attention={latent}"]).model.attention.kind == "mla"
    ffn = load("toy.yaml").model.ffn
    other = "gelu" if ffn.kind == "swiglu" else "swiglu"
    assert load("toy.yaml", [f"model.ffn.kind={other}"]).model.ffn.width == ffn.width


def test_a_mapping_over_a_name_refines_the_part_and_a_name_replaces_it(workshop: Path) -> None:
    write(workshop, "fat.yaml", "extends: toy.yaml\nmodel: {hidden: 128}\n")
    refined = load("fat.yaml").model
    assert (refined.name, refined.hidden, refined.layers) == ("toy-model", 128, 4)
    write(workshop, "thin.yaml", "extends: fat.yaml\nmodel: toy-model\n")
    assert load("thin.yaml").model == load("toy.yaml").model


@pytest.mark.usefixtures("workshop")
def test_a_section_extends_a_part_of_the_catalog_and_changes_it() -> None:
    same = ["cluster.node=gb300-nvl72", "cluster.node.gpus=64", "cluster.node.gpu.memory=200GiB"]
    inline = "cluster.node={extends: gb300-nvl72, gpus: 64, gpu: {extends: gb300, memory: 200GiB}}"
    found = load("toy.yaml", [inline])
    assert found.cluster == load("toy.yaml", same).cluster
    assert (found.cluster.node.gpus, found.cluster.node.gpu.memory) == (64, 200 * 2**30)
    with pytest.raises(ScenarioError, match="TW006 there is no `gb3000`"):
        load("toy.yaml", ["cluster.node={extends: gb3000, gpus: 64}"])


@pytest.mark.usefixtures("workshop")
def test_an_override_reaches_into_a_part_of_a_part() -> None:
    scenario = load("toy.yaml", ["cluster.node.gpu.memory=20GiB", "cluster.node.gpus=4"])
    assert scenario.cluster.node.gpu.memory == 20 * 2**30
    assert scenario.cluster.node.gpus == 4
    assert scenario.cluster.node.gpu.sms == 10


@pytest.mark.usefixtures("workshop")
def test_the_last_of_two_overrides_wins() -> None:
    assert load("toy.yaml", ["cluster.nodes=3", "cluster.nodes=4"]).cluster.nodes == 4


@pytest.mark.usefixtures("workshop")
def test_a_name_stands_for_a_schedule_without_settings() -> None:
    named = load("toy.yaml", ["parallel.schedule=gpipe"])
    spelled = load("toy.yaml", ["parallel.schedule={kind: gpipe}"])
    set_by_kind = load("toy.yaml", ["parallel.schedule.kind=gpipe"])
    assert named == spelled == set_by_kind
    assert named.parallel.schedule.kind == "gpipe"


def test_another_kind_drops_the_settings_of_the_old_one() -> None:
    base, over = (
        Branch({"a": tree.children["a"]}, tree.origin)
        for tree in read_overrides(["a={kind: x, depth: 3}", "a={kind: y}"])
    )
    assert plain(merge(base, over, lambda _, leaf: leaf, [("a",)])) == {"a": {"kind": "y"}}
    assert plain(merge(base, over, lambda _, leaf: leaf, [])) == {"a": {"kind": "y", "depth": 3}}


@pytest.mark.usefixtures("workshop")
def test_without_a_calibration_the_gpu_names_it() -> None:
    assert load("toy.yaml").calibration.name == "toy-profile"
    assert load("toy.yaml", ["calibration=other-profile"]).calibration.name == "other-profile"


@pytest.mark.usefixtures("workshop")
def test_a_calibration_without_a_name_refines_that_of_the_gpu() -> None:
    calibration = load("toy.yaml", ["calibration.gemm=0.5"]).calibration
    assert (calibration.name, calibration.gemm, calibration.bandwidth) == ("toy-profile", 0.5, 0.8)


def test_parts_beside_the_scenario_come_before_shipped_ones(workshop: Path) -> None:
    write(workshop, "catalog/models/kimi-k2.yaml", "kind: assumed\n" + _model_of_two_layers())
    assert load("toy.yaml", ["model=kimi-k2"]).model.layers == 2
    assert load_part("models", "kimi-k2").spec.layers == 61


def _model_of_two_layers() -> str:
    return (
        "layers: 2\nhidden: 8\nvocab: 10\n"
        "attention: {kind: gqa, heads: 2, kv_heads: 2, head_dim: 4}\n"
        "ffn: {kind: gelu, width: 16}\n"
    )


def test_every_leaf_knows_where_it_was_written(workshop: Path) -> None:
    write(workshop, "child.yaml", "schema: 1\nextends: toy.yaml\ncluster: {nodes: 4}\n")
    scenario = load("child.yaml", ["parallel.virtual=2", "cluster.node.nic.bandwidth=200Gbps"])
    where = {row.path: str(row.origin) for row in rows(scenario)}
    assert where["cluster.nodes"] == "child.yaml:3:18"
    assert where["name"] == "toy.yaml:2:7"
    assert where["parallel.schedule.kind"] == "toy.yaml:7:13"
    assert where["model.attention.heads"] == "catalog/models/toy-model.yaml:6:31"
    assert where["cluster.node.gpu.reserve.0.bytes"] == "catalog/gpus/toy-gpu.yaml:11:20"
    assert where["parallel.virtual"] == "--set:1:24"
    assert where["cluster.node.nic.bandwidth"] == "--set:2:34"
    assert where["calibration.gemm"] == "catalog/calibrations/toy-profile.yaml:6:7"
    assert where["parallel.zero"] == "default"


@pytest.mark.usefixtures("workshop")
def test_the_ledger_says_who_says_each_number() -> None:
    ledger = load("toy.yaml", ["cluster.node.gpus=4"]).ledger
    memory = ledger["cluster.node.gpu.memory"]
    assert (memory.kind, memory.range, memory.note) == ("measured", ("9GiB", "10GiB"), "as read")
    assert memory.source is not None
    assert memory.source.title == "A benchmark"
    assert ledger["cluster.node.gpu.sms"].source is not None
    assert ledger["cluster.node.gpu.sms"].kind == "datasheet"
    assert ledger["cluster.fabric.efficiency"].kind == "fitted"
    assert ledger["cluster.node.gpus"].kind == "assumed"
    assert ledger["cluster.node.gpus"].source is None
    assert "cluster.node.name" not in ledger


@pytest.mark.usefixtures("workshop")
def test_problems_of_later_rules_find_their_place() -> None:
    scenario = load("toy.yaml")
    written, unwritten, placed = scenario.locate(
        [
            Problem("TW101", "parallel.pipeline", "does not divide"),
            Problem("TW102", "parallel.tensor", "does not divide"),
            Problem("TW103", "parallel.pipeline", "elsewhere", origin=DEFAULT),
        ]
    )
    assert str(written.origin) == "toy.yaml:6:13"
    assert str(unwritten.origin) == "toy.yaml:5:1"
    assert placed.origin is DEFAULT


@pytest.mark.parametrize("name", SHIPPED)
def test_a_resolved_scenario_loads_to_the_same(name: str, tmp_path: Path) -> None:
    scenario = load(name)
    write(tmp_path, "resolved.yaml", resolve(scenario))
    again = load(tmp_path / "resolved.yaml")
    assert again == scenario
    assert scenario_hash(again) == scenario_hash(scenario)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_of_a_shipped_part_has_a_source(name: str) -> None:
    assert [path for path, known in load(name).ledger.items() if known.source is None] == []


@pytest.mark.usefixtures("workshop")
def test_resolve_names_the_override_and_the_source() -> None:
    text = resolve(load("toy.yaml", ["cluster.nodes=3"]))
    assert f"{'  nodes: 3':<44}  # --set cluster.nodes=3\n" in text
    assert "# catalog/gpus/toy-gpu.yaml:4:17 (measured, bench)\n" in text


def test_texts_that_look_like_something_else_survive_being_resolved(workshop: Path) -> None:
    for name in (
        '"yes: no"',
        '"12"',
        '"null"',
        '"# 1"',
        '"a, b]"',
        '"é \\" \\\\"',
        '"1e5"',
        '" x "',
        '"\\x7f \\x80 \\x85 \\u2028 \\ufeff \\ufffe \\n \\0"',
        '"\\ud83d\\ude00 \\x85"',
    ):
        scenario = load("toy.yaml", [f"name={name}"])
        write(workshop, "resolved.yaml", resolve(scenario))
        assert load("resolved.yaml").name == scenario.name


def test_an_override_over_several_lines_stays_one_comment(workshop: Path) -> None:
    scenario = load("toy.yaml", ["parallel.schedule=\n {kind: gpipe}"])
    write(workshop, "resolved.yaml", resolve(scenario))
    assert load("resolved.yaml") == scenario


def test_the_hash_ignores_names_comments_and_origins_but_no_value(workshop: Path) -> None:
    original = scenario_hash(load("toy.yaml"))
    text = (workshop / "toy.yaml").read_text()
    write(workshop, "toy.yaml", "# a comment\n" + text.replace("a toy run", "another name"))
    assert scenario_hash(load("toy.yaml")) == original
    assert scenario_hash(load("toy.yaml", ["cluster.nodes=2"])) == original
    assert scenario_hash(load("toy.yaml", ["cluster.nodes=3"])) != original
    part = workshop / "catalog/gpus/toy-gpu.yaml"
    part.write_text(part.read_text().replace("sms: 10", "sms: 11"))
    assert scenario_hash(load("toy.yaml")) != original


def test_catalog_parts_are_listed_and_loaded_alone(workshop: Path) -> None:
    assert "toy-node" in catalog_parts("nodes", [workshop])
    assert "toy-node" not in catalog_parts("nodes")
    part = load_part("nodes", "toy-node", [workshop])
    assert isinstance(part.spec, NodeSpec)
    assert part.spec.gpu.name == "toy-gpu"
    assert part.file == "catalog/nodes/toy-node.yaml"
    assert part.ledger["gpu.memory"].kind == "measured"


@pytest.mark.parametrize("kind", ["gpus", "nodes", "fabrics", "models", "calibrations"])
def test_every_shipped_part_loads_alone(kind: str) -> None:
    names = catalog_parts(kind)  # type: ignore[arg-type]
    assert names
    for name in names:
        assert load_part(kind, name).name == name  # type: ignore[call-overload]


def test_an_unsourced_part_is_refused_alone_too(workshop: Path) -> None:
    with pytest.raises(ScenarioError, match="TW007"):
        load_part("gpus", "unsourced", [workshop])


def _trees() -> st.SearchStrategy[dict[str, object]]:
    """Trees in which a key is always a section or always a scalar, as in files of one schema."""
    scalars = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)
    return scalars.flatmap(
        lambda leaves: st.dictionaries(st.sampled_from("xyz"), scalars, max_size=3).map(
            lambda sections: {**leaves, **sections}
        )
    )


def _tree(value: object) -> Node:
    if not isinstance(value, dict):
        assert isinstance(value, int)
        return Leaf(value, DEFAULT)
    return Branch({key: Child(DEFAULT, _tree(item)) for key, item in value.items()}, DEFAULT)


def _merged(base: Node, over: Node) -> Node:
    return merge(base, over, lambda _, leaf: leaf, [])


@given(_trees(), _trees(), _trees())
def test_merging_is_associative(a: object, b: object, c: object) -> None:
    first, second, third = _tree(a), _tree(b), _tree(c)
    left = _merged(_merged(first, second), third)
    right = _merged(first, _merged(second, third))
    assert plain(left) == plain(right)


@given(_trees())
def test_merging_a_tree_with_itself_changes_nothing(a: object) -> None:
    tree = _tree(a)
    assert plain(_merged(tree, tree)) == plain(tree)


def test_an_override_without_text_is_an_empty_value() -> None:
    (tree,) = read_overrides(["cost="])
    leaf = tree.leaf("cost")
    assert isinstance(leaf, Leaf)
    assert leaf.value is None


def test_the_ledger_does_not_depend_on_where_a_file_lies(tmp_path: Path) -> None:
    text = "schema: 1\nextends: gpt-175b-64xa100-full\ncalibration: {gemm: 0.7}\n"
    ledgers: list[object] = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "mine.yaml"
        file.write_text(text)
        ledgers.append(load(file).ledger)
    assert ledgers[0] == ledgers[1]

"""Names of catalog parts: aliases, other cases, parts over other parts, and entries that one file
adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.engine import plan
from twin.errors import ScenarioError, UsageError
from twin.loading import catalog_parts, load, load_part, stacks_of, unavailable
from twin.loading.catalog import PART_KINDS, PART_SPECS, PartKind, open_library, part_file

SCENARIO = """\
schema: 1
name: one of each
model: {model}
cluster: {{node: {node}, nodes: 2, fabric: {fabric}}}
parallel: {{tensor: 8, schedule: gpipe, sequence_parallel: true}}
train: {{tokens: 1T, global_batch: 8seq, sequence: 2048tok, optimizer: adamw}}
"""
OWN: dict[PartKind, tuple[str, str]] = {
    "gpus": ("own-gpu", "extends: h100\nkind: assumed\nmemory: 64GiB\n"),
    "nodes": ("own-node", "extends: h100-8gpu\nkind: assumed\ngpu: own-gpu\n"),
    "fabrics": (
        "own-fabric",
        "extends: clos-400g\nsource: twin\nspines: {value: 4, kind: assumed}\n",
    ),
    "models": ("own-model", "extends: gpt-22b\nkind: assumed\nlayers: 6\n"),
    "software": ("own-stack", "extends: megatron-core\nkind: assumed\nrelease: '2027'\n"),
    "serving": ("own-engine", "extends: vllm-v1\nkind: assumed\ngraphs: 64\n"),
    "calibrations": ("own-profile", "extends: h100-hopper-bf16\nkind: assumed\ngemm: 0.5\n"),
    "recipes": ("own-recipe", "extends: te-nvfp4\nsource: twin\nkind: assumed\nbf16_last: 4\n"),
    "updaters": ("own-updater", "extends: checkpoint-engine-vllm\nkind: assumed\nnics: 4\n"),
    "prices": ("own-price", "extends: h100-cluster-2024\nkind: assumed\nnode: 290kUSD\n"),
    "sites": ("own-site", "extends: us-average\nkind: assumed\npue: 1.3\n"),
    "failures": ("own-failures", "extends: llama3-h100\nkind: assumed\ngpu: H200\n"),
    "restarts": ("own-restart", "extends: megascale\nkind: assumed\ndetect: 2min\n"),
    "engines": ("own-engine", "extends: deepep-32gpu\nkind: assumed\nbatch: 64\n"),
    "rephrasings": ("own-words", "extends: kimi-k2-knowledge\nkind: assumed\nprompt: 90\n"),
    "trajectories": ("own-agents", "extends: kimi-k2-tool-use\nkind: assumed\nturns: 9\n"),
}
"""One file of each kind, which adds it."""


def written(folder: Path, kind: PartKind, name: str, text: str) -> None:
    shelf = folder / "catalog" / kind
    shelf.mkdir(parents=True, exist_ok=True)
    (shelf / f"{name}.yaml").write_text(text)


@pytest.mark.parametrize("kind", PART_KINDS)
def test_one_file_adds_an_entry(kind: PartKind, tmp_path: Path) -> None:
    name, text = OWN[kind]
    if kind == "nodes":
        written(tmp_path, "gpus", *OWN["gpus"])
    written(tmp_path, kind, name, text)
    assert name in catalog_parts(kind, [tmp_path])
    part = load_part(kind, name, [tmp_path])
    assert isinstance(part.spec, PART_SPECS[kind])
    assert getattr(part.spec, "name") == name  # noqa: B009  every part has a name


def test_a_scenario_uses_what_five_files_beside_it_add(tmp_path: Path) -> None:
    for kind, (name, text) in OWN.items():
        written(tmp_path, kind, name, text)
    scenario = tmp_path / "s.yaml"
    text = SCENARIO.format(model="own-model", node="own-node", fabric="own-fabric")
    scenario.write_text(text + "calibration: own-profile\n")
    planned = plan(load(scenario))
    assert planned.scenario.model.layers == 6
    assert planned.memory.capacity == 64 * 2**30
    assert planned.scenario.cluster.fabric.kind == "clos"
    assert planned.scenario.calibration.gemm == 0.5


@pytest.mark.parametrize("kind", PART_KINDS)
def test_every_alias_and_every_case_leads_to_its_part(kind: PartKind) -> None:
    library, _ = open_library()
    for name in catalog_parts(kind):
        part = load_part(kind, name)
        for other in (name.upper(), getattr(part.spec, "name"), *part.aliases):  # noqa: B009
            found = part_file(library, kind, other)
            assert found is not None
            assert found.stem == name


@pytest.mark.parametrize("kind", PART_KINDS)
def test_no_two_parts_share_a_name(kind: PartKind) -> None:
    names = [n.lower() for p in catalog_parts(kind) for n in (p, *load_part(kind, p).aliases)]
    assert len(names) == len(set(names))
    assert not set(names) & set(unavailable(kind))


def test_a_scenario_may_use_an_alias_and_the_name_in_the_file_counts(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        SCENARIO.format(model="GPT3-175B", node="DGX-H100", fabric="rail-fat-tree-400g")
    )
    resolved = load(scenario)
    assert (resolved.model.name, resolved.cluster.node.name) == ("gpt-175b", "h100-8gpu")


def test_a_nearer_part_wins_by_its_name_and_a_name_wins_over_an_alias(tmp_path: Path) -> None:
    written(tmp_path, "gpus", "H100", "extends: h200\nname: mine\nkind: assumed\n")
    written(tmp_path, "gpus", "other", "extends: h20\naliases: [b200, h-one]\nkind: assumed\n")
    assert load_part("gpus", "H100", [tmp_path]).spec.name == "mine"
    assert load_part("gpus", "b200", [tmp_path]).spec.name == "B200"
    assert load_part("gpus", "H-One", [tmp_path]).name == "other"


def test_a_part_over_another_keeps_the_sources_of_what_it_does_not_say() -> None:
    part = load_part("gpus", "h100")
    sms, memory = part.ledger["sms"], part.ledger["memory"]
    assert (sms.value, sms.source.id if sms.source else "") == (132, "deepseek-v3-report")
    assert memory.kind == "measured"
    assert part.spec.calibration == "h100-hopper-bf16"
    assert load_part("nodes", "b300-8gpu").spec.host.pcie.latency == 5e-6


def test_sections_of_another_kind_start_anew(tmp_path: Path) -> None:
    """As where scenarios extend each other: latent attention knows no `kv_heads`."""
    text = (
        "extends: gpt-22b\nkind: assumed\n"
        "attention: {kind: mla, heads: 8, kv_lora_rank: 64, qk_nope_head_dim: 32,"
        " qk_rope_head_dim: 16, v_head_dim: 32}\n"
    )
    written(tmp_path, "models", "latent", text)
    assert load_part("models", "latent", [tmp_path]).spec.attention.kind == "mla"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: h1000\nkind: assumed\n", "TW006 there is no `h1000` among the gpus"),
        ("extends: x\nkind: assumed\n", "TW004 these parts extend each other: x -> x"),
        ("extends: h100\naliases: one\nkind: assumed\n", "TW005 `aliases` takes a list of names"),
        ("extends: h100\nmemory: 80GiB\n", "TW007 this catalog number has no source"),
        ("extends: h100\nkind: assumed\nmemory: 3\n", "TW012"),
    ],
)
def test_a_part_that_extends_wrongly_is_explained_at_its_place(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "gpus", "x", text)
    with pytest.raises(ScenarioError) as caught:
        load_part("gpus", "x", [Path()])
    assert said in str(caught.value)
    assert "catalog/gpus/x.yaml:" in str(caught.value)


def test_a_mistake_in_what_a_part_extends_names_both_files(tmp_path: Path) -> None:
    written(tmp_path, "gpus", "base", "extends: h100\nkind: assumed\nsms: 0\n")
    written(tmp_path, "gpus", "x", "extends: base\nkind: assumed\n")
    with pytest.raises(ScenarioError) as caught:
        load_part("gpus", "x", [tmp_path])
    assert "base.yaml:3:6: TW015" in str(caught.value)
    assert "x.yaml:1:10 extends" in str(caught.value)


def test_the_nearest_name_may_be_an_alias() -> None:
    with pytest.raises(UsageError, match="did you mean `dgx-b200`"):
        load_part("nodes", "dgxb200")


def test_what_cannot_be_expressed_is_refused_with_the_reason(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        SCENARIO.format(model="Nemotron-V3-Ultra-550B-26.04", node="h100-8gpu", fabric="clos-400g")
    )
    with pytest.raises(ScenarioError, match=r"s\.yaml:3:8: TW040 .* public configuration"):
        load(scenario)
    assert all(reason for reason in unavailable("models").values())


def test_a_gpu_has_the_stacks_that_have_a_calibration_for_it() -> None:
    stacks = {name: load_part("software", name).spec for name in catalog_parts("software")}
    gpus = {gpu for stack in stacks.values() for gpu in stack.calibrations}
    assert len(gpus) > 5
    for gpu in (*gpus, "no such GPU"):
        assert stacks_of(gpu) == tuple(
            name for name, stack in stacks.items() if gpu in stack.calibrations
        )

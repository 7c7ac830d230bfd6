"""Step times to a profile: what made the rows is found again, and rows kept out stay out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from twin.cli.main import main
from twin.engine import lower, plan, simulate
from twin.errors import DEFAULT, UsageError
from twin.evidence.calibrate.calibrate import calibrate
from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.factors import NAMED_FACTORS, STEP_FACTORS, scaled
from twin.evidence.calibrate.fits import from_steps
from twin.evidence.calibrate.request import CalibrationRequest
from twin.evidence.calibrate.result import Calibration, Stamp
from twin.evidence.calibrate.step_fit import StepSimulator
from twin.evidence.calibrate.write import write
from twin.inference.engine import engine
from twin.inference.seconds import decode_pass
from twin.loading import load, load_part
from twin.spec.cluster import NodeSpec
from twin.spec.inference import EngineSpec

_FACTORS = {factor.name: factor for factor in NAMED_FACTORS}
COMPUTE, HOST, LAUNCH, LINKS = (_FACTORS[name] for name in ("compute", "host", "launch", "links"))
BASE = load_part("calibrations", "h800-hopper-bf16").spec
TRUTH = {COMPUTE: 0.7, HOST: 6.0}
STAMP = Stamp.now("step times", "rows", "0" * 64, "A100-80GB", BASE)
SHAPES = ((2, 1024, 1), (4, 1024, 2), (2, 2048, 1), (4, 2048, 4), (2, 4096, 2), (4, 4096, 4))
"""Layers, hidden size and micro-batch: from runs that wait for the host to runs that do not."""


def rows(noise: float = 0.0, *more: str, host: float = 6.0) -> tuple[StepRow, ...]:
    """Steps on 8 GPUs that the twin itself simulates under `TRUTH`, with noise."""
    random = np.random.default_rng(0)
    steps: list[StepRow] = []
    for layers, hidden, micro_batch in SHAPES:
        sets = (
            "software=null",
            f"model.layers={layers}",
            f"model.hidden={hidden}",
            f"model.ffn.width={4 * hidden}",
            f"model.attention.heads={hidden // 64}",
            f"model.attention.kv_heads={hidden // 64}",
            "model.attention.head_dim=64",
            "cluster.nodes=1",
            "parallel.tensor=2",
            "parallel.pipeline=2",
            "parallel.virtual=1",
            "parallel.schedule.kind=1f1b",
            f"parallel.micro_batch={micro_batch}",
            f"train.global_batch={8 * micro_batch}seq",
            *more,
        )
        scenario = load("gpt-175b-64xa100-full", sets)
        name = f"{layers} x {hidden}, {micro_batch}"
        steps.append(StepRow(name, scenario, 1.0, "fit", DEFAULT))
    played = StepSimulator(steps, BASE)
    truth = TRUTH | {HOST: host}
    seconds = [np.exp(played.error(row, truth)) for row in range(len(steps))]
    factors = np.exp(random.normal(scale=noise, size=len(steps)))
    pairs = zip(steps, seconds, factors, strict=True)
    return tuple(replace(step, measured=float(s * f)) for step, s, f in pairs)


@pytest.fixture(scope="module")
def noisy() -> Calibration:
    return from_steps(rows(0.02), BASE, STAMP, "noisy", ("compute", "host"))


def factor(found: Calibration, path: str) -> float:
    (one,) = (one for one in found.found if one.path == path)
    return one.after / one.before


def test_numbers_that_made_the_rows_are_found_again(noisy: Calibration) -> None:
    """Within 2 % noise, and a little of what holds them near the base."""
    assert factor(noisy, "gemm") == pytest.approx(0.7, rel=0.05)
    assert factor(noisy, "matmuls.bf16.efficiency") == pytest.approx(0.7, rel=0.05)
    assert factor(noisy, "dispatch") == pytest.approx(6.0, rel=0.15)
    assert noisy.fitted == 2


def test_rows_left_out_are_met_far_better_than_by_the_base(noisy: Calibration) -> None:
    before, after = noisy.errors("before", "fit"), noisy.errors("left_out", "fit")
    assert before is not None
    assert after is not None
    assert before.mean > 0.2
    assert after.mean < 0.05


def test_ranges_hold_what_made_the_rows(noisy: Calibration) -> None:
    (gemm,) = (one for one in noisy.found if one.path == "gemm")
    (host,) = (one for one in noisy.found if one.path == "dispatch")
    assert gemm.low < 0.7 * BASE.gemm < gemm.high
    assert host.low < 6 * BASE.dispatch < host.high


def test_the_same_rows_give_the_same_calibration() -> None:
    own = rows()[:3]
    texts = {
        json.dumps(from_steps(own, BASE, STAMP, "a", ("compute",)).to_json()) for _ in range(2)
    }
    assert len(texts) == 1


def test_a_row_kept_for_checking_moves_no_fit() -> None:
    own = rows()[:4]
    last = replace(own[3], use="check")
    found: list[Calibration] = []
    for times in (1.0, 3.0):
        moved = replace(last, measured=last.measured * times)
        found.append(from_steps((*own[:3], moved), BASE, STAMP, "a", ("compute",)))
    assert found[0].profile == found[1].profile
    first, second = (one.errors("after", "check") for one in found)
    assert first is not None
    assert second is not None
    assert 1 + second.bias == pytest.approx((1 + first.bias) / 3)


def test_rows_that_are_a_thousand_times_too_slow_are_suspected() -> None:
    """Milliseconds in the column of seconds."""
    wrong = [replace(step, measured=step.measured * 1e3) for step in rows()[:3]]
    found = from_steps(wrong, BASE, STAMP, "ms", ("compute",))
    assert any("spreads from the base: check units" in note for note in found.notes)


@pytest.mark.parametrize(
    ("count", "wanted", "words"),
    [
        (1, ("compute", "memory", "host"), "1 row cannot tell 3 numbers"),
        (5, ("compute", "host"), "5 rows cannot tell 2 numbers"),
        (2, None, "2 rows cannot tell 1 number"),
    ],
)
def test_too_few_rows_say_so(count: int, wanted: tuple[str, ...] | None, words: str) -> None:
    step = StepRow("a", load("gpt-175b-64xa100-full"), 1.0, "fit", DEFAULT)
    with pytest.raises(UsageError, match=f"TW355 {words}"):
        from_steps((step,) * count, BASE, STAMP, "few", wanted)


def test_an_unknown_factor_is_refused_with_the_nearest() -> None:
    step = StepRow("a", load("gpt-175b-64xa100-full"), 1.0, "fit", DEFAULT)
    with pytest.raises(UsageError, match="did you mean `compute`"):
        from_steps((step,) * 9, BASE, STAMP, "few", ("compoot",))


def test_every_factor_moves_a_number_that_profiles_or_nodes_have() -> None:
    node = load("gpt-175b-64xa100-full").cluster.node
    for one in STEP_FACTORS:
        slower = {one: 0.5}
        assert (scaled("calibration", BASE, slower), scaled("node", node, slower)) != (BASE, node)


def test_no_number_passes_its_ceiling() -> None:
    assert scaled("calibration", BASE, {COMPUTE: 3.0}).gemm == 1.0
    played = StepSimulator([StepRow("a", load("gpt-175b-64xa100-full"), 1.0, "fit", DEFAULT)], BASE)
    _, high = played.bounds((COMPUTE, LINKS))
    assert np.exp(high[0]) == pytest.approx(1 / 0.832)
    assert np.exp(high[1]) == pytest.approx(1 / 0.95)


def test_the_written_profile_is_read_as_what_was_found(noisy: Calibration, tmp_path: Path) -> None:
    files = write(noisy, tmp_path)
    part = load_part("calibrations", "noisy", [tmp_path])
    assert part.spec.gemm == pytest.approx(noisy.profile.gemm, rel=1e-3)
    assert part.spec.dispatch == pytest.approx(noisy.profile.dispatch, rel=1e-3)
    assert part.spec.gpu == "A100-80GB"
    assert part.ledger["gemm"].kind == "fitted"
    assert part.ledger["gemm"].range is not None
    base = load_part("calibrations", "h800-hopper-bf16")
    assert part.ledger["bandwidth"] == base.ledger["bandwidth"]
    assert json.loads((tmp_path / "noisy.json").read_text())["fitted_parameters"] == 2
    assert all(file.exists() for file in files)
    head = files[0].read_text()
    assert "6 rows of A100-80GB, base h800-hopper-bf16, 2 numbers fitted" in head
    write(replace(noisy, name="other"), tmp_path)
    assert load_part("calibrations", "noisy", [tmp_path]).spec == part.spec


def test_fitted_links_become_a_node(tmp_path: Path) -> None:
    found = from_steps(rows()[:3], BASE, STAMP, "linked", ("links",))
    write(found, tmp_path)
    name = "a100-80gb-8gpu-8x200g"
    node = load_part("nodes", f"{name}-linked", [tmp_path]).spec
    fitted = found.parts["node"][name]
    assert isinstance(fitted, NodeSpec)
    assert node.nvlink.efficiency == pytest.approx(fitted.nvlink.efficiency, rel=1e-3)
    assert node.nvlink.bandwidth == load_part("nodes", name).spec.nvlink.bandwidth


CORE = "software=megatron-core"


@pytest.fixture(scope="module")
def slow_host() -> Calibration:
    made = rows(0.01, CORE, host=2.0)
    return from_steps(made, BASE, STAMP, "slow", ("compute", "host"))


def test_the_host_of_a_stack_is_found_again_and_that_of_bare_kernels_stays(
    slow_host: Calibration,
) -> None:
    path = "megatron-core.host.slowness"
    assert factor(slow_host, path) == pytest.approx(2.0, rel=0.05)
    assert factor(slow_host, "gemm") == pytest.approx(0.7, rel=0.05)
    (own,) = (number for number in slow_host.found if number.path == path)
    assert own.low < 2.0 * own.before < own.high
    assert own.learned > 0.9
    assert slow_host.profile.dispatch == BASE.dispatch


@pytest.mark.parametrize(("stack", "times"), [("megatron-core-slow", 1.0), ("megatron-core", 0.5)])
def test_a_scenario_that_names_the_written_stack_takes_the_measured_seconds(
    slow_host: Calibration, tmp_path: Path, stack: str, times: float
) -> None:
    """The step waits for the host, so that with the shipped one it takes half as long."""
    write(slow_host, tmp_path)
    made = rows(0.0, CORE, host=2.0)[0]
    text = made.scenario.model_dump(mode="json", by_alias=True, exclude={"calibration"})
    file = tmp_path / "plan.yaml"
    file.write_text(json.dumps(text | {"software": stack}))
    scenario = load(file)
    seconds = simulate(lower(plan(scenario))).step_ns / 1e9
    assert seconds / made.measured == pytest.approx(times, rel=0.05)


def test_a_factor_that_moves_no_row_is_refused() -> None:
    """One GPU has no links to wait for."""
    alone = ("cluster.node.gpus=1", "parallel.tensor=1", "parallel.pipeline=1")
    with pytest.raises(UsageError, match="TW359 `links` moves none of the rows"):
        from_steps(rows(0.0, *alone)[:3], BASE, STAMP, "alone", ("links",))


def test_a_factor_that_rows_hardly_tell_is_noted() -> None:
    """GEMMs hide the host, unless it were five times slower."""
    found = from_steps(rows(0.0, host=1.0), BASE, STAMP, "hidden", ("compute", "host"))
    (note,) = (note for note in found.notes if "rows tell hardly anything of" in note)
    assert "`host`" in note
    assert factor(found, "gemm") == pytest.approx(0.7, rel=0.01)


def test_factors_are_refused_where_kernels_are_fitted(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    with pytest.raises(UsageError, match="holds kernels"):
        calibrate(CalibrationRequest(tmp_path / "trace.json", factors=("host",)))


COLUMNS = "name,use,gpu,gpus,model,tensor,pipeline,recompute,global_batch,sequence,seconds"
TABLE = f"""\
{COLUMNS}
a,fit,h100,8,gpt-1.5b,1,1,full,64,1024,2.0
b,fit,h100,8,gpt-1.5b,2,1,none,32,1024,1.1
c,fit,h100,8,gpt-1.5b,1,2,full,64,1024,2.1
d,check,h100,8,gpt-1.5b,1,4,none,64,1024,1.6
"""


def test_a_table_is_calibrated_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(TABLE)
    words = ["calibrate", str(path), "--factors", "compute", "--diff", "h100-hopper-bf16"]
    assert main([*words, "-o", str(tmp_path / "out"), "--name", "mine"]) == 0
    told = capsys.readouterr().out
    assert "mine: 1 number fitted on 3 rows of H100" in told
    assert "From h100-hopper-bf16 to mine" in told
    document = json.loads((tmp_path / "out" / "mine.json").read_text())
    assert document["version"] == 1
    assert (document["device"], document["base"]) == ("H100", "h100-nemo")
    assert document["fitted_parameters"] == 1
    assert document["errors"]["check"]["after"]["rows"] == 1
    assert document["interval"] is None
    assert (tmp_path / "out" / "catalog" / "calibrations" / "mine.yaml").exists()


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "steps.txt").write_text("")
    for name, words in (("gone.csv", "there is no"), ("steps.txt", "no measurement that is known")):
        with pytest.raises(UsageError, match=words):
            calibrate(CalibrationRequest(tmp_path / name))


LOOP = """\
schema: 1
name: an engine of one device
model: kimi-k2-nano
cluster: {node: h100-8gpu, nodes: 1, fabric: clos-400g}
parallel: {schedule: 1f1b}
train: {tokens: 1M, global_batch: 8seq, sequence: 64tok, optimizer: adamw}
rl:
  rollout:
    engine:
      gpus: 1
      precision: bf16
      step_overhead: 5ms
      sequence_overhead: 1ms
    requests: 8
    prompt: {kind: constant, each: 8}
    written: {kind: constant, each: 8}
"""


def test_factors_on_passes_of_an_engine_are_found_again(tmp_path: Path) -> None:
    """Made by the inference model itself; what the host takes beside is no part of a pass."""
    file = tmp_path / "loop.yaml"
    file.write_text(LOOP)
    scenario = load(file)
    truth = scaled("calibration", scenario.calibration, {COMPUTE: 0.8, LAUNCH: 2.5})
    bare = EngineSpec(gpus=1, precision="bf16")
    made = engine(bare, scenario.model, scenario.cluster, truth)
    lines = ["scenario,decoding,cached,seconds"]
    lines += [
        f"{file},{batch},64,{decode_pass(made, batch, 64.0).seconds!r}"
        for batch in (1, 8, 64, 512, 4096, 16384)
    ]
    table = tmp_path / "passes.csv"
    table.write_text("\n".join(lines) + "\n")
    found = calibrate(CalibrationRequest(table, factors=("launch",), name="a"))
    assert found.profile.launch / scenario.calibration.launch == pytest.approx(2.5, rel=0.05)


@pytest.mark.parametrize(
    ("row", "said"),
    [("0,64", "from 1 on"), ("8,", "write both"), ("some,64", "`decoding`")],
)
def test_passes_need_whole_numbers_and_an_engine(tmp_path: Path, row: str, said: str) -> None:
    file, table = tmp_path / "loop.yaml", tmp_path / "passes.csv"
    file.write_text(LOOP)
    table.write_text(f"scenario,decoding,cached,seconds\n{file},{row},0.01\n")
    with pytest.raises(UsageError, match=f"(?s)TW353.*{said}"):
        calibrate(CalibrationRequest(table))
    file.write_text(LOOP.partition("rl:")[0])
    table.write_text(f"scenario,decoding,cached,seconds\n{file},8,64,0.01\n")
    with pytest.raises(UsageError, match="has no inference engine"):
        calibrate(CalibrationRequest(table))

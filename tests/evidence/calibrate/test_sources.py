"""Files of measurements: recognised by their content, read in the variants that tools print, and
what is damaged or foreign is told and left alone."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tests.evidence.calibrate.synthetic import (
    SecretCluster,
    host_copies,
    megatron_log,
    nccl_tests,
    topology,
    trace,
    write_lat,
)
from tests.evidence.live.test_event_files import event, tensorboard
from twin.cli.main import main
from twin.errors import UsageError
from twin.evidence.calibrate import profiler
from twin.evidence.calibrate.calibrate import calibrate
from twin.evidence.calibrate.folder_files import ReadFile, read_files
from twin.evidence.calibrate.profiler import read_trace
from twin.evidence.calibrate.request import CalibrationRequest
from twin.evidence.calibrate.sources import Measurement

OLD_NCCL = """\
$ mpirun -np 2 ./build/alltoall_perf -b 4M -e 8M -f 2 -g 1
0: # nThread 1 nGpus 1 minBytes 4194304 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20
0: #   Rank  0 Pid  12164 on      gpu30 device  0 [0x1a] NVIDIA H100 80GB HBM3
0: #   Rank  1 Pid  12165 on      gpu31 device  0 [0x1b] NVIDIA H100 80GB HBM3
0: gpu30:12164:12164 [0] NCCL INFO Launch mode Parallel
0: #                                         out-of-place                       in-place
0: #       size         count    type     time   algbw   busbw  error     time   algbw   busbw error
     4194304         32768   float   200.00   20.97   10.48    N/A   190.50   22.02   11.01    N/A
     8388608         65536   float   400.00   20.97   10.48  0e+00   350.00   23.97   11.98  0e+00
"""
MEGABYTES = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Bidirectional BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 3393.7 != 1500.0. CPU Frequency is not max.
 2          5000             12.25              11.50\t\t   6.0
 65536      5000             23296.58            20000.00\t\t   0.023296
---------------------------------------------------------------------------------------
"""


def taken(path: Path, text: str | bytes) -> tuple[Measurement, ...]:
    """What is read from a file with this content."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (file,) = read_files(path)
    return file.measured


def test_old_nccl_tests_behind_a_launcher_are_read(tmp_path: Path) -> None:
    """The shorter of both times counts; which collective it is stands in the command."""
    found = taken(tmp_path / "out", OLD_NCCL)
    assert [(m.what, m.size, m.ranks, m.nodes) for m in found] == [
        ("all_to_all", 2.0**22, 2, 2),
        ("all_to_all", 2.0**23, 2, 2),
    ]
    assert [m.value for m in found] == pytest.approx([190.5e-6, 350e-6])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("alltoall_perf", "hypercube_perf", "which collective it is stands nowhere"),
        ("#   Rank  1", "#   Wank  1", "fewer than 2 ranks"),
        ("   float   ", "   complex   ", "no row of times"),
    ],
)
def test_a_run_that_cannot_be_used_says_why(
    tmp_path: Path, before: str, after: str, why: str
) -> None:
    path = tmp_path / "out"
    path.write_text(OLD_NCCL.replace(before, after))
    (file,) = read_files(path)
    assert not file.measured
    assert why in file.report.unused[0]


def test_the_name_of_a_file_tells_a_collective_where_nothing_else_does(tmp_path: Path) -> None:
    text = OLD_NCCL.partition("\n")[2]
    assert taken(tmp_path / "all_gather_perf.txt", text)[0].what == "all_gather"


def test_rates_in_megabytes_and_both_ways_are_of_one_direction(tmp_path: Path) -> None:
    """perftest's MB are 2^20 bytes; small messages show no rate."""
    (found,) = taken(tmp_path / "bw", MEGABYTES)
    assert (found.what, found.value) == ("card", 20000 * 2**20 / 2)


def test_a_latency_is_the_typical_one(tmp_path: Path) -> None:
    own = SecretCluster(0, noise=0.0)
    (found,) = taken(tmp_path / "lat", write_lat(own))
    # NIC, and the one switch between two nodes.
    secret = own.node.nic.latency + own.fabric.hop_latency
    assert found.value == pytest.approx(secret, abs=1e-9)


def test_a_topology_is_counted(tmp_path: Path) -> None:
    found = taken(tmp_path / "topo", topology(SecretCluster(0)))
    counts = {m.what: m.value for m in found}
    assert counts == {"gpus": 8, "nics": 8, "sockets": 2, "nvlinks": 18}


def test_a_topology_as_a_terminal_shows_it_is_counted(tmp_path: Path) -> None:
    """Underlined, with spaces for tabs; cores may be missing, or one."""
    text = topology(SecretCluster(0)).replace("0-47", "    ").replace("48-95", "56")
    head, _, rest = text.partition("\tCPU Affinity")
    shown = f"\x1b[4m{head.expandtabs(8)}    CPU Affinity{rest.expandtabs(8)}"
    counts = {m.what: m.value for m in taken(tmp_path / "topo", shown)}
    assert counts == {"gpus": 8, "nics": 8, "sockets": 2, "nvlinks": 18}


def test_packed_and_torn_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    text = nccl_tests(SecretCluster(0), "all_gather", 8, 1, sizes=[2**n for n in range(22, 31)])
    assert len(taken(tmp_path / "a.gz", gzip.compress(text.encode()))) == 9
    assert len(taken(tmp_path / "b", text[: text.index("    67108864 ")])) == 4


def test_a_line_without_end_and_binary_noise_are_no_measurement(tmp_path: Path) -> None:
    long = "x" * 3_000_000 + "\n"
    run = nccl_tests(SecretCluster(0), "all_gather", 8, 1, sizes=[2**24])
    assert len(taken(tmp_path / "long", run.replace("# Using devices", long))) == 1
    (file,) = read_files_of(tmp_path / "noise", bytes(range(256)) * 1000)
    assert file.report.recognised == ()


@pytest.mark.parametrize("most", ["MOST", "WALKED"])
def test_a_folder_of_too_many_files_is_refused(tmp_path: Path, monkeypatch, most: str) -> None:
    """As `/` is."""
    monkeypatch.setattr(f"twin.evidence.calibrate.folder_files.{most}", 2)
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("nothing")
    with pytest.raises(UsageError, match="TW350"):
        read_files(tmp_path)


def read_files_of(path: Path, content: bytes) -> tuple[ReadFile, ...]:
    path.write_bytes(content)
    return read_files(path)


def damaged(text: bytes, random: np.random.Generator) -> bytes:
    """A file with some bytes changed, lost, or put in."""
    found = bytearray(text)
    for _ in range(random.choice([1, 3, 30])):
        at = int(random.integers(len(found) + 1))
        what = random.choice([b"9" * 400, b"-1", b"nan", b"[", b"\n", b"\xff", b"1e400", b'"'])
        found[at : at + int(random.choice([0, 1, 40]))] = what
    return bytes(found)


def test_damaged_files_of_every_format_are_told_and_stop_nothing(tmp_path: Path) -> None:
    own = SecretCluster(0)
    nsight(tmp_path / "profile.sqlite", own)
    point = '{"group": "gemm", "op": "gemm", "dtype": "bf16", "shape": {"rows": 4, "cols": 4}}'
    texts = [
        OLD_NCCL.encode(),
        MEGABYTES.encode(),
        topology(own).encode(),
        megatron_log(own, 2.0, 9).encode(),
        STEPS.encode(),
        trace(own).encode()[:9000],
        (tmp_path / "profile.sqlite").read_bytes(),
        f'{{"machine": {{"name": "a"}}}}\n{point}\n'.encode(),
    ]
    random = np.random.default_rng(0)
    for number in range(240):
        path = tmp_path / "damaged"
        path.write_bytes(damaged(texts[number % len(texts)], random))
        (file,) = read_files(path)
        assert file.report.took or file.report.unused


TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
  correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER,
  demangledName INTEGER, globalPid INTEGER, correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER,
  copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
"""


def nsight(path: Path, own: SecretCluster) -> None:
    """Products of 4 shapes, a kernel without shapes, and host copies."""
    thread = (77 << 24) + 5
    with sqlite3.connect(path) as db:
        db.executescript(TABLES)
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3')")
        names = [(1, "nvjet_tst_128x256_64x4"), (2, "ncclDevKernel_AllReduce"), (3, "my_kernel")]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        for number, rows in enumerate((1024, 2048, 4096, 8192)):
            text = f"aten::mm, seq = {number}, op_id = {number}, sizes = [[{rows}, 64], [64, 96]],"
            begin = 1000 * number
            values = (begin, begin + 500, f"{text} input_op_ids = [(1,0), (2,0)]", None, thread)
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", values)
            launch = (begin + 100, begin + 120, thread, number)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)", launch)
            kernel = (begin + 300, begin + 300 + rows, 1, 1, 77 << 24, number)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", kernel)
        for number, name in ((90, 2), (91, 3)):
            kernel = (0, 512, name, name, 77 << 24, number)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", kernel)
        for way, size, seconds in host_copies(own):
            kinds = (1, 2) if way == 1 else (2, 1)
            copy = (0, round(seconds * 1e9), size, way, *kinds)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?)", copy)
        pageable = (0, 10**7, 2**26, 1, 0, 2)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?)", pageable)


def test_kernels_and_copies_of_nsight_are_read(tmp_path: Path) -> None:
    """A product of nanoseconds as many as its rows, named by the range that launched it."""
    path = tmp_path / "profile.sqlite"
    nsight(path, SecretCluster(0))
    before = path.read_bytes()
    (file,) = read_files(path)
    assert {k.shape: k.measured for k in file.kernels} == {
        f"{rows:,} x 96 x 64": pytest.approx(rows * 1e-9) for rows in (1024, 2048, 4096, 8192)
    }
    assert file.device == "NVIDIA H100 80GB HBM3"
    assert {(m.what, m.size) for m in file.measured} == {
        (what, 2.0**n) for what in ("from_host", "to_host") for n in (22, 24, 26, 28)
    }
    told = " ".join(file.report.unused)
    assert "communication" in told
    assert "no shapes (unknown)" in told
    assert "1 copies of pageable memory" in told
    assert path.read_bytes() == before


def test_a_long_profile_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsight(tmp_path / "profile.sqlite", SecretCluster(0))
    monkeypatch.setattr("twin.evidence.calibrate.sources.nsight.MOST", 5)
    (file,) = read_files(tmp_path / "profile.sqlite")
    assert "all but the first 5 rows of CUPTI_ACTIVITY_KIND_KERNEL" in file.report.unused[-1]


def test_a_database_that_takes_for_ever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many strings, and no time."""
    nsight(tmp_path / "profile.sqlite", SecretCluster(0))
    with sqlite3.connect(tmp_path / "profile.sqlite") as db:
        rows = ((number, "x") for number in range(10, 300_000))
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
    monkeypatch.setattr("twin.evidence.calibrate.sources.nsight.LONGEST", -1.0)
    (file,) = read_files(tmp_path / "profile.sqlite")
    assert file.report.unused[0].endswith("cannot be read: interrupted")


def test_the_rate_of_host_copies_is_recovered(tmp_path: Path) -> None:
    own = SecretCluster(4)
    nsight(tmp_path / "profile.sqlite", own)
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    numbers = {one.path.partition(".")[2]: one for one in found.found}
    rate = numbers["host.pcie.efficiency"]
    assert rate.low <= own.node.host.pcie.efficiency <= rate.high
    assert rate.after == pytest.approx(own.node.host.pcie.efficiency, rel=0.03)


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite"
    nsight(path, SecretCluster(0))
    (file,) = read_files_of(tmp_path / "torn.sqlite", path.read_bytes()[:9000])
    assert "cannot be read" in file.report.unused[0]


def test_a_log_without_a_scenario_says_how_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(megatron_log(SecretCluster(0), 2.0))
    (tmp_path / "smi").write_text("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-9d2)\n")
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    (log,) = (one for one in found.files if one.file.endswith("train.log"))
    assert log.took == ("the median of 35 steps",)
    assert "--defaults" in log.unused[0]


def test_a_node_of_four_gpus_is_written_with_four(tmp_path: Path) -> None:
    (tmp_path / "smi").write_text(
        "".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n})\n" for n in range(4))
    )
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    (node,) = found.parts["node"].values()
    assert node.gpus == 4  # pyright: ignore[reportAttributeAccessIssue]


def test_a_folder_without_a_measurement_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Nothing here.\n")
    with pytest.raises(UsageError, match=r"TW350 .*no measurement that is known"):
        calibrate(CalibrationRequest(tmp_path))


def test_measurements_of_another_gpu_are_left_out(tmp_path: Path) -> None:
    own = SecretCluster(0)
    run = nccl_tests(own, "all_gather", 8, 1, sizes=[2**n for n in range(22, 31)])
    (tmp_path / "a").write_text(run)
    (tmp_path / "b").write_text(run)
    (tmp_path / "c").write_text(run.replace("H100 80GB HBM3", "A100-SXM4-80GB"))
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    assert len([row for row in found.rows if row.task == "transfers"]) == 18
    assert "of NVIDIA A100-SXM4-80GB" in found.files[2].unused[0]


def test_step_times_of_another_gpu_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(STEPS)
    (tmp_path / "b.csv").write_text(STEPS.replace("h100", "h200"))
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    assert len(found.rows) == 3
    assert "3 step times are of H200: left out" in found.notes


STEPS = """\
name,gpu,gpus,model,global_batch,sequence,seconds
a,h100,8,gpt-1.7b,16,2048,0.14
b,h100,8,gpt-1.7b,32,2048,0.27
c,h100,8,gpt-1.7b,64,2048,0.53
"""


@pytest.mark.parametrize("kind", ["step times", "profiler trace"])
def test_a_single_file_is_answered_in_its_own_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """As `twin schema --answer calibrate` says, which every document is checked against."""
    texts = {"step times": STEPS, "profiler trace": trace(SecretCluster(0))}
    path = tmp_path / ("steps.csv" if kind == "step times" else "trace.json")
    path.write_text(texts[kind])
    assert main(["calibrate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == kind


def test_a_large_trace_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of its calls and kernels: as many as are kept."""
    path = tmp_path / "trace.json"
    path.write_text(trace(SecretCluster(0)))
    whole = len(read_trace(path).kernels)
    monkeypatch.setattr(profiler, "SMALL", 0)
    monkeypatch.setattr(profiler, "MOST", whole)
    assert len(read_trace(path).kernels) == pytest.approx(whole / 2, abs=2)
    (file,) = read_files(path)
    assert "all but its beginning" in file.report.unused[-1]


def test_event_files_are_logs_and_so_are_packed_ones(tmp_path: Path) -> None:
    board = tensorboard(*(event(n, n, iteration_time=0.5) for n in range(1, 20)))
    (step,) = taken(tmp_path / "events.out.tfevents.1.host", board)
    assert (step.what, step.value) == ("logged step", pytest.approx(0.5))
    text = gzip.compress(megatron_log(SecretCluster(0), 2.0).encode())
    (file,) = read_files_of(tmp_path / "train.log.gz", text)
    assert file.report.took == ("the median of 35 steps",)


def test_hosts_of_one_nvlink_domain_are_one_node(tmp_path: Path) -> None:
    """GB200 NVL72: 32 ranks on 8 hosts of 4 GPUs meet in one rack."""
    run = nccl_tests(SecretCluster(0), "all_gather", 32, 8, sizes=[2**n for n in range(24, 31)])
    (tmp_path / "out").write_text(run.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB200"))
    found = calibrate(CalibrationRequest(tmp_path, name="ours"))
    told = {one.path for one in found.found}
    assert "gb200-nvl72.nvlink.efficiency" in told
    assert not any("nic" in path for path in told)

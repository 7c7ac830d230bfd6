"""What an update takes on this machine, between 2 + 2 processes: figures, and the bounds that they
must not break."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import pytest

from reference.cluster.namespaces import obstacle
from reference.weight_sync.__main__ import main

NANO = ("nano", "--set", "parallel.expert=2", "--to", "replicas=2", "--bucket", "1MB")
LARGE = (
    *("nano", "--set", "parallel.expert=2", "--set", "train.precision=fp32"),
    *("--set", "model.hidden=768", "--set", "model.vocab=8192", "--set", "model.moe.width=384"),
    *("--to", "replicas=2"),
)
"""Of 238 MB."""


def figures(capsys: pytest.CaptureFixture[str], what: str, *words: str) -> dict[str, Any]:
    assert main([*words, "--lose", "1", "--repeat", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    size = told["payload_bytes"] / 1e6
    with capsys.disabled():
        print(f"\n{what}: {size:.1f} MB to 2 receivers, {told['buckets']} buckets")
        for stages in ("two", "three"):
            own = [one for one in told["updates"] if one["stages"] == stages and not one["lost"]]
            seconds = [one["seconds"] for one in own]
            by = {
                name: f"{median(one['by_stage'][name]['seconds'] for one in own):.3f}"
                for name in ("host_copy", "broadcast", "reload", "handover")
            }
            shown = ", ".join(f"{one:.3f}" for one in sorted(seconds))
            print(f"  {stages:<5} median {median(seconds):.3f} s ({shown}), of which {by}")
        (recovery,) = told["recoveries"]
        print(f"  recovered alone in {recovery['seconds']:.3f} s, {recovery['bytes'] / 1e6:.1f} MB")
    return told


@pytest.mark.benchmark
@pytest.mark.parametrize("wire", ["direct", "collective"])
def test_nano_over_loopback(wire: str, capsys: pytest.CaptureFixture[str]) -> None:
    figures(capsys, f"nano over loopback, {wire}", *NANO, "--wire", wire)


@pytest.mark.benchmark
def test_238_megabytes_over_loopback(capsys: pytest.CaptureFixture[str]) -> None:
    figures(capsys, "238 MB over loopback", *LARGE)


@pytest.mark.benchmark
def test_238_megabytes_over_links_take_the_links_time(capsys: pytest.CaptureFixture[str]) -> None:
    if why := obstacle():
        pytest.skip(why)
    told = figures(capsys, "238 MB over 1 Gbps", *LARGE, "--rate", "1Gbps")
    for one in told["updates"]:
        if not one["lost"]:
            # All of it comes over each receiver's link, and two owners send it all twice.
            assert one["seconds"] > 0.98 * told["payload_bytes"] / 125e6

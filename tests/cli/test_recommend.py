"""`twin recommend`: words, JSON, exit codes."""

from __future__ import annotations

import json

from tests.cli.conftest import Command
from tests.search.conftest import SMALL


def test_the_verb_says_it_in_words_and_ends_with_a_code(twin_command: Command) -> None:
    asked = ("recommend", "kimi-k2-256xh800", *(f"--set={one}" for one in SMALL), "--gpus", "16")
    few = ("--axis", "parallel.pipeline=2", "--axis", "parallel.expert=8", "--most", "2")
    done = twin_command(*asked, *few, "--jobs", "1")
    assert done.code == 0, done.err
    assert "Recommended for the fastest: 16 GPUs" in done.out
    assert "Why layouts were pruned" in done.out
    late = twin_command(*asked, *few, "--jobs", "1", "--target", "1s", "--json")
    assert late.code == 5
    assert json.loads(late.out)["recommended"] is None
    wrong = twin_command(*asked, "--target", "soon")
    assert wrong.code == 2
    assert "TW433" in wrong.err

"""What each verb prints, where, and how it exits."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from twin.cli import main as entry
from twin.cli.output import dumps
from twin.cli.verbs import verbs
from twin.loading.schema import scenario_schema
from twin.reports.table import bar

VERBS = tuple(verbs())


def test_run_answers_with_verdict_first_and_warnings_last(
    twin_command: Command, small: str
) -> None:
    done = twin_command("run", small)
    lines = [line for line in done.out.splitlines() if line]
    assert done.code == 0
    assert lines[0].startswith("Fits with ")
    assert "USD" in lines[0]
    titles = [
        "Key figures",
        "Where the step goes",
        "Memory of the fullest GPU",
        "Links",
        "Warnings",
    ]
    places = [next(i for i, line in enumerate(lines) if line.startswith(t)) for t in titles]
    assert places == sorted(places)
    assert lines[-1].startswith("  ")
    assert done.err == ""


def test_run_without_a_terminal_prints_no_escape_codes(twin_command: Command, small: str) -> None:
    assert "\x1b" not in twin_command("run", small).out


@pytest.mark.parametrize("verb", ["run", "check", "resolve"])
def test_json_is_one_versioned_document_alone_on_stdout(
    verb: str, twin_command: Command, small: str
) -> None:
    done = twin_command(verb, small, "--json")
    assert done.code == 0
    assert json.loads(done.out)["version"] == 1
    assert done.err == ""


def test_quiet_keeps_the_verdict_only(twin_command: Command, small: str) -> None:
    done = twin_command("run", small, "--quiet")
    assert done.out.startswith("Fits with ")
    assert len(done.out.splitlines()) == 1


def test_the_reproduce_command_gives_the_answer_again(twin_command: Command, small: str) -> None:
    first = json.loads(twin_command("run", small, "--set", "cost.gpu_hour=3USD", "--json").out)
    command = first["provenance"]["reproduce"]
    assert command == "twin run small.yaml --set cost.gpu_hour=3USD"
    again = json.loads(twin_command(*command.split()[1:], "--json").out)
    assert again["kpis"] == first["kpis"]


def test_set_reaches_the_answer(twin_command: Command, small: str) -> None:
    def cost(*words: str) -> float:
        return json.loads(twin_command("run", small, "--json", *words).out)["kpis"]["cost_usd"]

    assert cost("--set", "cost.gpu_hour=4USD") == pytest.approx(2 * cost())


def test_what_does_not_fit_is_answered_in_full_with_exit_4(
    twin_command: Command, small: str
) -> None:
    words = ("run", small, "--set", "parallel.micro_batch=4", "--set", "memory.recompute=[]")
    tight = (*words, "--set", "cluster.node.gpu.memory=24GiB")
    done = twin_command(*tight)
    assert done.code == 4
    assert done.out.startswith("Does not fit: stage 0 needs ")
    assert "Where the step goes" in done.out
    document = json.loads(twin_command(*tight, "--json").out)
    assert document["fits"] is False
    assert sum(document["breakdown_ns"].values()) == document["step_ns"]


@pytest.mark.slow
def test_check_names_the_nearest_plans_that_fit(twin_command: Command) -> None:
    words = ("check", "kimi-k2-256xh800", "--set", "parallel.pipeline=8")
    done = twin_command(*words)
    assert done.code == 4
    assert "--set parallel.pipeline=16" in done.out
    nearest = json.loads(twin_command(*words, "--json").out)["nearest"]
    assert {"parallel.pipeline": "16"} in [one["overrides"] for one in nearest]
    sets = [f"--set={path}={value}" for path, value in nearest[0]["overrides"].items()]
    assert twin_command(*words, *sets).code == 0


def test_check_says_what_fits_without_a_simulation(
    twin_command: Command, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("check must not simulate")

    monkeypatch.setattr("twin.engine.simulate", never)
    done = twin_command("check", small)
    assert done.code == 0
    assert done.out.startswith("Fits with ")
    assert "Layout of 16 GPUs" in done.out
    assert "Peak by stage" in done.out
    document = json.loads(twin_command("check", small, "--json").out)
    assert (document["valid"], document["fits"]) == (True, True)
    assert document["layout"]["ranks"] == 16


def test_check_and_run_agree_on_fit_memory_and_hash(twin_command: Command, small: str) -> None:
    for words, code in (([], 0), (["--set", "cluster.node.gpu.memory=24GiB"], 4)):
        run = twin_command("run", small, "--json", *words)
        check = twin_command("check", small, "--json", *words)
        assert run.code == check.code == code
        left, right = json.loads(run.out), json.loads(check.out)
        assert (left["fits"], left["memory"]) == (right["fits"], right["memory"])
        assert left["hash"] == right["hash"]


def test_compare_puts_the_baseline_first_and_says_what_changed(
    twin_command: Command, small: str, tmp_path: Path
) -> None:
    (tmp_path / "none.yaml").write_text(
        SMALL.replace("recompute: [full]", "recompute: [attention_core]").replace(
            "name: small", "name: selective"
        )
    )
    done = twin_command("compare", small, "none.yaml")
    assert done.code == 0
    assert re.match(r"selective: a step is .* faster than in small; ", done.out)
    assert "A  small (baseline)\nB  selective\n" in done.out
    assert "memory.recompute" in done.out
    words = ("compare", small, "none.yaml", "--json", "--no-attribution")
    document = json.loads(twin_command(*words).out)
    assert sum(document["breakdown_ns"].values()) == document["step_delta_ns"] < 0
    assert document["attribution"] is None


def test_a_training_run_and_a_weight_update_are_not_compared(
    twin_command: Command, small: str
) -> None:
    for words in ((small, "kimi-k2-weight-update-16xh20"), ("kimi-k2-weight-update-16xh20", small)):
        done = twin_command("compare", *words)
        assert (done.code, done.out) == (2, "")
        assert "`Kimi K2 weight update on 16 H20` is a weight update" in done.err
        assert "TW168" in done.err
        assert "`small` is a training run" in done.err


def test_resolve_says_where_every_value_came_from(twin_command: Command, small: str) -> None:
    done = twin_command("resolve", small, "--set", "cost.gpu_hour=3USD")
    assert done.code == 0
    lines = {line.split("#")[0].strip(): line for line in done.out.splitlines()}
    assert "small.yaml:9:13" in lines["pipeline: 2"]
    assert "--set cost.gpu_hour=3USD" in lines["gpu_hour: 3USD"]
    assert "default" in lines["zero: 1"]


def test_what_resolve_prints_is_a_scenario_with_the_same_answer(
    twin_command: Command, small: str, tmp_path: Path
) -> None:
    (tmp_path / "resolved.yaml").write_text(twin_command("resolve", small).out)
    first = json.loads(twin_command("check", small, "--json").out)
    again = json.loads(twin_command("check", "resolved.yaml", "--json").out)
    assert first["hash"] == again["hash"]


def test_every_resolved_leaf_has_an_origin_in_json(twin_command: Command, small: str) -> None:
    document = json.loads(twin_command("resolve", small, "--json").out)
    assert document["scenario"]["parallel"]["pipeline"] == 2
    assert document["origins"]["parallel.pipeline"] == "small.yaml:9:13"
    assert document["origins"]["parallel.zero"] == "default"


def test_a_bug_is_admitted_without_a_traceback(
    twin_command: Command, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody expected this")

    monkeypatch.setattr("twin.cli.run.load_any", broken)
    done = twin_command("run", small)
    assert done.code == 1
    assert "This is a bug in twin" in done.err
    assert "nobody expected this" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("TWIN_DEBUG", "1")
    assert "Traceback" in twin_command("run", small).err


def test_an_interrupt_exits_with_130(
    twin_command: Command, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("twin.cli.run.load_any", interrupted)
    assert twin_command("run", small).code == 130


def test_progress_is_shown_only_where_a_person_watches(
    twin_command: Command, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert twin_command("run", small).err == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for words, shown in (((), True), (("--quiet",), False)):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        assert entry.main(["run", small, *words]) == 0
        assert ("small" in screen.getvalue()) is shown


def test_schema_prints_what_a_file_may_hold(twin_command: Command) -> None:
    document = json.loads(twin_command("schema").out)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    wrapped = json.loads(twin_command("schema", "--json").out)
    assert wrapped == {"version": 1, "schema": document}
    page = twin_command("schema", "--format", "markdown").out
    assert page.startswith("# Fields of a scenario\n")
    wrapped = json.loads(twin_command("schema", "--format", "markdown", "--json").out)
    assert wrapped == {"version": 1, "markdown": page}
    assert twin_command("schema", "--format", "html").code == 2


def test_schema_knows_the_parts_beside_a_scenario(
    twin_command: Command, small: str, tmp_path: Path
) -> None:
    (tmp_path / "catalog" / "models").mkdir(parents=True)
    (tmp_path / "catalog" / "models" / "mine.yaml").write_text("kind: assumed\n")

    def models(*words: str) -> list[str]:
        document = json.loads(twin_command("schema", *words).out)
        return document["properties"]["model"]["anyOf"][0]["enum"]

    assert set(models(small)) - set(models()) == {"mine"}
    assert twin_command("schema", "nowhere.yaml").code == 2


@pytest.mark.parametrize("words", [[], ["--help"], *([verb, "--help"] for verb in VERBS)])
def test_help_is_plain_text_that_names_the_options(words: list[str], twin_command: Command) -> None:
    done = twin_command(*words)
    assert "Usage: twin" in done.out + done.err
    if words[1:]:
        assert "--json" in done.out
        assert "--quiet" in done.out


def test_flags_do_not_mirror_scenario_fields(twin_command: Command) -> None:
    """`--set` covers fields: a flag with the name of one would be a second way to say it."""
    document = scenario_schema()
    # What a sweep varies is no part of the run; a flag of `twin sweep` adds to it or replaces it.
    own = {name: one for name, one in document["$defs"].items() if name != "SweepSpec"}
    sections = [document, *own.values()]
    fields = {key for one in sections for key in one.get("properties", {})}
    # `calibrate` answers no scenario: its flags say what a table of step times leaves open.
    for verb in sorted(set(VERBS) - {"calibrate"}):
        flags = re.findall(r"--([a-z-]+)", twin_command(verb, "--help").out)
        if "set" not in flags:
            continue  # takes no scenario's fields
        # Of those that play many plans `--cluster` is who plays them, and `--gpus` sizes of the
        # whole cluster, not the one that is planned.
        many = {"cluster", "gpus"} if verb in ("sweep", "recommend") else set[str]()
        # Which rows of a suite are steps, and how layouts of the reference are run, is nothing that
        # a scenario's phase or iteration says.
        many |= {"steps", "mode"} if verb == "validate" else set[str]()
        flags = [flag for flag in flags if flag not in many]
        assert not fields & {flag.replace("-", "_") for flag in flags}


def test_ui_prints_its_command_as_json_and_starts_nothing(
    twin_command: Command, small: str
) -> None:
    document = json.loads(twin_command("ui", small, "--port", "8600", "--json").out)
    assert document["url"] == "http://localhost:8600"
    assert document["command"][-2] == "--"
    assert Path(document["command"][-1]) == Path(small).resolve()


def test_ui_without_its_extra_says_what_to_install(
    twin_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.cli.ui.find_spec", lambda _: None)
    done = twin_command("ui")
    assert done.code == 2
    assert "pip install 'twin[ui]'" in done.err


def test_a_closed_pipe_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    twin = Path(sys.executable).with_name("twin")
    done = subprocess.run(
        f"{twin} catalog models --json | head -c 1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


def test_a_name_that_looks_like_markup_is_shown_as_it_is(twin_command: Command, small: str) -> None:
    entry = '{name: "a[b] [/x] :smile:", bytes: 1GiB}'
    done = twin_command("run", small, "--set", f"cluster.node.gpu.reserve=[{entry}]")
    assert done.code == 0
    assert "reserve: a[b] [/x] :smile:" in done.out


def test_such_a_name_is_shown_beside_the_progress_bar(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert entry.main(["run", str(tmp_path / small), "--set", "name='a[/x]'"]) == 0
    assert "a[/x]" in screen.getvalue()


def test_json_is_ascii_whatever_it_holds() -> None:
    text = dumps({"name": "Zürich \ud83d\ude00"})
    assert text.isascii()
    assert json.loads(text) == {"name": "Zürich 😀"}


def test_version_is_said(twin_command: Command) -> None:
    done = twin_command("--version")
    assert (done.code, done.out) == (0, f"twin {version('twin')}\n")


COMMAND = [sys.executable, "-c", "import sys; from twin.cli.main import main; sys.exit(main())"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    with subprocess.Popen(
        [*COMMAND, "catalog", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == -signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk of Linux")
def test_a_full_disk_is_no_bug_of_ours() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "The answer cannot be written: No space left on device.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
@pytest.mark.parametrize(
    ("words", "code"), [("catalog >&-", 0), ("check none.yaml 2>&-", 2), ("catalog >&- 2>&-", 0)]
)
def test_a_closed_stream_is_no_bug_of_ours(words: str, code: int) -> None:
    line = f"{shlex.join(COMMAND)} {words}"
    done = subprocess.run(line, shell=True, check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_stream_that_lacks_a_character_gets_another(small: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "check", small, "--set", "name=Zürich"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "???" in done.stdout


def test_bars_show_anything_above_zero_and_stop_when_full() -> None:
    shares = (0, 0.001, 0.5, 0.5 + 1 / 64, 1, 1.5)
    assert [bar(one, 8) for one in shares] == ["", "▏", "████", "████▏", "█" * 8, "█" * 8]

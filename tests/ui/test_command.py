"""`twin ui` opens the app on a scenario that was checked as other verbs check it."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twin.cli.main import main
from twin.ui.scenarios import command_line, named, scenario_files
from twin.ui.sidebar import portable
from twin.ui.workspace import Draft, Workspace

SHIPPED = "gpt-175b-64xa100-full"


def test_a_file_is_handed_on_by_its_absolute_path(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(f"extends: {SHIPPED}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "mine.yaml", "--json"]) == 0
    words = json.loads(capsys.readouterr().out)["command"]
    assert words[-2:] == ["--", str(tmp_path / "mine.yaml")]
    script = Path(words[words.index("run") + 1])
    assert command_line([str(script), *words[-1:]]) == (str(tmp_path / "mine.yaml"),)


def test_what_the_app_needs_lies_inside_the_package(capsys):
    assert main(["ui", SHIPPED, "--json"]) == 0
    words = json.loads(capsys.readouterr().out)["command"]
    script = Path(words[words.index("run") + 1])
    assert script.parts[-3:] == ("twin", "ui", "router.py")
    assert (script.parent / ".streamlit" / "config.toml").is_file()
    assert words[-1] == SHIPPED


@pytest.mark.slow
def test_the_app_listens_on_this_machine_only_and_frees_its_port_on_sigterm():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    twin = Path(sys.executable).with_name("twin")
    with subprocess.Popen([twin, "ui", "--port", str(port)], stdout=subprocess.DEVNULL) as app:
        end = time.monotonic() + 60
        while not (found := _listening(port)) and time.monotonic() < end:
            time.sleep(0.1)
        assert found == ["0100007F"]  # 127.0.0.1
        app.terminate()
        app.wait(10)
    assert _listening(port) == []


def _listening(port: int) -> list[str]:
    """Addresses at which somebody listens, as /proc/net/tcp has them (proc_pid_net(5))."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1][:8] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"]


@pytest.mark.parametrize("verb", ["check", "ui"])
@pytest.mark.parametrize(
    ("text", "code"),
    [(f"extends: {SHIPPED}\nparallel: {{tensor: 7}}\n", 3), ("parallel: [\n", 3)],
    ids=["an impossible layout", "no YAML"],
)
def test_a_wrong_scenario_is_refused_as_by_other_verbs(verb, text, code, tmp_path, capsys):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    assert main([verb, str(file)]) == code
    assert "TW" in capsys.readouterr().err


def test_a_scenario_that_does_not_exist_or_comes_through_a_pipe_opens_nothing(capsys):
    assert main(["ui", "no-such-thing.yaml"]) == 2
    assert main(["ui", "-"]) == 2
    assert "standard input" in capsys.readouterr().err


def test_only_words_after_a_front_door_are_scenarios():
    assert command_line(["/somewhere/app.py", "a.yaml"]) == ("a.yaml",)
    assert command_line(["/bin/pytest", "a.yaml"]) == ()


def test_a_file_is_known_by_its_name_and_never_hides_a_shipped_scenario():
    assert named(("one", "two"), ("/a/folder/mine.yaml", "/a/folder/one")) == {
        "mine.yaml": "/a/folder/mine.yaml",
        "/a/folder/one": "/a/folder/one",
        "one": "one",
        "two": "two",
    }


def test_the_app_opens_on_what_it_was_command_line(monkeypatch, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: {SHIPPED}\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(file)])
    assert scenario_files().first == "mine.yaml"
    monkeypatch.setattr("sys.argv", ["app.py", SHIPPED])
    assert scenario_files().first == SHIPPED
    monkeypatch.setattr("sys.argv", ["app.py"])
    assert scenario_files().first == "kimi-k2-2048xh800"


def test_a_link_to_another_machine_carries_the_text_of_a_file_that_is_not_shipped(
    monkeypatch, tmp_path
):
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: {SHIPPED}\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(file)])
    space = Workspace((Draft("mine.yaml", "mine.yaml"), Draft(SHIPPED, SHIPPED)))
    mine, shipped = portable(space, scenario_files()).plans
    assert mine.text == f"extends: {SHIPPED}\n"
    assert shipped.text is None

"""A launch script of Megatron-LM as a plan: the script, the GPUs it runs on, what was read of it,
and whether it fits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import streamlit as st

from twin.arch.count import parameters
from twin.errors import Problem, UsageError, render
from twin.explore.search.new_plan import fabric_of, known_gpus, node_of
from twin.interop.importing.as_yaml import scenario_text
from twin.interop.importing.megatron import Launch, read_megatron_text
from twin.reports.table import count
from twin.ui import RESULT, session
from twin.ui.answers import Failure, checked, guarded
from twin.ui.place import ask_about, code, say_failure
from twin.ui.session import widget_key
from twin.ui.workspace import Draft

SECTION: Final = "Launch script"
"""The section's name."""
ENDINGS: Final = ("sh", "slurm", "sbatch", "txt", "args")
"""Of files that are launch scripts."""
_EXAMPLE: Final = Path(__file__).with_name("example_launch.sh")
_TEXT, _FILE, _GPU, _NODES, _VARIABLES, _MORE = "text", "file", "gpu", "nodes", "variables", "more"
_UPLOAD: Final = "launch script file"
_PASTED: Final = "launch.sh"
"""What a pasted script is called."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A launch script, and what it leaves open: its GPU, nodes (empty: as it says), values of its
    variables, and further arguments."""

    text: str
    file: str
    gpu: str
    nodes: str = ""
    variables: str = ""
    more: str = ""


@lru_cache(16)
def read(brought: Brought) -> tuple[Launch, Draft] | Failure:
    """What the script says, and its plan."""
    return guarded(lambda: _read(brought))


def _read(brought: Brought) -> tuple[Launch, Draft]:
    more = [brought.more] if brought.more else []
    launch = read_megatron_text(brought.text, brought.file, _defined(brought.variables), more)
    node, nodes = node_of(brought.gpu), brought.nodes or str(launch.nodes or "")
    if not nodes.isdecimal() or not int(nodes):
        fix = "write how many"
        raise UsageError([Problem("TW011", "nodes", "the script does not say its nodes", fix)])
    where = {"node": node, "nodes": int(nodes), "fabric": fabric_of(node)}
    text = scenario_text(launch, where, brought.file)
    return launch, Draft(launch.name, f"{launch.name}.yaml", text)


def _defined(words: str) -> Mapping[str, str]:
    """Variables of `PP=4 EP=8`."""
    found: dict[str, str] = {}
    for word in shlex.split(words):
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            problem = Problem("TW014", "variables", f"`{word}` is no variable", "write NAME=VALUE")
            raise UsageError([problem])
        found[name] = value
    return found


def take(file: str, text: str) -> None:
    """Show a script that the visitor brought."""
    session.brought().update({_TEXT: text, _FILE: file, _VARIABLES: "", _MORE: "", _NODES: ""})


def launch_section() -> None:
    """The script with its fields, and beside them what was read."""
    typed = session.brought()
    if not typed:
        typed |= {_TEXT: _EXAMPLE.read_text(encoding="utf-8"), _FILE: "llama3-70b.sh", _GPU: "H100"}
    brought = Brought(**typed)
    found = read(brought)
    left, right = st.columns(2, gap="large")
    with left:
        _form(typed, complete=not isinstance(found, Failure))
    with right:
        _say(brought, found)


def _form(typed: Mapping[str, str], *, complete: bool) -> None:
    st.markdown("Upload or paste a launch script of Megatron-LM. No line of it is executed.")
    st.file_uploader(
        "Upload a launch script", list(ENDINGS), key=_UPLOAD, on_change=_upload, width="stretch"
    )
    key = widget_key("launch text", typed[_TEXT])
    st.text_area(
        "or paste it here", typed[_TEXT], key=key, height=260, on_change=_pasted, args=(key,)
    )
    gpus = known_gpus()
    key = widget_key("launch gpu", typed[_GPU])
    st.selectbox(
        "GPU",
        gpus,
        gpus.index(typed[_GPU]),
        key=key,
        on_change=_typed,
        args=(_GPU, key),
        help="A script does not name it. The usual node and fabric of this GPU are taken.",
    )
    with st.expander("Nodes, variables and further arguments", expanded=not complete):
        _field(_NODES, "Nodes", "as the script says", typed)
        _field(_VARIABLES, "Variables", "PP=4 EP=8", typed)
        _field(_MORE, "Further arguments", "--vocab-size 128256", typed)


def _field(name: str, label: str, example: str, typed: Mapping[str, str]) -> None:
    now = typed.get(name, "")
    key = widget_key(f"launch {name}", now)
    st.text_input(label, now, key=key, placeholder=example, on_change=_typed, args=(name, key))


def _say(brought: Brought, found: tuple[Launch, Draft] | Failure) -> None:
    """What was read, whether it fits, and the way to the plan; or what is missing."""
    if isinstance(found, Failure):
        problems = getattr(found, "problems", ())
        if not problems:
            say_failure("The script cannot be read.", found)
            return
        st.error("The script leaves something open. Fill it in on the left.")
        code(render(problems).replace("--define ", "Variables: ").replace("--with ", "arguments: "))
        return
    launch, draft = found
    st.markdown(f"**{_summary(launch)}**")
    asked = ask_about(draft)
    check = checked(asked)
    if isinstance(check, Failure):
        say_failure(f"{launch.name} has an impossible layout.", check)
    else:
        (st.success if check.fits else st.error)(check.sentences[0])
    if st.button("Open the plan", type="primary", icon=":material/arrow_forward:"):
        session.change(lambda on: on.opened(draft))
        st.switch_page(RESULT)
    st.caption("Its page Result shows what holds the memory, and the nearest plans that fit.")
    if launch.remarks:
        st.markdown(
            "\n".join(["Left out or assumed:", "", *(f"- {one}" for one in launch.remarks)])
        )
    st.caption("The same on the command line:")
    node = node_of(brought.gpu)
    words = ["twin", "import", "megatron", brought.file, "--node", node]
    words += ["--fabric", fabric_of(node), "-o", draft.scenario]
    st.code(shlex.join(words), language="shell", wrap_lines=True)


def _summary(launch: Launch) -> str:
    """The model, the layout and the batch in a sentence."""
    parallel, train = launch.parallel, launch.train
    degrees = [
        f"{name} {degree}"
        for name in ("tensor", "context", "pipeline", "virtual", "expert")
        if (degree := getattr(parallel, name)) > 1
    ]
    return (
        f"{launch.name}: {count(parameters(launch.model).total)} parameters, "
        f"{', '.join(degrees) or 'data parallel only'}, "
        f"{train.global_batch_sequences:,} sequences of {train.sequence:,} tokens per step."
    )


def _upload() -> None:
    file: Any = st.session_state[_UPLOAD]
    if file is not None:
        take(file.name, file.getvalue().decode("utf-8-sig", errors="replace"))


def _pasted(key: str) -> None:
    take(_PASTED, st.session_state[key] or "")


def _typed(name: str, key: str) -> None:
    session.brought()[name] = (st.session_state[key] or "").strip()

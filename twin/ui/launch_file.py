"""A file of another program as a plan: what it is, the GPUs that it runs on, what was read and what
is left out of it, and whether it fits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.arch.count import parameters
from twin.errors import Problem, UsageError, render
from twin.explore.search.new_plan import fabric_of, known_gpus, node_of
from twin.interop.importing.as_yaml import catalog_part, scenario_text
from twin.interop.importing.formats import CARD, MODEL, format_of, reader
from twin.interop.importing.hf_config import Imported, read_hf_text
from twin.interop.importing.launch import Launch, Source, stem_of
from twin.interop.recognise import formats, recognised
from twin.interop.tables import words_of
from twin.loading import catalog_parts, load_part
from twin.loading.files import content
from twin.reports.table import count, duration
from twin.ui import NEW, RESULT, session
from twin.ui.answers import Failure, checked, guarded
from twin.ui.place import ask_about, code, replied, say_failure, waiting
from twin.ui.question import CONFIG, FILE, OWN, example, first_typed
from twin.ui.session import widget_key
from twin.ui.workspace import Draft

SECTION: Final = "Import"
"""The section's name."""
_EXAMPLE: Final = Path(__file__).with_name("example_launch.sh")
_TEXT, _FILE, _GPU, _NODES, _MODEL = "text", "file", "gpu", "nodes", "architecture"
_VARIABLES, _MORE = "variables", "more"
_UPLOAD: Final = "file of another program"
_PASTED: Final = "launch"
"""What a pasted text is called."""
_LARGEST: Final = 10
"""Megabytes of a file that is brought, unpacked: OURS, beyond all that people write."""
_AS_IT_SAYS: Final = "as the file says"


@dataclass(frozen=True, slots=True)
class Brought:
    """A text, and what it leaves open: its GPU, nodes (empty: as it says), its model by a name of
    the catalog, values of its variables, and further arguments."""

    text: str
    file: str
    gpu: str
    nodes: str = ""
    architecture: str = ""
    variables: str = ""
    more: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """The format of a text, what it says, and its plan."""

    format: str
    launch: Launch
    draft: Draft


@lru_cache(16)
def read(brought: Brought) -> Read | Imported | Failure:
    """What a text says: a launch, or a model alone."""
    return guarded(lambda: _read(brought))


def _read(brought: Brought) -> Read | Imported:
    source = Source(brought.text, brought.file)
    form = format_of(source)
    if form == MODEL:
        stem = stem_of(brought.file)
        name = "my-model" if stem in ("config", _PASTED) else stem
        return read_hf_text(brought.text, brought.file, name)
    known = replace(
        source,
        defined={**({"GPU": brought.gpu} if form == CARD else {}), **_defined(brought.variables)},
        more=[brought.more] if brought.more else [],
        model=load_part("models", brought.architecture).spec if brought.architecture else None,
        gpus=_gpus(brought),
    )
    launch = reader(form)(known)
    node = (launch.measured and launch.measured.node) or node_of(brought.gpu)
    nodes = brought.nodes or str(launch.nodes or "")
    if not nodes.isdecimal() or not int(nodes):
        fix = "write how many"
        raise UsageError([Problem("TW011", "nodes", "the file does not say its nodes", fix)])
    where = {"node": node, "nodes": int(nodes), "fabric": fabric_of(node)}
    text = scenario_text(launch, where, brought.file, form)
    own, each = launch.gpus_per_node, load_part("nodes", node).spec.gpus
    edits = (("cluster.node.gpus", str(own)),) if form == CARD and own not in (None, each) else ()
    return Read(form, launch, Draft(launch.name, f"{launch.name}.yaml", text, edits))


def _gpus(brought: Brought) -> int | None:
    """Of all nodes; None where the visitor did not say how many there are."""
    if not brought.nodes.isdecimal():
        return None
    return int(brought.nodes) * load_part("nodes", node_of(brought.gpu)).spec.gpus


def _defined(words: str) -> Mapping[str, str]:
    """Variables of `PP=4 EP=8`."""
    found: dict[str, str] = {}
    for word in words_of([words], "variables"):
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            problem = Problem("TW014", "variables", f"`{word}` is no variable", "write NAME=VALUE")
            raise UsageError([problem])
        found[name] = value
    return found


def take(file: str, data: bytes) -> bool:
    """Show a file that the visitor brought; False where it is a scenario, or no file of another
    program that is known."""
    with content(BufferedReader(BytesIO(data))) as unpacked:
        text = unpacked.read(_LARGEST << 20).decode("utf-8-sig", errors="replace")
    found = recognised(text.encode())
    if not found or any("run" in one.uses for one in found):
        return False
    _show(file, text)
    return True


def _show(file: str, text: str) -> None:
    kept = {key: value for key, value in session.brought().items() if key == _GPU}
    session.brought().clear()
    session.brought().update({_GPU: "H100", **kept, _TEXT: text, _FILE: file})


def launch_section() -> None:
    """The text with its fields, and beside them what was read."""
    typed = session.brought()
    if not typed:
        typed |= {_TEXT: _EXAMPLE.read_text(encoding="utf-8"), _FILE: "llama3-70b.sh", _GPU: "H100"}
    brought = Brought(**typed)
    found = read(brought)
    left, right = st.columns(2, gap="large")
    with left:
        _form(typed, complete=not isinstance(found, Failure))
    with right:
        if isinstance(found, Imported):
            _say_model(brought, found)
        elif isinstance(found, Read):
            _say(brought, found)
        else:
            _say_open(found)


def _form(typed: Mapping[str, str], *, complete: bool) -> None:
    st.markdown(
        "Upload or paste a file of another program. No line of it is executed. "
        "It is recognised by its content:"
    )
    words = [one.words for one in formats().values() if "import" in one.uses]
    st.caption(f"{', '.join(words)}. Slurm scripts and gzipped files are read as well.")
    st.file_uploader(
        "Upload a file", key=_UPLOAD, on_change=_upload, width="stretch", max_upload_size=_LARGEST
    )
    key = widget_key("launch text", typed[_TEXT])
    st.text_area(
        "or paste it here", typed[_TEXT], key=key, height=260, on_change=_pasted, args=(key,)
    )
    _choice(_GPU, "GPU", known_gpus(), typed, "The usual node and fabric of this GPU are taken.")
    with st.expander("Nodes, model, variables and further arguments", expanded=not complete):
        _field(_NODES, "Nodes", _AS_IT_SAYS, typed)
        _choice(_MODEL, "Model", ("", *catalog_parts("models")), typed)
        _field(_VARIABLES, "Variables", "PP=4 EP=8", typed)
        _field(_MORE, "Further arguments", "--vocab-size 128256", typed)


def _choice(
    name: str, label: str, options: tuple[str, ...], typed: Mapping[str, str], words: str = ""
) -> None:
    key = widget_key(f"launch {name}", typed.get(name, ""))
    st.selectbox(
        label,
        options,
        options.index(typed.get(name, "")),
        format_func=lambda one: one or _AS_IT_SAYS,
        key=key,
        on_change=_typed,
        args=(name, key),
        help=words or None,
    )


def _field(name: str, label: str, example: str, typed: Mapping[str, str]) -> None:
    now = typed.get(name, "")
    key = widget_key(f"launch {name}", now)
    st.text_input(label, now, key=key, placeholder=example, on_change=_typed, args=(name, key))


_OPTIONS: Final = {
    "--define ": "Variables: ",
    "--with ": "arguments: ",
    "--architecture NAME or its config.json": "choose the model",
    "--architecture ": "Model: ",
    "--nodes ": "Nodes: ",
}
"""Options of the command, and what the fields are called."""


def _say_open(found: Failure) -> None:
    """What is missing, or why a text cannot be read."""
    problems = getattr(found, "problems", ())
    if not problems:
        say_failure("The file cannot be read.", found)
        return
    if any(one.code == "TW041" for one in problems):
        st.error("This is no file that can be imported.")
    else:
        st.error("The file leaves something open. Fill it in on the left.")
    words = render(problems)
    for option, label in _OPTIONS.items():
        words = words.replace(option, label)
    code(words)


def _say_model(brought: Brought, found: Imported) -> None:
    """A model alone: its size, its part of a catalog, and the way to a plan of it."""
    own = parameters(found.model)
    st.markdown(
        f"**{found.model.name}: {count(own.total)} parameters, {found.model.layers} layers.** "
        "It is a model alone: say how many tokens and by when."
    )
    if st.button("Plan its training", type="primary", icon=":material/arrow_forward:"):
        typed = session.typed()
        typed |= typed or first_typed(example()[0])
        typed |= {OWN: "yes", CONFIG: brought.text, FILE: brought.file}
        st.switch_page(NEW)
    _say_remarks(found.warnings)
    with st.expander("As a part of a catalog (YAML)", icon=":material/code:"):
        st.code(catalog_part(found.model, brought.file), language="yaml")
    _say_command(brought, f"{found.model.name}.yaml")


def _say(brought: Brought, found: Read) -> None:
    """What was read, whether it fits, and the way to the plan."""
    launch, draft = found.launch, found.draft
    st.markdown(f"**{_summary(launch)}** This is {formats()[found.format].words}.")
    asked = ask_about(draft)
    check = checked(asked)
    if isinstance(check, Failure):
        say_failure(f"{launch.name} has an impossible layout.", check)
    else:
        (st.success if check.fits else st.error)(check.sentences[0])
    if launch.measured is not None:
        _say_measured(launch.measured.step_seconds, draft)
    if st.button("Open the plan", type="primary", icon=":material/arrow_forward:"):
        session.change(lambda on: on.opened(draft))
        st.switch_page(RESULT)
    st.caption("Its page Result shows what holds the memory, and the nearest plans that fit.")
    st.markdown(launch.tally.words)
    _say_remarks(launch.remarks)
    node = node_of(brought.gpu)
    _say_command(brought, draft.scenario, "--node", node, "--fabric", fabric_of(node))


def _say_measured(seconds: float, draft: Draft) -> None:
    """What a file measured beside its recipe, and the prediction."""
    reply = replied(ask_about(draft))
    with st.container(horizontal=True, gap="medium"):
        st.metric("Measured step", duration(seconds), width=180)
        if isinstance(reply.now, Run):
            said = reply.now.report.kpis["step_seconds"]
            ratio = f"{said / seconds:.2f} x measured"
            st.metric("Predicted step", duration(said), ratio, "off", width=180)
    if reply.coming is not None:
        waiting(f"{draft.title} is being simulated.", reply.coming)


def _say_remarks(remarks: tuple[str, ...]) -> None:
    if remarks:
        st.markdown("\n".join(["Left out or assumed:", "", *(f"- {one}" for one in remarks)]))


def _say_command(brought: Brought, output: str, *words: str) -> None:
    """The same on the command line."""
    st.caption("The same on the command line:")
    said = {
        "--nodes": brought.nodes,
        "--architecture": brought.architecture,
        "--with": brought.more,
    }
    more = [word for option, value in said.items() if value for word in (option, value)]
    more += [word for one in shlex.split(brought.variables) for word in ("--define", one)]
    command = shlex.join(["twin", "import", brought.file, *words, *more, "-o", output])
    st.code(command, language="shell", wrap_lines=True)


def _summary(launch: Launch) -> str:
    """The model, the layout and the batch in a sentence."""
    train = launch.train
    return (
        f"{launch.name}: {count(parameters(launch.model).total)} parameters, {launch.summary}, "
        f"{train.global_batch_sequences:,} sequences of {train.sequence:,} tokens per step."
    )


def _upload() -> None:
    file: Any = st.session_state[_UPLOAD]
    if file is not None and not take(file.name, file.getvalue()):
        _show(file.name, file.getvalue().decode("utf-8-sig", errors="replace"))


def _pasted(key: str) -> None:
    _show(_PASTED, st.session_state[key] or "")


def _typed(name: str, key: str) -> None:
    session.brought()[name] = (st.session_state[key] or "").strip()

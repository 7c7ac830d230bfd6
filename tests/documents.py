"""The JSON documents of the verbs against their schemas in `twin/cli/documents`, and how those are
made: `python -m tests.documents` runs the tests of the verbs, and infers a schema from what every
verb wrote (genson). A schema that changes needs a new `version` where a reader would notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from twin.cli.schema import ANSWERS, PARTS, answer_schema, answering

RECORD: Final = "TWIN_RECORD_DOCUMENTS"
"""The variable that names a folder for every document, and switches their check off."""
_TESTS: Final = (
    "answers",
    "cli",
    "evidence",
    "explore",
    "interop",
    "kinds",
    "reports",
    "ui/test_command.py",
)
"""Where tests run verbs in this process."""
_ELSEWHERE: Final = {
    "scenario": "a whole scenario, or its name: `twin schema`",
    "schema": "a JSON Schema",
    "report": "as `twin run --json` prints it",
    "reports": "each as `twin run --json` prints it",
    "numbers": "every number of a part of the catalog, with its source",
    "values": "a part of the catalog: `twin schema`",
}
"""Sections that have a schema of their own, by key."""


def _by_figure(values: Mapping[str, Any]) -> Mapping[str, Any]:
    words = "by key figure, in the unit of its name; null: unknown, and `unknown` says why"
    return {"type": "object", "description": words, "additionalProperties": values}


_KNOWN: Final[Mapping[str, Any]] = {
    "kpis": _by_figure({"type": ["number", "object", "null"]}),
    "intervals": _by_figure({"type": ["array", "object", "null"], "items": {"type": "number"}}),
    **{key: {"description": words} for key, words in _ELSEWHERE.items()},
}
"""Schemas of sections that stand in many answers, by key."""
_WIDTH: Final = 180
"""Characters of a line of a schema."""
_SHARED: Final = 90
"""Characters from which a part that stands in several places is written once, under `$defs`."""
_PLACES: Final = frozenset({"properties", "items", "anyOf", "additionalProperties"})
"""Words of a schema under which parts stand that have no key of their own."""
_FORMS: Final = ("kind", "format", "topic")
"""Keys that say which of several forms a document has."""


@cache
def validator(verb: str) -> Draft202012Validator:
    """The check of one verb's documents."""
    return Draft202012Validator(answer_schema(verb))


def seen(verb: str, document: Mapping[str, Any]) -> None:
    """Check a document, as it is written; where documents are recorded, keep it."""
    text = json.dumps(document)
    if folder := os.environ.get(RECORD):
        Path(folder, f"{verb}-{sha256(text.encode()).hexdigest()[:16]}.json").write_text(text)
        return
    validator(verb).validate(json.loads(text))


def schema(verb: str, documents: list[Any]) -> dict[str, Any]:
    """The schema of all documents of a verb: one form per kind where there are several."""
    from genson import SchemaBuilder  # noqa: PLC0415  only schemas are made with it

    forms: dict[str, Any] = defaultdict(SchemaBuilder)
    versions = {document["version"] for document in documents}
    for document in documents:
        name = next((str(document[key]) for key in _FORMS if key in document), "")
        forms[name].add_object(document)
    made = [_form(name, one.to_schema()) for name, one in sorted(forms.items())]
    whole = made[0] if len(made) == 1 else {"anyOf": made, "properties": {}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The answer of `twin {verb} --json`",
        **whole,
        "properties": whole["properties"] | {"version": {"enum": sorted(versions)}},
    }


def _form(name: str, inferred: dict[str, Any]) -> dict[str, Any]:
    inferred.pop("$schema")
    plain = _simplified(inferred)
    known = {key: {"const": name} for key in _FORMS if name and key in plain["properties"]}
    return {**plain, "properties": plain["properties"] | known | {"version": {}}}


def _known(key: str, part: Any) -> Any:
    """The schema of a section by its key. A summary counts `intervals`; those are no section."""
    return None if isinstance(part, dict) and part.get("type") == "integer" else _KNOWN.get(key)


def _simplified(part: Any) -> Any:
    """A part of an inferred schema: names that are data become a map, whole numbers are numbers."""
    if isinstance(part, list):
        return [_simplified(one) for one in part]
    if not isinstance(part, dict):
        return part
    done = {key: _simplified(value) for key, value in part.items()}
    if "properties" in done:
        done["properties"] = {
            key: _known(key, one) or _simplified(one) for key, one in part["properties"].items()
        }
        if (values := _of_names(done)) is not None:
            done = {"type": "object", "additionalProperties": values}
    kind = done.get("type")
    if kind == "null":  # nothing else was seen
        return {}
    if kind == "integer":
        done["type"] = "number"
    elif isinstance(kind, list):
        done["type"] = sorted({"number" if one == "integer" else one for one in kind})
    return done


def _of_names(part: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the values of an object whose keys are data: paths, names or words; None where
    keys are fields."""
    fields = list(part["properties"].values())
    alike = all(one == fields[0] for one in fields)
    words = not all(key.isidentifier() for key in part["properties"])
    if not words and (not alike or set(part.get("required", ())) == set(part["properties"])):
        return None
    return fields[0] if alike else {}


def shared(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas whose parts that stand in several places are written once, the largest first, each
    under the first key that has it; beside them, as `parts`, those by name."""
    trees: dict[str, Any] = {}
    rolled = _rolled(json.loads(json.dumps(schemas, sort_keys=True)), "", trees)
    whole: dict[str, Any] = {"": rolled, **trees}
    while repeated := [item for item in _places(whole).items() if len(item[1]) > 1]:
        text, keys = max(repeated, key=lambda item: (len(item[0]), item[0]))
        numbered = (f"{keys[0]}_{number}" for number in count(2))
        name = next(name for name in chain(keys[:1], numbered) if name not in whole)
        whole = {key: _referring(part, text, name) for key, part in whole.items()}
        whole[name] = json.loads(text)
    return {**whole.pop(""), PARTS.stem: whole}


def _rolled(part: Any, key: str, trees: dict[str, Any]) -> Any:
    """A schema in which a node whose children have its own fields refers to itself for them,
    however deep the trees were that were seen."""
    if isinstance(part, list):
        return [_rolled(one, key, trees) for one in part]
    if not isinstance(part, dict):
        return part
    fields = part.get("properties", {})
    child = fields.get("children", {}).get("items", {})
    if child and ("$ref" in child or child.get("properties", {}).keys() == fields.keys()):
        reference = {"$ref": f"#/$defs/{key}"}
        children = {"items": reference, "type": "array"}
        trees[key] = {**part, "properties": {**fields, "children": children}}
        return reference
    return {
        name: _rolled(value, key if name in _PLACES else name, trees)
        for name, value in part.items()
    }


def expanded(part: Any, parts: Mapping[str, Any]) -> Any:
    """A schema with the part itself wherever it refers to one, but inside of itself."""
    if isinstance(part, list):
        return [expanded(one, parts) for one in part]
    if not isinstance(part, dict):
        return part
    name = part.get("$ref", "").rpartition("/")[2]
    if name in parts:
        return expanded(parts[name], {key: one for key, one in parts.items() if key != name})
    return {key: expanded(value, parts) for key, value in part.items() if key != "$defs"}


def _places(part: Any, key: str = "") -> dict[str, list[str]]:
    """The text of each part long enough to be written once: the keys under which it stands."""
    places: dict[str, list[str]] = defaultdict(list)
    if isinstance(part, dict) and "type" in part and len(text := json.dumps(part)) >= _SHARED:
        places[text].append(key)
    values = part.items() if isinstance(part, dict) else [(key, one) for one in part]
    for name, value in values:
        if isinstance(value, dict | list):
            found = _places(value, key if name in _PLACES else name)
            for text, keys in found.items():
                places[text] += keys
    return places


def _referring(part: Any, text: str, name: str) -> Any:
    """A part with a reference to `name` wherever it has the schema of this text."""
    if isinstance(part, list):
        return [_referring(one, text, name) for one in part]
    if not isinstance(part, dict):
        return part
    if json.dumps(part) == text:
        return {"$ref": f"#/$defs/{name}"}
    return {key: _referring(value, text, name) for key, value in part.items()}


def dumped(part: Any, indent: int = 0) -> str:
    """JSON text in sorted order; what fits on a line stays on it."""
    line = json.dumps(part, sort_keys=True)
    if len(line) + indent <= _WIDTH or not isinstance(part, dict | list):
        return line
    begin, end = "{}" if isinstance(part, dict) else "[]"
    keys = [f"{json.dumps(key)}: " for key in sorted(part)] if isinstance(part, dict) else None
    values = [part[key] for key in sorted(part)] if isinstance(part, dict) else part
    inner = (dumped(one, indent + 1) for one in values)
    lines = (key + one for key, one in zip(keys or [""] * len(values), inner, strict=True))
    space = "\n" + " " * (indent + 1)
    return f"{begin}{space}{(',' + space).join(lines)}\n{' ' * indent}{end}"


def main() -> int:
    """Run the tests of the verbs, and write the schemas."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {RECORD: folder}
        tests = [f"tests/{name}" for name in _TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *tests]
        code = subprocess.run(command, check=False, env=environment).returncode
        found: dict[str, list[Any]] = defaultdict(list)
        for path in sorted(Path(folder).glob("*.json")):
            found[path.stem.rpartition("-")[0]].append(json.loads(path.read_text()))
    known = {verb: answer_schema(verb) for verb in answering()}
    schemas = {verb: expanded(one, one.get("$defs", {})) for verb, one in known.items()}
    for verb, documents in found.items():
        schemas[verb] = schema(verb, documents)
        print(f"{verb}: {len(documents)} documents")
    write(schemas)
    return code


def write(schemas: Mapping[str, Any]) -> None:
    """Write the schemas of all verbs."""
    for name, one in shared(schemas).items():
        (ANSWERS / f"{name}.json").write_text(f"{dumped(one)}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

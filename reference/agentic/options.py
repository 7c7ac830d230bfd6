"""What tools of real services have besides their purpose: options that change no result, and a
remark on use. They make schemas and words of tools differ as those of real tools do."""

from __future__ import annotations

from typing import Any, Final

from reference.agentic.chance import drawn

_TEXT: Final = {"type": "string"}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "language": {"type": "string", "pattern": "^[a-z]{2}$", "description": "Of messages."},
    "timezone": {"type": "string", "description": "IANA name, such as Europe/Oslo."},
    "request_key": {"type": "string", "minLength": 8, "maxLength": 64},
    "trace": {"type": "boolean", "default": False, "description": "Log how the call went."},
    "output": {"type": "string", "enum": ["compact", "pretty"], "default": "compact"},
    "lane": {"type": "string", "enum": ["batch", "interactive", "realtime"]},
    "client": {
        "type": "object",
        "properties": {"app": _TEXT, "version": {"type": "string", "pattern": "^[0-9.]+$"}},
        "required": ["app"],
        "description": "Which program asks.",
    },
    "max_wait_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 120},
    "on_behalf_of": {"type": ["string", "null"], "description": "Whose rights are used."},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    "callback": {"type": "string", "format": "uri", "description": "Told when all is done."},
    "tries": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
    "watchers": {"type": "array", "items": {"type": "string", "format": "email"}, "maxItems": 5},
    "ticket": {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^T-"}],
        "description": "Number of the request that this belongs to.",
    },
    "origin": {
        "type": "object",
        "properties": {"desk": {"type": "string"}, "floor": {"type": "integer"}},
        "additionalProperties": False,
    },
    "cache": {"type": "string", "enum": ["use", "skip", "refresh"], "description": "Of answers."},
}
_REMARKS: Final = (
    "Limited to sixty calls a minute.",
    "Every call is logged with the caller.",
    "Needs the desk role.",
    "Times are local.",
    "Slow in the first week of a month.",
    "Answers are never older than a minute.",
    "Part of the second generation of this interface.",
    "Not available while books are closed.",
    "Amounts are in euro unless said otherwise.",
    "Works on live data, there is no sandbox.",
    "Prefer this over the web form.",
    "Access is checked for every field.",
)


def options_of(name: str) -> dict[str, Any]:
    """None to three options of the tool of this name, always the same."""
    draw = drawn("options", name)
    chosen = draw.sample(list(_OPTIONS), draw.choice((0, 1, 1, 2, 2, 3)))
    return {one: _OPTIONS[one] for one in chosen}


def remark_of(name: str) -> str:
    """None to two sentences on the tool of this name, always the same; each begins with a space."""
    draw = drawn("remark", name)
    return "".join(f" {one}" for one in draw.sample(_REMARKS, draw.choice((0, 1, 1, 2))))

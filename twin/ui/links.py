"""A workspace as the query of a link, and back: pure functions, so that old links keep working.

    ?v=1&plan=kimi-k2-256xh800;parallel.pipeline=8&plan=kimi-k2-512xh800&open=1&baseline=0

`section=` names the section of the page, `run=` a real run. Old links have a weight update under
`update=`, written as a plan is.

A plan is its scenario, then its edits, between semicolons; what would be mistaken for one of these
signs is percent-encoded. Parts that begin with `!` are the plan's own name, and the text of a
scenario that the visitor brought: deflated, in URL-safe base 64.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import quote, unquote, urlencode

from twin.ui.workspace import MOST_PLANS, Draft, Workspace

VERSION: Final = 1
"""Version of the format; it grows when an old link would be read wrongly."""
KNOWN: Final = ("v", "plan", "update", "open", "baseline", "section", "run")
"""Parameters of a link to plans."""
_UPDATE: Final = "update"
"""The parameter of a plan that is a weight update, in old links."""
COMFORTABLE: Final = 1_800
"""Characters of a link up to which every program that passes links on keeps them whole."""
LONGEST: Final = 12_000
"""Characters of a query that servers take."""
_SHOWN: Final = 40
"""Characters of a name that a message repeats."""
_MOST_TEXT: Final = 200_000
"""Bytes of a scenario's text in a link."""
_PLAIN: Final = " ,:[]{}/.()"
"""Signs that stay as they are in a part."""

Query = Mapping[str, Sequence[str]]
"""Parameters of a link, each with its values in order."""


class BrokenLinkError(ValueError):
    """The link says nothing that the app can open; the message says why."""


def encode(workspace: Workspace, **others: str | None) -> dict[str, list[str]]:
    """The parameters of a link that opens this workspace, and `others` that are known."""
    query = {"v": [str(VERSION)], "plan": [_written(plan) for plan in workspace.plans]}
    if workspace.shown:
        query["open"] = [str(workspace.shown)]
    if workspace.baseline is not None:
        query["baseline"] = [str(workspace.baseline)]
    return query | {key: [value] for key, value in others.items() if value is not None}


def decode(query: Query) -> Workspace:
    """The workspace that a link opens. A link written by hand may leave the version out.

    Raises `BrokenLinkError` with the reason where there is none."""
    version = _number(query, "v")
    if version is not None and version > VERSION:
        raise BrokenLinkError(
            f"It was made by a newer twin (link format {version}; this one reads up to {VERSION})."
        )
    updates = query.get(_UPDATE, ())[-1:]
    plans = tuple(_read(text) for text in (*query.get("plan", ()), *updates))
    if not plans:
        raise BrokenLinkError("It names no plan.")
    if len(plans) > MOST_PLANS:
        raise BrokenLinkError(f"It has {len(plans)} plans, where {MOST_PLANS} fit.")
    if len({plan.name for plan in plans}) < len(plans):
        raise BrokenLinkError("Two of its plans have the same name.")
    shown, baseline = _number(query, "open") or 0, _number(query, "baseline")
    shown = len(plans) - 1 if updates else shown
    for index in (shown, baseline):
        if index is not None and index >= len(plans):
            raise BrokenLinkError(f"It means plan {index + 1} of {len(plans)}.")
    return Workspace(plans, shown, baseline)


def left_out(query: Query) -> str:
    """What a link to plans says that nobody knows, in words; empty where there is nothing."""
    unknown = [key for key in query if key not in KNOWN]
    near = [found for key in unknown for found in get_close_matches(key, KNOWN, 1)]
    names = ", ".join(f"`{key[:_SHOWN]}`" for key in unknown)
    hint = f" Did you mean {' and '.join(f'`{one}`' for one in near)}?" if near else ""
    return f"It says {names}, which this app does not know and leaves out.{hint}" if names else ""


def last(query: Query, key: str) -> str | None:
    """The last value of a parameter; None where there is none."""
    values = query.get(key, ())
    return values[-1] if values else None


def address(url: str, workspace: Workspace, section: str | None) -> str:
    """The whole link: the page's address with the workspace."""
    query = encode(workspace, section=section)
    return f"{url.partition('?')[0]}?{urlencode(query, doseq=True, safe=';,:=()[]!')}"


def _written(plan: Draft) -> str:
    parts = [_quoted(plan.scenario)]
    if plan.name != plan.scenario:
        parts.append(f"!name={_quoted(plan.name)}")
    if plan.text is not None:
        packed = urlsafe_b64encode(zlib.compress(plan.text.encode(), 9)).decode()
        parts.append(f"!text={packed.rstrip('=')}")
    parts += [f"{_quoted(path)}={_quoted(value)}" for path, value in plan.edits]
    return ";".join(parts)


def _read(text: str) -> Draft:
    first, *parts = text.split(";")
    scenario = unquote(first, errors="strict") if _is_text(first) else ""
    if not scenario:
        raise BrokenLinkError("One of its plans names no scenario.")
    own = {"!name": scenario, "!text": ""}
    edits: list[tuple[str, str]] = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not _is_text(part):
            raise BrokenLinkError(f"The part `{part[:60]}` is no edit; perhaps the link was cut.")
        if key in own:
            own[key] = unquote(value)
        else:
            edits.append((unquote(key), unquote(value)))
    if len(dict(edits)) < len(edits):
        raise BrokenLinkError("It edits one field twice.")
    return Draft(own["!name"], scenario, _unpacked(own["!text"]), tuple(edits))


def _unpacked(packed: str) -> str | None:
    if not packed:
        return None
    unpacker = zlib.decompressobj()
    try:
        data = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        text = unpacker.decompress(data, _MOST_TEXT)
        whole = text.decode() if unpacker.eof else None
    except (ValueError, zlib.error):  # bad base64, and bytes that are no text, are ValueErrors
        raise BrokenLinkError("The scenario inside it was cut, or changed on the way.") from None
    if whole is None:
        raise BrokenLinkError("The scenario inside it is too long, or was cut.")
    return whole


def _number(query: Query, key: str) -> int | None:
    """The count under a key, None where there is none."""
    text = last(query, key)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 4:
        raise BrokenLinkError(f"`{key}={text[:20]}` is no number.")
    return int(text)


def _quoted(text: str) -> str:
    return quote(text, safe=_PLAIN)


def _is_text(part: str) -> bool:
    """True where the percent signs of a part decode to text."""
    try:
        unquote(part, errors="strict")
    except UnicodeDecodeError:
        return False
    return True

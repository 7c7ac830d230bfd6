"""The scenario inside an exported page, so that `twin run report.html` answers it again."""

from __future__ import annotations

BEGIN = '<script type="application/yaml" id="scenario">'
"""The line before the scenario."""
END = "</script>"
"""The line after it."""


def scenario_in(page: str) -> str:
    """The scenario of a page, every line where it stands there, so that positions hold; empty where
    there is none."""
    lines = page.split("\n")
    if BEGIN not in lines:
        return ""
    first = lines.index(BEGIN) + 1
    last = lines.index(END, first) if END in lines[first:] else len(lines)
    return "\n" * first + "\n".join(lines[first:last])

"""Settings read from a text with sections."""

from reference.agentic.software.project import Bug, Project

_READ = '''"""Settings in sections: `name = value` lines, `#` begins a comment."""

from $package.values import value_of

MAIN = "$main"


def read(text):
    """Values by section and name; what stands before any section is in MAIN."""
    found, section = {}, MAIN
    for number, line in enumerate(text.split("\\n"), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
            found.setdefault(section, {})
        elif "=" in line:
            name, _, value = line.partition("=")
            found.setdefault(section, {})[name.strip().lower()] = value_of(value)
        else:
            raise ValueError(f"line {number}: no name and value")
    return found


def merged(base, extra):
    """New settings: those of base, with those of extra on top."""
    found = {section: dict(rows) for section, rows in base.items()}
    for section, rows in extra.items():
        found.setdefault(section, {}).update(rows)
    return found


def get(settings, path, default=None):
    """The value at `section.name`, or at `name` in MAIN; else the default."""
    section, dot, name = path.partition(".")
    if not dot:
        section, name = MAIN, section
    return settings.get(section, {}).get(name, default)
'''
_VALUES = '''"""Values as they are written."""

YES, NO = ("yes", "true", "on"), ("no", "false", "off")
SIZES = {"k": $kilo, "m": $kilo * $kilo}


def value_of(text):
    """A truth value, a whole number (with k or m behind it), a list with commas, or text."""
    text = text.strip()
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    if "," in text:
        return [value_of(part) for part in text.split(",") if part.strip()]
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    return number_of(text)


def number_of(text):
    """A whole number, or the text itself."""
    digits, size = text, 1
    if text[-1:].lower() in SIZES:
        digits, size = text[:-1], SIZES[text[-1:].lower()]
    try:
        return int(digits) * size
    except ValueError:
        return text
'''
_TESTS = """import unittest

from $package.read import get, read
from $package.values import value_of


class SettingsTest(unittest.TestCase):
    def test_sections(self):
        settings = read("[Disk]\\nsize = 3\\n")
        self.assertEqual(settings, {"disk": {"size": 3}})
        self.assertEqual(get(settings, "disk.size"), 3)

    def test_values(self):
        self.assertIs(value_of("yes"), True)
        self.assertEqual(value_of("hello"), "hello")

    def test_odd_lines_are_refused(self):
        with self.assertRaises(ValueError):
            read("what")


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = (
    "from $package.read import *\nfrom $package.values import value_of\n"
    "s = read('top = 1\\n[Disk]\\nSize = 4k # big\\nparts = a, 2,yes\\n\\n[net]\\nname = x=y')\n"
)
PROJECT = Project(
    "settings",
    "Settings read from a text with sections.",
    {
        "package": ("conf", "settings_app", "options"),
        "main": ("main", "global", "top"),
        "kilo": ("1000", "1024"),
    },
    {"read.py": _READ, "values.py": _VALUES},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "result = s",
            "result = [get(s, 'top'), get(s, 'disk.size'), get(s, 'net.name')]",
            "result = [get(s, 'nothing'), get(s, 'disk.no', 5), get(s, 'no.no', 6)]",
            "result = read('a = 1\\n[b]\\n[c]\\nd = off')",
            "result = read('# all\\n  \\n')",
            "read('[a]\\nfoo')",
            "result = [value_of('3k'), value_of('2M'), value_of('k'), value_of('')]",
            "result = [value_of('\"a\"'), value_of('\"'), value_of('\"3\"')]",
            "result = [value_of('TRUE'), value_of('Off'), value_of('-12'), value_of('0')]",
            "result = [value_of('1, 2, '), value_of('a,b'), value_of(',')]",
            "e = merged(s, {'disk': {'size': 1}, 'new': {'x': 2}})\nresult = e",
            "e = merged(s, {'disk': {'size': 1}})\nresult = get(s, 'disk.size')",
            "result = read('[a]\\nb = 1\\n[a]\\nc = 2')",
            "result = read('A = 1\\nb=2')",
        )
    ),
    (
        Bug(
            "boundary",
            "values.py",
            "len(text) >= 2 and text[0]",
            "len(text) >= 1 and text[0]",
            'A single quote mark disappears\n\nA value that is just one `"` is read as an empty '
            "text. It should stay as it is, since nothing is quoted.",
        ),
        Bug(
            "condition",
            "read.py",
            '        line = line.split("#", 1)[0].strip()',
            '        line = "" if line.startswith("#") else line.strip()',
            "Comments behind a value become part of it\n\n`Size = 4k # big` should be a number. "
            "The value has the comment in it.",
        ),
        Bug(
            "state",
            "read.py",
            "{section: dict(rows) for section, rows in base.items()}",
            "dict(base)",
            "Merging changes the settings it starts from\n\nAfter merging one value on top, the "
            "base has the new value as well. It should stay as it was.",
        ),
        Bug(
            "argument",
            "read.py",
            "section, name = MAIN, section",
            "section, name = section, MAIN",
            "Names without section are not found\n\n`get(s, 'top')` gives None although `top = 1` "
            "stands before the first section.",
        ),
        Bug(
            "missing case",
            "values.py",
            ' for part in text.split(",") if part.strip()]',
            ' for part in text.split(",")]',
            "A comma at the end adds an empty value\n\n`1, 2, ` should be a list of two numbers. "
            "There is an empty text behind them.",
        ),
        Bug(
            "arithmetic",
            "values.py",
            '"m": $kilo * $kilo}',
            '"m": $kilo}',
            "2M is read as if it were 2k\n\n`2M` and `2k` give the same number. The first should "
            "be $kilo times as large.",
        ),
    ),
)

"""Where a browser is required, a browser test that did not run is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = "import pytest\n@pytest.mark.browser\ndef test_page(): pass\n"
SKIPS = "import pytest\n@pytest.mark.browser\ndef test_page(): pytest.skip('no browser')\n"
NONE = "def test_sum(): assert 1 + 1 == 2\n"


def outcome(root: Path, folder: Path, test: str, required: str) -> int:
    """Exit code of pytest on one test file, with the house's settings."""
    shutil.copy(root / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    shutil.copy(root / "tests" / "conftest.py", folder / "tests")
    (folder / "tests" / "test_page.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1"],
        cwd=folder,
        env={**os.environ, "TWIN_REQUIRE_BROWSER": required},
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode


@pytest.mark.parametrize(
    ("test", "required", "expected"),
    [
        (PASSES, "1", pytest.ExitCode.OK),
        (SKIPS, "1", pytest.ExitCode.TESTS_FAILED),
        (NONE, "1", pytest.ExitCode.TESTS_FAILED),
        (SKIPS, "", pytest.ExitCode.OK),
    ],
    ids=["passed", "skipped", "none", "not-required"],
)
def test_a_required_browser_test_must_pass(
    test: str, required: str, expected: pytest.ExitCode, root: Path, tmp_path: Path
) -> None:
    assert outcome(root, tmp_path, test, required) == expected

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


@pytest.mark.parametrize(
    ("test", "workers", "expected"),
    [
        (PASSES, "1", pytest.ExitCode.OK),  # a worker's report is counted by the main process
        (SKIPS, "0", pytest.ExitCode.TESTS_FAILED),
        (NONE, "0", pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["passed", "skipped", "none"],
)
def test_a_required_browser_test_must_pass(
    test: str, workers: str, expected: pytest.ExitCode, root: Path, tmp_path: Path
) -> None:
    shutil.copy(root / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(root / "tests" / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_page.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers],
        cwd=tmp_path,
        env={**os.environ, "TWIN_REQUIRE_BROWSER": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == expected

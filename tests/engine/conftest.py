"""Both players for every law of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twin.compiled import machine
from twin.compiled.build import build


@pytest.fixture(
    scope="module", params=[pytest.param("readable", marks=pytest.mark.slow), "compiled"]
)
def each_player(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of a module by machine code and, in `make verify`, by the player in Python: that
    both play alike is the law of `test_players`, over random programs and layouts of these modules.
    Modules take it whole, as hypothesis has no place for a fixture of each test."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "readable":
            patch.setattr(machine, "code", lambda: None)
        else:
            assert build() is not None
            assert machine.code() is not None
        yield

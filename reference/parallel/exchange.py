"""The expert all-to-alls of one rank: begun, and awaited when the rank has its turn again
(`reference.parallel.turns`).

Shapes: E experts of a layer, G ranks of the group, L = E / G experts of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from reference.parallel.groups import Group
from reference.parallel.turns import Turns


class ExpertExchange:
    """A group of ranks that share experts; `reference.model.exchange.Exchange`."""

    def __init__(self, group: Group, turns: Turns, *, balanced: bool = False) -> None:
        """`balanced`: every rank sends every rank as much, so that sizes are known without asking:
        for shapes without numbers, where nobody could answer."""
        self.size = group.size
        self._group = group
        self._turns = turns
        self._balanced = balanced

    def counts(self, load_E: Tensor, rows: int) -> tuple[Tensor, list[int], list[int]]:
        """What every rank sends to the experts here, [G, L], and the rows that this rank sends to
        each rank, and receives from it. The host waits for the answer, and gives no turn away: rows
        are what the other pass of a pair hides."""
        sent_GL = load_E.view(self.size, -1)
        if self._balanced:
            assert rows % self.size == 0, f"{rows} rows over {self.size} ranks"
            even = [rows // self.size] * self.size
            return self._ask(sent_GL.flatten()).view_as(sent_GL), even, even
        arriving_GL = self._ask(sent_GL.flatten()).view_as(sent_GL)
        return arriving_GL, sent_GL.sum(1).tolist(), arriving_GL.sum(1).tolist()

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], name: str) -> Tensor:
        """Send rows to every rank, in order, and get those for this one."""
        running = self._turns.running
        if running is None:
            return self._group.all_to_all(rows, sent, received, name).wait()
        running.end()
        moving = self._group.all_to_all(rows, sent, received, name).of(running.place)
        self._turns.hand_over()
        out = moving.wait()
        running.begin()
        return out

    def _ask(self, counts: Tensor) -> Tensor:
        """As many counts from every rank as go to each."""
        running = self._turns.running
        if running is None:
            return self._group.all_to_all(counts, None, None, "expert_counts").wait()
        running.end()
        moving = self._group.all_to_all(counts, None, None, "expert_counts").of(running.place)
        out = moving.wait()
        running.begin()
        return out

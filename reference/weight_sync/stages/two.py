"""Two stages, as checkpoint-engine runs: in each round all owners copy their next bucket from the
host, together, while nothing is sent; then one bucket after another goes to all receivers, which
reload one while the next comes (Kimi K2, arXiv:2507.20534, appendix G: on H800 copies from the host
and broadcasts share PCIe)."""

from __future__ import annotations

from reference.weight_sync.stages.hands import Hands


def send(hands: Hands) -> None:
    """All rounds of one owner."""
    together = hands.copied is not None
    for turn in hands.rounds:
        own = next((one for one in turn if one.owner == hands.owner), None)
        if together:
            hands.meet()  # what was sent before has arrived
            if own is not None:
                hands.copy(own)
            hands.meet()
        for bucket in turn:
            if bucket is own:
                hands.move(bucket)
            hands.send(bucket)

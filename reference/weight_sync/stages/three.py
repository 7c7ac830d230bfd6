"""Three stages: an owner copies its next bucket from the host as soon as the last one has left the
copy buffer, whatever is on the way (Kimi K2, arXiv:2507.20534, appendix G: the ideal).

Without a copy buffer there is nothing to copy into, and it is as two stages."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from reference.weight_sync.stages.hands import Hands


def send(hands: Hands) -> None:
    """All rounds of one owner."""
    ahead = iter(hands.own if hands.copied is not None else ())
    with ThreadPoolExecutor(1, "host copies") as beside:

        def begin() -> Future[None] | None:
            bucket = next(ahead, None)
            return beside.submit(hands.copy, bucket) if bucket is not None else None

        coming = begin()
        for bucket in hands.buckets:
            if bucket.owner == hands.owner:
                if coming is not None:
                    coming.result()
                hands.move(bucket)
                coming = begin()
            hands.send(bucket)

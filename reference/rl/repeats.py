"""Whether a response goes round in circles (Kimi K1.5, section 2.6.2: repeats are found, the
response is ended early and may be penalised; how they are found is OURS)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from twin.spec.base import Count, Spec, Whole


class RepeatSpec(Spec):
    """The last `window` tokens of a message are one piece, at least `times` over. OURS."""

    window: Whole = Field(
        default=64, description="tokens that must repeat one piece; 0: nobody looks"
    )
    times: Count = Field(default=4, description="times that the piece stands there, at least")


def repeats(tokens: Sequence[int], spec: RepeatSpec) -> bool:
    """Whether the end of `tokens` repeats itself."""
    window = spec.window
    if not window or len(tokens) < window:
        return False
    last = tokens[len(tokens) - window :]
    return any(
        last[-1] == last[-1 - period] and last[period:] == last[:-period]
        for period in range(1, window // spec.times + 1)
        if period < window
    )

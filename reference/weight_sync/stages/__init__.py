"""In which order an owner copies from the host and sends.

`two`    all owners copy a bucket from the host together, then broadcasts run beside reloads
`three`  copies from the host run beside both
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from reference.weight_sync.stages import three, two
from reference.weight_sync.stages.hands import Hands

Stages = Literal["two", "three"]
SENDS: Final[Mapping[Stages, Callable[[Hands], None]]] = {"two": two.send, "three": three.send}

__all__ = ["SENDS", "Hands", "Stages"]

"""How a bucket gets from its owner to the receivers.

`direct`      messages from the owner to each receiver; gloo, on a CPU
`collective`  a broadcast in which all ranks take part; NCCL on GPUs, gloo on a CPU
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from reference.weight_sync.wires.base import Meeting, Wire
from reference.weight_sync.wires.collective import Collective
from reference.weight_sync.wires.direct import Direct

WIRES: Final[Mapping[str, Callable[[Meeting, torch.device], Wire]]] = {
    "direct": Direct,
    "collective": Collective,
}

__all__ = ["WIRES", "Meeting", "Wire"]

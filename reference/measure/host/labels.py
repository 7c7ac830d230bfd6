"""Which operation of the twin (`twin.arch`) a call of the reference belongs to.

A call is looked up from its innermost frame outwards. The first frame that a table knows decides:
a module by its name, a function by file and name, then a module by its place in the layer.
"""

from __future__ import annotations

from types import FrameType
from typing import Final

from torch import nn

MODULES: Final = {
    "attention_norm": "attention_norm",
    "ffn_norm": "ffn_norm",
    "final_norm": "final_norm",
    "attention.q_norm": "q_norm",
    "attention.kv_norm": "kv_norm",
    "attention.q": "q",
    "attention.q_down": "q_down",
    "attention.q_up": "q_up",
    "attention.kv_down": "kv_down",
    "attention.kv_up": "kv_up",
    "attention.out": "attention_out",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
    "ffn.shared.up": "shared_up",
    "ffn.shared.down": "shared_down",
    "head": "head",
    "embedding": "embedding_lookup",
}
"""Modules whose calls are one operation, by name in their layer."""
WAYS: Final = {"swiglu.py": "swiglu", "grouped.py": "up"}
"""Files of kernels that several operations go through."""
ON_THE_WAY: Final = {
    ("ffn.experts", "swiglu"): "experts_swiglu",
    ("ffn.experts", "up"): "experts_up",
    ("ffn.experts", "down"): "experts_down",
    ("ffn.experts", ""): "experts_swiglu",
    ("ffn", "swiglu"): "ffn_swiglu",
    ("ffn.shared", "swiglu"): "shared_swiglu",
}
"""Operations by module and the kernel that it went through."""
FUNCTIONS: Final = {
    ("rope.py", "rotate"): "mla_rope",
    ("attention.py", "_attend"): "attention_flash",
    ("moe.py", "assign"): "router_scores",
    ("dispatch.py", "order_of"): "dispatch_permute",
    ("moe.py", "count"): "dispatch_permute",
    ("dispatch.py", "spread"): "dispatch_permute",
    ("dispatch.py", "gather"): "combine_unpermute",
    ("transformer.py", "loss"): "loss_max",
}
"""Functions by file and name."""
PLACES: Final = {
    "ffn.router": "router",
    "ffn": "combine_unpermute",
    "ffn.shared": "shared_swiglu",
    "attention": "mla_rope",
}
"""What a module does beside all of that."""
OUTSIDE: Final = {
    ("transformer.py", "forward"): "ffn_residual",
    ("runtime.py", ""): "microbatch",
    ("", "next_batch"): "microbatch",
    ("step.py", ""): "step",
}
"""Files, functions or both outside of modules."""


def local_name(name: str) -> str:
    """A module's name in its layer, of that in the model."""
    return name.split(".", 2)[2] if name.startswith("layers.") and "." in name[7:] else name


def label(frame: FrameType | None, names: dict[int, str]) -> str:
    """The operation that a call belongs to; `names` are those of modules by identity."""
    way = ""
    while frame is not None:
        code = frame.f_code
        if "/reference/" in code.co_filename:
            file, name = code.co_filename.rsplit("/", 1)[1], code.co_name
            if name == "op" and frame.f_locals.get("name") == "moe_down":
                way = "down"
            way = way or WAYS.get(file, "")
            found = _known(file, name, _place(frame, names), way)
            if found is not None:
                return found
        frame = frame.f_back
    return "step"


def _place(frame: FrameType, names: dict[int, str]) -> str | None:
    """The name of the module whose method a frame is; None for others."""
    own = frame.f_locals.get("self")
    return names.get(id(own), "") if isinstance(own, nn.Module) else None


def _known(file: str, name: str, place: str | None, way: str) -> str | None:
    """The operation of one frame, where the tables say it."""
    found = (
        MODULES.get(place or "")
        or ON_THE_WAY.get((place or "", way))
        or FUNCTIONS.get((file, name))
        or PLACES.get(place or "")
    )
    if found is None and (place or "").startswith("layers."):
        found = "ffn_residual"
    outside = ((file, name), (file, ""), ("", name))
    return found or next((OUTSIDE[one] for one in outside if one in OUTSIDE), None)

"""The NIC rate of each GPU, as a row's words about its network give it.

Sources write a node's NICs (`4x100G`, `4 NICs of 200 Gb/s`, `8x NDR`), a rate per node or per GPU,
or the rate of one NIC (`200 Gb/s RoCE`, `InfiniBand HDR`). Rates of InfiniBand's generations are
those of a port of four lanes (InfiniBand Trade Association's roadmap).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

GENERATIONS: Final = {"FDR": 56.0, "EDR": 100.0, "HDR": 200.0, "NDR": 400.0, "XDR": 800.0}
"""Gb/s of a port."""
_SPEED: Final = (
    r"(?:(?P<rate>\d+(?:\.\d+)?) ?(?P<unit>[GT])(?:b(?:it)?(?:/s|ps)?)?(?![A-Za-z0-9])"
    rf"|(?P<generation>{'|'.join(GENERATIONS)})(?P<lanes>\d+)?\b)"
)
_COUNTED: Final = re.compile(
    rf"\b(?P<count>\d+) ?(?:x|×|(?:NICs?|HCAs?|ports|cards|rails) (?:of|at)|(?=[A-Z])) ?{_SPEED}"
)
"""NICs of a node and the rate of each."""
_PLAIN: Final = re.compile(_SPEED)
_SHARED: Final = {
    "node": re.compile(r"^\W*(?:per|/|each|a)[ -]?(?:node|server|host|machine)\b"),
    "gpu": re.compile(r"^\W*(?:per|/|each|a)[ -]?(?:GPU|rank|device)\b", re.IGNORECASE),
}
"""What follows a rate that is a node's, or a GPU's."""
_GPU: Final = re.compile(r"\b(?:GB|GH|[ABHV])\d{2,3}\b")
_DGX: Final = re.compile(r"\bDGX\b", re.IGNORECASE)
_PRODUCT: Final = re.compile(r"\bEFA\b|\bNVL72\b")
"""Systems whose NICs the catalog has, where words give no rate: Amazon's nodes, and racks."""
_REMOTE: Final = re.compile(r"RoCE|RDMA|InfiniBand|\bIB\b|EFA", re.IGNORECASE)
_APART: Final = re.compile(r"no NVLink|without NVLink|PCIe only", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NicWords:
    """What words say of a GPU's NIC."""

    rate: float | None = None
    """Gb/s of each GPU; None: that of the catalog's node."""
    assumed: str = ""
    """What the words leave open."""


def nic_of(words: str, gpu: str, gpus: int, usual: float) -> NicWords:
    """The NIC rate of each GPU of a node with so many of them, whose NICs in the catalog have
    `usual` Gb/s per GPU. A DGX has the NICs of its data sheet, which are the catalog's."""
    if _DGX.search(words):
        return NicWords()
    own = _of_gpu(words, gpu)
    counted = _COUNTED.search(own)
    if counted is not None:
        total = int(counted["count"]) * _rate(counted)
        return NicWords(total if _follows(own, counted, "gpu") else total / gpus)
    plain = _PLAIN.search(own)
    if plain is None and _PRODUCT.search(own):
        return NicWords()
    if plain is None:
        return NicWords(None, f"NICs of {usual:g} Gb/s per GPU: the source gives no rate")
    return _alone(own, plain, gpus, usual)


def _alone(words: str, found: re.Match[str], gpus: int, usual: float) -> NicWords:
    """Of a rate without a count. No NIC is faster than the catalog's of the same GPU, so that a
    higher rate is the node's; plain Ethernet is the host's one NIC."""
    rate = _rate(found)
    if _follows(words, found, "gpu"):
        return NicWords(rate)
    if _follows(words, found, "node"):
        return NicWords(rate / gpus)
    if rate > usual:
        return NicWords(rate / gpus, f"{rate:g} Gb/s is taken for the rate of a node")
    if "ethernet" in words.lower() and not _REMOTE.search(words):
        return NicWords(rate / gpus, f"one NIC of {rate:g} Gb/s per node: Ethernet")
    return NicWords(rate, f"one NIC of {rate:g} Gb/s per GPU: the source gives no count")


def without_nvlink(words: str) -> bool:
    """Whether the GPUs of a node are connected by PCIe alone."""
    return _APART.search(words) is not None


def _of_gpu(words: str, gpu: str) -> str:
    """The words without parts that are of another GPU, as `8x400G (H100) / 4x200G (A100)`."""
    parts = re.split(r" / |;", words)
    kept = [part for part in parts if not (named := _GPU.findall(part)) or _one_in(named, gpu)]
    return " / ".join(kept)


def _one_in(names: list[str], gpu: str) -> bool:
    return any(name in gpu for name in names)


def _rate(found: re.Match[str]) -> float:
    """Gb/s."""
    if found["generation"]:
        return float(found["lanes"] or GENERATIONS[found["generation"]])
    return float(found["rate"]) * (1000 if found["unit"] == "T" else 1)


def _follows(words: str, found: re.Match[str], sharer: str) -> bool:
    return _SHARED[sharer].match(words[found.end() :]) is not None

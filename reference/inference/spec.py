"""How much an engine holds and does at once."""

from __future__ import annotations

from twin.spec.base import Count, Flag, Spec, Whole


class EngineSpec(Spec):
    """Memory and work of an engine. The cache holds `blocks` x `block_tokens` tokens, whatever the
    requests; the defaults are OURS, for the small presets on a CPU."""

    blocks: Count = 512
    """set the blocks of the cache"""
    block_tokens: Count = 16
    """set the tokens per block; prefixes are shared in whole blocks"""
    step_tokens: Count = 256
    """limit the tokens per step: one of each sequence that decodes, then chunks of prompts"""
    running: Count = 64
    """limit the sequences that decode at once"""
    queue: Whole = 256
    """limit the sequences that wait to run; more are refused (429)"""
    share_prefixes: Flag = True
    """compute blocks of equal prefixes once"""

"""How much an engine holds and does at once."""

from __future__ import annotations

from twin.spec.base import Count, DocumentedSpec, Flag, Whole


class EngineSpec(DocumentedSpec):
    """Memory and work of an engine. The cache holds `blocks` x `block_tokens` tokens, whatever the
    requests; the defaults are OURS, for the small presets on a CPU."""

    blocks: Count = 512
    """blocks of the cache"""
    block_tokens: Count = 16
    """tokens per block; prefixes are shared in whole blocks"""
    step_tokens: Count = 256
    """tokens per step at most: one of each sequence that decodes, then chunks of prompts; sequences
    that do not fit wait for a later step"""
    running: Count = 64
    """sequences that decode at once, at most"""
    queue: Whole = 256
    """sequences that wait to run, at most; more are refused (429)"""
    share_prefixes: Flag = True
    """whether blocks of equal prefixes are computed once"""

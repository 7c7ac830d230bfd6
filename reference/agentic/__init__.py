"""Synthetic dialogues with tools: what Kimi K2 is fine-tuned on (report, section 3.1.1)."""

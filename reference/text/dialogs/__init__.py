"""Dialogues as what a run learns from: read, rendered with loss masks, laid out in rows."""

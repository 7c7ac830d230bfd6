"""Reinforcement learning as in Kimi K2 (report, section 3.2 and 3.3; K1.5, arXiv:2501.12599)."""

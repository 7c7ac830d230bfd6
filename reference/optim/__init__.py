"""MuonClip as Kimi K2 trained with it (arXiv:2507.20534, algorithm 1), and its parts.

A step is `muonclip.MuonClip.step()`, then `qk_clip.clip(...)`, with the learning rate that
`schedule.learning_rate` says. Which parameters are matrices is in `groups`, what moves them in
`muon` (with `newton_schulz`) and `adamw`, where states wait in `states`, what a run may log about
its weights in `diagnostics`. The optimizer knows no model: only names, shapes, and what QK-clip
asks of an attention block (`qk_clip.Clippable`).
"""

"""MuonClip as Kimi K2 trained with it (arXiv:2507.20534, algorithm 1), and its parts.

A step is `muonclip.MuonClip.step()`, then `qk_clip.clip(...)`, with the learning rate that
`spec.learning_rate` gives. `blocks` says which parameters are matrices, and holds their states;
`muon` and `adamw` move them; `diagnostics` is what a run may log about its weights. The optimizer
knows no model: only names, shapes, and what QK-clip asks of an attention block
(`qk_clip.Clippable`).
"""

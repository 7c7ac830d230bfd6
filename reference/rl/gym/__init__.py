"""Tasks whose answers can be verified, in families: one family one file, in `families/`.

A family has levels, and makes an item of a level and a seed. An item is an environment
(`reference.agentic.environment`) with the turns that solve it and turns that only look like it, so
that every verifier can be tried. `environments.Play` is the same item in the shape of Gymnasium; a
run names a family as a source of tasks (`reference.rl.tasks`).
"""

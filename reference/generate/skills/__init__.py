"""The skills of the rule-based generator, found by scanning this folder.

A file has `SKILLS`, a tuple of `reference.generate.rules.Skill`.
"""

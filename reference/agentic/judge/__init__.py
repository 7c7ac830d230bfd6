"""The judge: the end state first, what was told next, the rubric last."""

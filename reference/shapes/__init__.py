"""The trainer without hardware: one step of its own code on one of many ranks, on tensors that have
shapes and no numbers, and what it counts while it runs.

The ranks are torch's fake process group, whose collectives return at once; tensors are
`FakeTensor`s. So a laptop can say what a rank of 2,048 sends, keeps and computes, and a plan can be
held against the code it is for.
"""

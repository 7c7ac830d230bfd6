"""What a group of responses to one prompt teaches: a slope for each response.

A policy-gradient step is the gradient of a weighted log-likelihood: if an objective L depends on
the weights only through the log-probabilities of whole responses, then

    grad L = sum_k (dL / d log p_k) grad log p_k

and the slopes dL / d log p_k are numbers that are known before the backward pass. So every
objective here is a function from rewards and log-ratios to slopes, and the trainer's own loop does
the rest: cross-entropy whose tokens weigh minus the slope of their response (`tokens.py`).

group.py            rewards and log-ratios of a group
baselines.py        what a reward is compared with
squared_error.py    Kimi K2's objective
kimi_k15.py         Kimi K1.5's gradient
tokens.py           slopes of responses as weights of tokens

Legend: K responses of a group.
"""

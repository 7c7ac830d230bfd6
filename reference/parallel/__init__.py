"""One run on several ranks: pipeline stages, expert parallelism, replicas.

`mesh` has what a user writes and which rank is where; `world` joins the ranks, and says what each
holds; `groups` are the ranks that speak with each other; `runtime` executes the actions of a
schedule; `overlap` runs two passes in turn; `replicas` is the optimizer of ranks that share
weights; `timeline` records what ran when.
"""

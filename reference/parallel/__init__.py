"""One run on several ranks: pipeline stages, expert parallelism, replicas.

`spec` is what a user writes, `mesh` says which rank is where, `world` joins the ranks, `groups` are
those who speak with each other, `stage` is what a rank holds, `runtime` executes the actions of a
schedule on it, `timeline` writes down what ran when.
"""

"""How an answer is judged: a file per scorer.

Of texts: `exact`, `contains`, `numeric`, `code` (unit tests in the sandbox) and `verifier` (another
generator judges). `choice` judges log-likelihoods. An environment judges its own end state.
"""

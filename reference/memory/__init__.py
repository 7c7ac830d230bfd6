"""What a training step keeps, where, and for how long: recomputation, FP8 storage, host memory.

One mechanism serves all policies on activations (`stash`); `saved_tensor` has the forms in which a
tensor waits for its backward, and the forwards that run again; `host` copies to host memory and
back. `optimizer_states` says where optimizer states rest between steps, and what all of it weighs.
The names are those of `twin.spec.memory`.
"""

"""Checkpoints that are whole or absent: what a run needs to go on as if it had never stopped.

A checkpoint is a folder `step-00000120`: the tensors, written by `torch.distributed.checkpoint`,
and `manifest.json` with everything else (step, loader, configuration), the bytes and SHA-256 of
every file, and the versions that wrote it. It is written into a hidden folder, synced to disk and
renamed, so that a process killed at any moment leaves the previous ones as they were. Reading
checks every byte first; what is not intact is refused by name.

Several ranks write one checkpoint together, each its pieces of the tensors into a file of its own,
and any other number of ranks reads it, cut anywhere else (`reference.checkpoint.piece`). All of
them need one folder, that of a shared file system if they are on several machines: a rank that does
not see what the others write says so, and all fail.

The tensors' index is a pickle, as torch writes it: read checkpoints only of people you trust. The
hashes find damage, not malice.
"""

"""Models to and from Hugging Face folders.

    python -m reference.convert from-hf SRC DST    released weights to a folder of the reference
    python -m reference.convert to-hf SRC DST      such a folder, or a trainer's, back

    TW250  a folder without configuration or weights, or without all of its files
    TW251  an architecture that the reference does not run
    TW252  a key of config.json that it does not compute
    TW253  missing tensors       TW254  tensors of something else       TW255  other shapes
    TW256  the target exists, or cannot be written
    TW257  a model that no Hugging Face class of these computes
    TW258  a file of weights, or a checkpoint, that is damaged
    TW259  weights quantized in a way that is not read

Every one of them leaves nothing behind.
"""

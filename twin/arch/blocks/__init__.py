"""One module per block. Each gives its `parameters` (a table) and its `items` (ops and exchanges).

To add a block: one module here, and its case in `twin.arch.stack`.
"""

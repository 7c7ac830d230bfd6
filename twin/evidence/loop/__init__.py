"""The closed loop: predict a layout, run it with the reference trainer on this machine, compare.

`layouts` are ordinary scenarios whose nodes are network namespaces, `trainer` writes and starts
what the trainer reads, `outcome` compares and scores. The trainer is another program: it is never
imported, and its results are read from its files.
"""

"""The whole run: phases one after the other, each with a layout of its own, to days, dollars,
checkpoints, data and a calendar."""

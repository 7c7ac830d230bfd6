"""Ways to ask a model: a file each, with how its cases are summed up."""

"""A search over layouts: bounds of all, then events of those that promise most."""

"""A search over layouts: bounds, the fast path, then events for the best."""

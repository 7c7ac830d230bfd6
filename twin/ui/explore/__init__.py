"""The page Explore: many plans at once, around the one that is open on the desk."""

"""Other people's files: what is imported and what is exported."""

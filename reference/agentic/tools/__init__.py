"""The tool repository: specs, their evolution and import, near-duplicates, coverage."""

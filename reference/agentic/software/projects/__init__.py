"""The projects, one in each file, as `PROJECT`."""

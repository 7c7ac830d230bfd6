"""Small repositories with an issue to mend: tools on a workspace, hidden tests that decide."""

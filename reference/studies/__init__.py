"""Questions answered by training: each study runs, keeps its runs, and writes a dated report."""

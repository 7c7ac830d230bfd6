"""What a sample of questions says of all questions: intervals, pass@k, votes."""

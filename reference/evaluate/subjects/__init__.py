"""What is judged: `trained`, a run's model in this process; `asked`, a server or the rules."""

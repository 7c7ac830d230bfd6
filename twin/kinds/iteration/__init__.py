"""An iteration of reinforcement learning: rollouts, switch, scores, training, weight update, wake,
on GPUs in turns or on GPUs of their own."""

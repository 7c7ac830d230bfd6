"""From files of other tools to ours: a released model, or a launch of Megatron-LM."""

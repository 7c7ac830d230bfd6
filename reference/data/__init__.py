"""From text to batches: a corpus, its split, a tokenizer, and tokens packed without waste."""

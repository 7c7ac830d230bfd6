"""From text to batches: corpus, split, tokenizer, chat template, packed tokens, a loader."""

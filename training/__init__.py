"""Training: tokenizer, corpus, target, and drafters distilled on what the target generates."""

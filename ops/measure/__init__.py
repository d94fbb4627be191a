"""What every benchmark shares: prompts, engines, decoding, the machine, plots."""

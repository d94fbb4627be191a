"""What every benchmark shares: prompts, engines, decoding, definitions, the machine, plots."""

"""`specadapt report`: the paper's tables and figures, from our measurements or its own numbers."""

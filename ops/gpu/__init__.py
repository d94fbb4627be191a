"""`specadapt bench gpu`: the engine alone, on a bare machine."""

"""`specadapt bundle`: bundles out of models that others made."""

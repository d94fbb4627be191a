"""`specadapt bench stages`: where a step's time goes as batches grow."""

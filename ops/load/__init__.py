"""`specadapt bench load`: routing under load, replayed or served."""

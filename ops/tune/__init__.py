"""`specadapt tune-batch` and `tune-tree`: how much to draft, from measured steps."""

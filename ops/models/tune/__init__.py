"""`specadapt tune-tree` and `specadapt tune-batch`."""

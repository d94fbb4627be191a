"""`specadapt profile`, `fit`, `assign`, `evaluate`, `bench router`: the table and its worth."""

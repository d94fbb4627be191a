"""`specadapt simulate` and `plan`: the served system as discrete events."""

"""Trees: which shape a model's drafts take."""

"""Commands that make models: import, train, tune."""

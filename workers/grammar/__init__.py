"""Grammars that answers must follow: bounds, compilation, checks in processes that may die."""

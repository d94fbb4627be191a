"""Heads that draft from a target's hidden states: Medusa, EAGLE and EAGLE-3, and their training."""

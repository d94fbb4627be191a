"""The service whose page is tested, and what it is asked."""

METHODS = ["naive", "draft_verify", "ngram"]

# one replica for all methods: the smallest service that routes
CONFIG = {
    "bundle": "bundles/demo",
    "layout": "shared",
    "methods": [{"name": name} for name in METHODS],
    "shared": {"name": "shared", "max_ongoing_requests": 16},
    "engine": {"threads": 1, "max_context": 512, "kv_slots": 4096},
}

LIST = "Make a list of who has what.\nPaula bought 67 peaches. Anna bought 24 sandwiches."
"""A prompt with much to repeat."""

"""The service whose page is tested."""

# one replica for all methods: the smallest service that routes
CONFIG = {
    "bundle": "bundles/demo",
    "layout": "shared",
    "shared": {"name": "shared", "max_ongoing_requests": 16},
    "engine": {"threads": 1, "max_context": 512, "kv_slots": 4096},
}

"""A replica of a method: its engine, where it runs, and which of several takes a request."""

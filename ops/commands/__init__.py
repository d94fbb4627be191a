"""The commands of those who use the service: ask, route, serve, list, export, plot."""

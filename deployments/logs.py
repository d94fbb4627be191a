"""Our log lines in Ray Serve's logs, since Ray gives other loggers no level and no handler."""

import logging

PACKAGES = ("deployments", "router", "workers", "specadapt")
"""The loggers that all of ours descend from."""
SERVE = "ray.serve"


class _ToServe(logging.Handler):
    """Hand records to Ray Serve's logger, whose handlers change with its configuration."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(SERVE).handle(record)


def log_with_serve() -> None:
    """Write this process's lines of level INFO and above where Ray Serve writes its own.

    In a replica these are the replica's file among Serve's logs and standard error; in another
    actor standard error alone.
    """
    for package in PACKAGES:
        logger = logging.getLogger(package)
        logger.setLevel(logging.INFO)
        if not any(isinstance(handler, _ToServe) for handler in logger.handlers):
            logger.addHandler(_ToServe())

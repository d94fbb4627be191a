import logging

import pytest


@pytest.fixture(autouse=True)
def restored_log_level():
    """The command silences failures that a world asks for, for the rest of its process."""
    logger = logging.getLogger("deployments")
    level = logger.level
    yield
    logger.setLevel(level)

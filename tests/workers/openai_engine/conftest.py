"""An engine over a server that replays recorded answers."""

import pytest
from conftest_bundle import DEMO
from replayed_server import loaded, serving

from workers.bundle import load_bundle


@pytest.fixture(scope="session", name="bundle")
def _bundle():
    return load_bundle(DEMO)


@pytest.fixture
def server():
    with serving() as started:
        yield started


@pytest.fixture
def engine(server, bundle):
    engine = loaded(server, bundle)
    yield engine
    engine.close()

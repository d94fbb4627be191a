"""The chat page of the real service on the demo family, in a real Chromium."""

import os

import pytest
import yaml
from page_service import CONFIG

from ops.common.running_service import running_service


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """The service that SPECADAPT_URL names, else one started here."""
    file = tmp_path_factory.mktemp("service") / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    with running_service(os.environ.get("SPECADAPT_URL"), file) as url:
        yield url


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    # Selenium is installed for these tests only, and the others are collected without it.
    from chat_page import Browser

    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def page(browser, address, request, tmp_path):
    """A freshly loaded page; a picture of how the test left it is in the test's folder."""
    yield browser.open(address)
    browser.screenshot(tmp_path / f"{request.node.name}.png")
    browser.reset()

"""The page of a service that asks for keys."""

import pytest
import yaml
from page_service import CONFIG

from deployments.guard.key_file import hash_of
from ops.common.running_service import running_service

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a service that answers to one key."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = {"keys": [{"name": "visitor", "sha256": hash_of("the-key")}]}
    (folder / "keys.yaml").write_text(yaml.safe_dump(keys))
    guard = {"guard": {"keys_file": str(folder / "keys.yaml")}}
    config = CONFIG | {"methods": [{"name": "naive"}], "http": guard}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with running_service(None, folder / "config.yaml") as url:
        yield url


def test_a_key_is_asked_for_and_kept_for_the_tab(browser, guarded):
    page = browser.begin(guarded)
    for key in ("wrong", "the-key"):
        page.until(page.asks)
        page.answer_dialog(key)
    page.until(lambda: page.all("#model option"))
    page.ask("Name three fruits.")
    page.finished()
    browser.driver.refresh()
    page.until(lambda: page.all("#model option"))
    browser.driver.execute_script("sessionStorage.clear()")

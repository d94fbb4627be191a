"""A real Ray Serve whose routing table corrects its cells for the single prompt."""

import httpx
import pytest
from running_service import CALL_SECONDS, until
from served import foretelling, service_config

from router.table import load_table, save_table

REPEATED = "again and again and again and again and again and again"
SPOKEN = "Write a Python function that reverses a list."


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    config = service_config(
        tmp_path_factory.mktemp("corrected"), tiny_bundle, ("naive", "ngram"), http={"port": port}
    )
    folder = config.router.routing
    save_table(foretelling(load_table(folder), "ngram", "repeated", 2.0), folder)
    return deploy(config)


def explained(service, text):
    asked = {"prompt": text, "temperature": 0}
    url = f"{service.url}/v1/routing/explain"
    return httpx.post(url, json=asked, timeout=CALL_SECONDS).json()


def test_it_answers_explains_and_learns(service):
    decision = explained(service, REPEATED)
    assert decision["deviation"]["ngram"] > 0.5 > decision["deviation"]["naive"] == 0.0
    assert decision["accepted"]["ngram"] > explained(service, SPOKEN)["accepted"]["ngram"]
    assert explained(service, SPOKEN)["deviation"]["ngram"] == 0.0
    answer = service.chat(REPEATED, model="tiny:ngram", temperature=0)
    assert answer.is_success
    assert answer.headers["x-specadapt-method"] == "ngram"
    until(lambda: service.routing()["version"] >= 1)
    assert service.routing()["predictor"] == "regression"

"""Two replicas of one method: prompts go to the one that holds their beginning."""

import time

import pytest
from ray import serve
from running_service import CALL_SECONDS, HTTP, until
from served import service_config

from deployments.run import APPLICATION
from router.table import load_table, save_table
from schemas import DecodeRequest, SamplingParams

# A minute: an application of its own.
pytestmark = pytest.mark.slow

SEVERAL = 8
"""By chance all of them would find their replicas once in 256 times."""


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Plain decoding. By the table no replica is slower than another, and reading costs much;
    nothing that is measured gets into the table."""
    folder = tmp_path_factory.mktemp("prefixes")
    config = service_config(
        folder,
        tiny_bundle,
        ("naive",),
        http={"port": port},
        engine={"kv_slots": 32 * 512},
        # nothing can be stored there, so nothing is learned
        feedback={"state_uri": str(folder / "routing" / "routing.json" / "state")},
    )
    table = load_table(folder / "routing")
    slow = {
        "step_seconds": 1e5 * table.step_seconds,
        "prefill_seconds": 1e7 * table.prefill_seconds,
    }
    save_table(table.model_copy(update=slow), folder / "routing")
    twice = config.methods[0].model_copy(update={"min_replicas": 2, "max_replicas": 2})
    made = deploy(config.model_copy(update={"methods": (twice,)}))
    until(lambda: len(made.routing()["loads"]) == 2, 120)
    return made


def test_second_turns_find_their_first_ones(service):
    """At once, before any report can tell."""
    for number in range(SEVERAL):
        said = [{"role": "user", "content": f"{number} {number + 1}: " + "tell me more of it " * 5}]
        first = service.chat(messages=said).json()
        said += [first["choices"][0]["message"], {"role": "user", "content": "and then?"}]
        second = service.chat(messages=said).json()
        found = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert found >= first["usage"]["prompt_tokens"] - 1


def test_replicas_report_what_they_hold(service):
    """The ingress has not sent these prompts."""
    handle = serve.get_deployment_handle("naive", APPLICATION).options(stream=True)
    prompts = [[10 + number, *range(20, 100)] for number in range(SEVERAL)]
    for number, prompt in enumerate(prompts):
        asked = DecodeRequest(
            request_id=f"direct-{number}",
            method="naive",
            prompt_token_ids=prompt,
            sampling=SamplingParams(max_tokens=2),
        )
        assert list(handle.generate.remote(asked, True))
    asked_until = time.time()
    until(lambda: all(load["time"] > asked_until for load in service.routing()["loads"]))
    for prompt in prompts:
        answer = HTTP.post(
            f"{service.url}/v1/completions",
            json={"model": "tiny", "prompt": prompt, "max_tokens": 2},
            timeout=CALL_SECONDS,
        ).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1


def test_nobody_is_shown_hashes(service):
    assert all("prefixes" not in load for load in service.routing()["loads"])

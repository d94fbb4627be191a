"""Answers for drafters on their way from a client through Ray to the store."""

import pytest
import ray
from running_service import START_SECONDS, until, with_faults
from served import service_config

from deployments.actors import DRAFTERS, running_actor
from deployments.drafters.sample_store import SampleStore
from deployments.run import APPLICATION


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    feedback = {"drafter_training": True}
    http = {"port": port}
    return deploy(service_config(folder, tiny_bundle, ("naive",), feedback=feedback, http=http))


def test_answers_are_stored_also_after_the_actor_has_died(service):
    def stored():
        uri = f"{service.config.feedback.state_uri}/drafters/tiny/samples"
        return {len(each.answer_token_ids) for each in SampleStore(uri).read_new()}

    def ask(tokens, **fields):
        assert service.chat(max_tokens=tokens, ignore_eos=True, **fields).is_success

    ask(4)
    ask(5, store=False)
    ask(6)
    until(lambda: stored() == {4, 6}, START_SECONDS)  # the actor starts first
    actor = running_actor(DRAFTERS, APPLICATION, with_faults(service.config))
    ray.kill(actor, no_restart=False)
    ask(7)
    until(lambda: stored() == {4, 6, 7}, START_SECONDS)

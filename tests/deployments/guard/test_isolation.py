"""Whose prompts may speed up whose: from the key to the engine."""

import httpx
import pytest
import yaml
from asking import HELLO
from pydantic import ValidationError

from deployments.guard.isolation import check_isolation, scope_of
from deployments.guard.key_file import hash_of
from deployments.guard.middleware import guarded
from deployments.metrics import Metrics
from schemas import GuardConfig
from schemas.keys import ApiKey
from workers.methods import get_method

SYSTEM = "You are a careful assistant that answers in one short sentence, whatever is asked. "


def key(name, tenant=None):
    return ApiKey(name=name, sha256=hash_of(name), tenant=tenant)


def test_scopes():
    apps = [key("one", "acme"), key("two", "acme"), key("three", "other"), key("acme")]
    assert {scope_of(app, "none") for app in apps} == {""}
    by_tenant = [scope_of(app, "tenant") for app in apps]
    assert by_tenant[0] == by_tenant[1]
    assert len(set(by_tenant)) == 3, "a key of a tenant's name is not that tenant's"
    assert len({scope_of(app, "key") for app in apps}) == 4


def test_without_keys_nobody_can_be_told_apart():
    with pytest.raises(ValidationError, match="nobody is known without keys_file"):
        GuardConfig(isolation="key")


def test_a_store_of_everybodys_answers_is_refused(tmp_path):
    apart = GuardConfig(keys_file=tmp_path / "keys.yaml", isolation="tenant")
    suffix = get_method("vllm_suffix")
    check_isolation(GuardConfig(), [suffix])
    keep_scopes_apart = ("vllm_ngram", "suffix", "adaptive", "vllm_adaptive")
    check_isolation(apart, [get_method(name) for name in keep_scopes_apart])
    with pytest.raises(ValueError, match="vllm_suffix drafts from all past answers"):
        check_isolation(apart, [suffix])
    settings = {**suffix.settings, "drafter": {"max_cached_requests": 0}}
    check_isolation(apart, [suffix.model_copy(update={"settings": settings})])


@pytest.mark.parametrize(
    ("isolation", "shared"), [("none", True), ("tenant", True), ("key", False)]
)
async def test_a_prefix_of_another_key(ingress, tmp_path, isolation, shared):
    keys = [key("one", "acme"), key("two", "acme")]
    file = tmp_path / "keys.yaml"
    body = {"keys": [k.model_dump() for k in keys], "tenants": {"acme": {}}}
    file.write_text(yaml.safe_dump(body))
    app = guarded(ingress.app, GuardConfig(keys_file=file, isolation=isolation), Metrics())
    asked = HELLO | {"messages": [{"role": "user", "content": SYSTEM * 2}], "model": "tiny:naive"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    cached = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for name in ("one", "two"):
            headers = {"authorization": f"Bearer {name}"}
            response = await client.post("/v1/chat/completions", json=asked, headers=headers)
            usage = response.json()["usage"]
            cached[name] = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached["one"] == 0
    assert (cached["two"] > 0) == shared

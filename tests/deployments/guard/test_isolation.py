"""Whose prompts may speed up whose: from the key to the engine."""

import pytest
from asking import HELLO
from pydantic import ValidationError

from deployments.guard.key_file import check_isolation, hash_of, scope_of
from deployments.replica.method import merged
from schemas import EngineConfig, GuardConfig
from schemas.config import DatastoreConfig, OpenAIConfig
from schemas.keys import ApiKey
from workers.loader import load_engine
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


def test_keys_are_kept_apart_by_tenant_unless_it_is_said(tmp_path):
    keys = tmp_path / "keys.yaml"
    assert GuardConfig().isolated == "none"
    assert GuardConfig(keys_file=keys).isolated == "tenant"
    assert GuardConfig(keys_file=keys, isolation="none").isolated == "none"
    assert GuardConfig(keys_file=keys, isolation="key").isolated == "key"
    with pytest.raises(ValidationError, match="without keys_file no tenant is known"):
        GuardConfig(isolation="key")


@pytest.mark.parametrize("isolation", [None, "tenant", "key"])
def test_a_store_of_every_clients_answers_is_refused(tmp_path, isolation):
    keys = tmp_path / "keys.yaml"
    apart = GuardConfig(keys_file=keys, isolation=isolation)
    suffix = get_method("vllm_suffix")
    check_isolation(GuardConfig(), [suffix], EngineConfig())
    check_isolation(GuardConfig(keys_file=keys, isolation="none"), [suffix], EngineConfig())
    keep_scopes_apart = ("vllm_ngram", "suffix", "adaptive", "vllm_adaptive")
    check_isolation(apart, [get_method(name) for name in keep_scopes_apart], EngineConfig())
    with pytest.raises(ValueError, match="vllm_suffix drafts from all past answers") as refused:
        check_isolation(apart, [suffix], EngineConfig())
    for fix in ("settings.drafter.max_cached_requests: 0", "isolation: none"):
        assert fix in str(refused.value)
    settings = {**suffix.settings, "drafter": {"max_cached_requests": 0}}
    keeps_none = suffix.model_copy(update={"settings": settings})
    check_isolation(apart, [keeps_none], EngineConfig())
    server = EngineConfig(openai=OpenAIConfig(urls=("http://s/v1",)))
    with pytest.raises(ValueError, match="its replica; remove the method"):
        check_isolation(apart, [keeps_none], server)


@pytest.mark.parametrize(
    ("isolation", "scopes", "refused"),
    [
        ("none", ("key one",), "key one"),
        ("none", ("tenant acme",), "tenant acme"),
        ("none", None, None),
        ("key", ("key one", "tenant acme"), "tenant acme"),
        ("key", ("key one",), None),
        (None, ("tenant acme", "key alone"), None),
    ],
)
def test_scopes_that_no_request_has_are_refused(tmp_path, isolation, scopes, refused):
    guard = GuardConfig(keys_file=tmp_path / "keys.yaml", isolation=isolation)
    engine = EngineConfig(datastore=DatastoreConfig(folder=tmp_path, scopes=scopes))
    if refused is None:
        check_isolation(guard, [get_method("suffix")], engine)
        return
    kind = refused.split()[0]
    with pytest.raises(ValueError, match=f"scope '{refused}', since .*: set it to {kind}"):
        check_isolation(guard, [get_method("suffix")], engine)


@pytest.fixture
def client(behind_guard):
    """Make a client of the service under an isolation, for keys of two tenants."""
    keys = [key("one", "acme"), key("two", "acme"), key("other", "initech"), key("alone")]
    body = {"keys": [k.model_dump() for k in keys], "tenants": {"acme": {}, "initech": {}}}
    return lambda isolation=None: behind_guard(body, isolation=isolation)()


async def asked_by(client, name, asked):
    headers = {"authorization": f"Bearer {name}"}
    response = await client.post("/v1/chat/completions", json=asked, headers=headers)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize(
    ("isolation", "shared"), [("none", True), ("tenant", True), (None, True), ("key", False)]
)
async def test_a_prefix_of_another_key(client, isolation, shared):
    content = f"{isolation}: {SYSTEM * 2}"
    asked = HELLO | {"messages": [{"role": "user", "content": content}], "model": "tiny:naive"}
    cached = {}
    async with client(isolation) as http:
        for name in ("one", "two"):
            usage = (await asked_by(http, name, asked)).json()["usage"]
            cached[name] = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached["one"] == 0
    assert (cached["two"] > 0) == shared


@pytest.fixture(scope="module")
def suffix_engine(base_config, tiny_bundle):
    engine = load_engine(["suffix"], tiny_bundle, base_config.engine, "replica-2")
    yield engine
    engine.close()


SAID_OF_DRAFTS = ("accepted_tokens", "target_steps")


async def test_no_tenant_learns_what_another_has_asked(ingress, client, suffix_engine):
    """Cached tokens and accepted drafts of a request that another tenant has sent before are those
    of one that nobody has sent."""

    def by_suffix(request, _):
        return merged(
            suffix_engine.generate(request.model_copy(update={"method": "suffix"})), lambda: 0.0
        )

    ingress.streams["ngram"] = by_suffix
    messages = [{"role": "user", "content": f"{SYSTEM} What is a suffix?"}]
    asked = {"model": "tiny:ngram", "messages": messages, "temperature": 0, "max_tokens": 48}
    seen = {}
    async with client() as http:
        for name in ("one", "other", "alone", "two"):
            usage = (await asked_by(http, name, asked | {"ignore_eos": True})).json()["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            seen[name] = cached, *(usage["speculative"][said] for said in SAID_OF_DRAFTS)
    assert seen["one"] == seen["other"] == seen["alone"]
    assert seen["one"][0] == 0
    assert seen["two"][0] > 0, "its own tenant's prefix is found"
    assert seen["two"][-1] < seen["one"][-1], "and so are its own tenant's answers"


async def test_no_tenant_learns_of_another_ones_conversation(client, monkeypatch):
    """A reason says that a method goes on with a conversation: to its own tenant alone."""
    monkeypatch.setattr("router.policy.CONVERSATION_MARGIN", 1e9)
    said = [{"role": "user", "content": "Who answers this?"}]
    pinned = {"model": "tiny:naive", "messages": said, "temperature": 0, "max_tokens": 8}
    async with client() as http:
        answer = (await asked_by(http, "one", pinned)).json()["choices"][0]["message"]
        goes_on = [*said, answer, {"role": "user", "content": "And this?"}]
        reasons = {"other": "preferred", "alone": "preferred", "two": "conversation"}
        for name, reason in reasons.items():
            asked = {"json": {"messages": goes_on}, "headers": {"authorization": f"Bearer {name}"}}
            explained = await http.post("/v1/routing/explain", **asked)
            assert explained.json()["reason"] == reason
            asked = {"model": "tiny", "messages": goes_on, "max_tokens": 4}
            response = await asked_by(http, name, asked)
            assert response.headers["x-specadapt-reason"] == reason

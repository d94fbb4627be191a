"""Clients from npm and PyPI through a whole turn: question, call, its result, answer."""

import json

import pytest
from agents_service import LAST, RESULT, Client

pytestmark = pytest.mark.agents

QUESTION = "How much is it?"
SUM = "echo $((20 + 22))"
OPENCODE = {
    "provider": {
        "specadapt": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{url}/v1"},
            "models": {"tiny": {"limit": {"context": 65536, "output": 4096}}},
        }
    },
    "model": "specadapt/tiny",
    "small_model": "specadapt/tiny",
}
CODEX = (
    'model = "tiny"\nmodel_provider = "specadapt"\n'
    '[model_providers.specadapt]\nname = "specadapt"\n'
    'base_url = "{url}/v1"\nenv_key = "KEY"\nwire_api = "responses"\n'
    "[analytics]\nenabled = false\n"
)


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def sdk(name, **more):
    command = ("node", "sdks.mjs", name, "{url}")
    return Client(command, call("add", a=20, b=22), offers=("add",), **more)


CLIENTS = {
    "codex": Client(
        ("codex", "exec", "--skip-git-repo-check", QUESTION),
        call("exec_command", cmd=SUM),
        {"KEY": "unused", "CODEX_HOME": "{home}"},
        {"config.toml": CODEX},
        ("exec_command", "write_stdin", "multi_agent_v1.spawn_agent", "update_goal"),
    ),
    "claude": Client(
        ("claude", "-p", QUESTION, "--allowedTools", "Bash"),
        call("Bash", command=SUM, description="Add"),
        {
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "unused",
            "ANTHROPIC_MODEL": "tiny",
            "ANTHROPIC_SMALL_FAST_MODEL": "tiny",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        offers=("Bash",),
    ),
    "opencode": Client(
        ("opencode", "run", QUESTION),
        call("bash", command=SUM, description="Add"),
        {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        {".config/opencode/opencode.json": json.dumps(OPENCODE)},
        ("bash", "edit"),
    ),
    "aider": Client(
        (
            *("aider", "--model", "openai/tiny", "--message", QUESTION, "--yes-always"),
            *("--no-git", "--no-analytics", "--no-check-update", "--no-show-model-warnings"),
            "sum.txt",
        ),
        "sum.txt\n```\n42\n```\n",
        {"OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "unused"},
        says="Applied edit to sum.txt",
    ),
    "openai-chat": sdk("openai-chat"),
    "openai-responses": sdk("openai-responses"),
    "anthropic": sdk("anthropic"),
    "ai-responses": sdk("ai-responses"),
    "ai-compatible": sdk("ai-compatible"),
    "litellm-openai": sdk("openai-chat", through="litellm"),
    "litellm-anthropic": sdk("anthropic", through="litellm"),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_runs_a_tool_and_reads_its_result(scripted, run, name):
    client = CLIENTS[name]
    scripted.begin(client.call)
    said = run(client)
    assert client.says in said, said
    assert_whole_turn(scripted.prompts, client)


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
def test_a_page_of_another_origin_does_the_same(scripted, page, name):
    client = CLIENTS[name]
    scripted.begin(client.call)
    assert page(name) == LAST
    assert_whole_turn(scripted.prompts, client)


def assert_whole_turn(prompts, client):
    """The first prompts offer the client's tools; the last one has the tool's result."""
    assert prompts
    for name in client.offers:
        assert any(f'"name": "{name}"' in prompt for prompt in prompts)
    assert not any("x-anthropic-billing-header" in prompt for prompt in prompts)
    assert not client.offers or any("42" in prompt.partition(RESULT)[2] for prompt in prompts)

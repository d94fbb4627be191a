"""Codex's command and Claude Code through a whole turn: question, call, its result, answer."""

import json

import pytest
from agents_service import LAST, RESULT

pytestmark = pytest.mark.agents


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_codex_runs_a_command_and_reads_its_result(scripted, agent, tmp_path):
    scripted.prompts.clear()
    scripted.call = call("exec_command", cmd="echo $((20 + 22))")
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "tiny"\nmodel_provider = "specadapt"\n'
        '[model_providers.specadapt]\nname = "specadapt"\n'
        f'base_url = "{scripted.url}/v1"\nenv_key = "KEY"\nwire_api = "responses"\n'
        "[analytics]\nenabled = false\n"
    )
    said = agent(
        *("codex", "exec", "--skip-git-repo-check", "How much is it?"),
        CODEX_HOME=str(home),
        KEY="unused",
    )
    assert LAST in said, said
    first, second = scripted.prompts
    for name in ("exec_command", "write_stdin", "multi_agent_v1.spawn_agent", "update_goal"):
        assert f'"name": "{name}"' in first
    assert "42" in second.partition(RESULT)[2]


def test_claude_code_runs_a_command_and_reads_its_result(scripted, agent):
    scripted.prompts.clear()
    scripted.call = call("Bash", command="echo $((20 + 22))", description="Add")
    said = agent(
        *("claude", "-p", "How much is it?", "--allowedTools", "Bash"),
        ANTHROPIC_BASE_URL=scripted.url,
        ANTHROPIC_API_KEY="unused",
        ANTHROPIC_MODEL="tiny",
        ANTHROPIC_SMALL_FAST_MODEL="tiny",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
    assert LAST in said, said
    first, second = scripted.prompts[-2:]
    assert '"name": "Bash"' in first
    assert "x-anthropic-billing-header" not in first
    assert "42" in second.partition(RESULT)[2]

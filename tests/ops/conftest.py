"""The command as a user calls it, on real parts: a tiny bundle, the real encoder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ops.main import app


class Command:
    """Runs `specadapt ...` in this process."""

    def __call__(self, *arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *arguments: object):
        """What `--json -` prints: the whole of standard output has to be JSON."""
        result = self(*arguments, "--json", "-")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def refusal(self, *arguments: object) -> str:
        """The one line on standard error of a command that was given bad input."""
        result = self(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        [line] = result.stderr.splitlines()
        assert line.startswith("specadapt: ")
        return line


@pytest.fixture
def specadapt() -> Command:
    return Command()


@pytest.fixture(scope="session")
def prompts_file(tmp_path_factory) -> Path:
    """Twelve short prompts of two domains."""
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [
        {"id": f"{domain}-{i}", "domain": domain, "prompt": f"{text} {i}?"}
        for domain, text in {"math": "What is seven plus", "edit": "Repeat the line number"}.items()
        for i in range(6)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file

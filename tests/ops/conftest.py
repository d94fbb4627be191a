"""The command as a user calls it, on real parts: a tiny bundle, the real encoder."""

import json

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
def specadapt():
    return Command()


@pytest.fixture(scope="session")
def prompts_file(tmp_path_factory):
    """Twelve short prompts of two domains."""
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [
        {"id": f"{domain}-{i}", "domain": domain, "prompt": f"{text} {i}?"}
        for domain, text in {"math": "What is seven plus", "edit": "Repeat the line number"}.items()
        for i in range(6)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def two_subjects(folder, name, count):
    """A file of prompts about two plain subjects."""
    file = folder / f"{name}.jsonl"
    texts = [f"What is {name} plus {i}?" for i in range(count // 2)]
    texts += [f"Write a poem about the {name} sea and {i} ships." for i in range(count // 2)]
    rows = [
        {"id": f"{name}-{i}", "domain": "math" if i < count // 2 else "creative", "prompt": text}
        for i, text in enumerate(texts)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="session")
def world(tmp_path_factory, tiny_bundle):
    """Two profiles of other prompts and the table fitted on the first one."""
    folder = tmp_path_factory.mktemp("routing")
    # A small step-time grid: two batch sizes, one context.
    engine = {"dtype": "float32", "max_batch": 2, "max_context": 256}
    config = {"bundle": str(tiny_bundle.path), "methods": [{"name": "ngram"}], "engine": engine}
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder, Command(), tiny_bundle


@pytest.fixture(scope="session")
def fitted(world):
    folder, specadapt, _ = world
    common = ["--config", folder / "config.yaml", "--max-tokens", 10]
    profiled = specadapt.json(
        "profile", "--out", folder / "fit", "--prompts", two_subjects(folder, "seven", 8), *common
    )
    specadapt.json(
        "profile", "--out", folder / "held", "--prompts", two_subjects(folder, "nine", 6), *common
    )
    made = specadapt.json(
        *["fit", "--profile", folder / "fit", "--clusters", 2, "--out", folder / "routing"],
        *["--prompts", two_subjects(folder, "many", 40)],
    )
    return profiled, made


@pytest.fixture(scope="session")
def served_config(tmp_path_factory, tiny_bundle):
    """A service of two methods."""
    from served import service_config

    return service_config(tmp_path_factory.mktemp("service"), tiny_bundle, ("naive", "ngram"))


@pytest.fixture(scope="session")
def listening(served_config):
    """The address of that service, in this process."""
    from service_here import service_here

    with service_here(served_config) as url:
        yield url

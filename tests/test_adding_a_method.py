"""The worked example of docs/engine.md, taken from the page and run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from workers.bundle import Bundle

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "engine.md"
PROMPT = "one two one two one two one"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms with the page's file and entry in their places."""
    house = tmp_path_factory.mktemp("house")
    for room in ("schemas", "workers", "router", "deployments", "training", "ops"):
        shutil.copytree(ROOT / room, house / room, ignore=shutil.ignore_patterns("__pycache__"))
    page = PAGE.read_text(encoding="utf-8")
    [(place, source)] = re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)```", page, re.M | re.S)
    [entry] = re.findall(r"`_ALL`:\n\n```python\n(.*?)```", page, re.S)
    assert not (house / place).exists()
    (house / place).write_text(source)
    methods = house / "workers" / "methods.py"
    before, end, after = methods.read_text().partition("\n)\n\nMETHODS")
    assert end
    methods.write_text(f"{before}\n{indent(entry.rstrip(), ' ' * 4)},{end}{after}")
    return house


def specadapt(house: Path, *arguments: object):
    """What a command of the copy writes as JSON."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ops", *map(str, arguments), "--json", "-"],
        env={"PYTHONPATH": str(house), "PATH": "/usr/bin:/bin"},
        cwd=house,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("check", [("check",), ("format", "--check")])
def test_it_is_written_as_the_rest(house: Path, check: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ruff", *check, "--config", ROOT / "pyproject.toml", "workers"]
    done = subprocess.run(command, cwd=house, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_is_listed(house: Path) -> None:
    [bigram] = [m for m in specadapt(house, "methods") if m["name"] == "bigram"]
    parts = ("bigram", "chain", "fixed", "one_hot")
    assert tuple(bigram[r] for r in ("drafter", "tree", "stop", "verifier")) == parts


@pytest.mark.slow
def test_it_says_what_plain_decoding_says_in_fewer_steps(house: Path, tiny_bundle: Bundle) -> None:
    asked = ("--bundle", tiny_bundle.path, "--prompt", PROMPT, "--max-tokens", 48)
    asked = (*asked, "--dtype", "float32", "--threads", 1)
    naive = specadapt(house, "generate", "--method", "naive", *asked)
    bigram = specadapt(house, "generate", "--method", "bigram", *asked)
    assert bigram["text"] == naive["text"]
    assert bigram["stats"]["output_tokens"] == naive["stats"]["output_tokens"]
    assert bigram["stats"]["accepted_tokens"] > 0
    assert bigram["stats"]["target_steps"] < naive["stats"]["target_steps"]

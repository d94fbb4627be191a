"""Functions of the standard library and of permissively licensed installed packages."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from training.demo_corpus.rows import Sample, stable_fraction

_PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache)\b", re.IGNORECASE)
_RESTRICTIVE = re.compile(r"GPL|\bMPL|\bEPL|CDDL|proprietary|non-?commercial", re.IGNORECASE)
PER_FILE = 25  # so that no large module fills the corpus
_SKIPPED = re.compile(r"(^|/)(tests?|testing|site-packages|idlelib|lib2to3|_vendor|vendor)(/|$)")


def permissive(distribution: metadata.Distribution) -> str | None:
    """The licence of a distribution when its metadata names only MIT, BSD or Apache."""
    info = distribution.metadata
    named = [
        value for key in ("License-Expression", "License") for value in info.get_all(key) or []
    ]
    named += [value for value in info.get_all("Classifier") or [] if value.startswith("License ::")]
    text = " ".join(value[:200] for value in named)
    if _RESTRICTIVE.search(text):
        return None
    found = sorted({match.upper() for match in _PERMISSIVE.findall(text)})
    return "/".join(found) or None


def _package_files() -> Iterator[tuple[str, str, Path]]:
    """(distribution, path inside it, path on disk) of every file that may be used."""
    standard = Path(sysconfig.get_paths()["stdlib"])
    for path in standard.rglob("*.py"):
        inside = path.relative_to(standard).as_posix()
        if not _SKIPPED.search(inside):
            yield "python", inside, path
    for distribution in metadata.distributions():
        if permissive(distribution) is None:
            continue
        name = distribution.name  # parses the metadata anew at every access
        record = distribution.read_text("RECORD") or ""
        for inside in (line.split(",")[0] for line in record.splitlines()):
            if inside.endswith(".py") and not _SKIPPED.search(inside):
                yield name, inside, Path(str(distribution.locate_file(inside)))


def _functions(path: Path) -> Iterator[tuple[str, str, str]]:
    """(signature, first docstring paragraph, body) of the documented functions of a file."""
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or len(node.body) < 2:
            continue
        docstring = ast.get_docstring(node)
        if not docstring or node.end_lineno is None:
            continue
        summary = " ".join(docstring.split("\n\n")[0].split())
        first = node.body[1]
        if not 12 <= len(summary) <= 160 or '"""' in summary or "\\" in summary:
            continue
        signature = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
        body = "\n".join(lines[first.lineno - 1 : node.end_lineno])
        indent = " " * node.col_offset
        strip = re.compile(rf"^{indent}", re.MULTILINE)
        signature, body = strip.sub("", signature), strip.sub("", body)
        if 30 <= len(body) <= 800 and signature.isascii() and signature.rstrip().endswith(":"):
            yield signature, summary, body


def python_samples(max_chars: int, seed: int) -> Iterator[tuple[str, Sample]]:
    """(distribution, sample) until about `max_chars` characters; every function once.

    A file's samples depend on `seed` and the file alone, so that another set of installed
    packages adds or removes samples and changes none.
    """
    files = sorted(_package_files(), key=lambda file: stable_fraction(seed, file[1]))
    total, seen = 0, set()
    for package, inside, path in files:
        rng, taken = random.Random(f"{seed}/{inside}"), 0
        for signature, summary, body in _functions(path):
            if body in seen or taken >= PER_FILE:
                continue
            seen.add(body)
            taken += 1
            sample = _sample(rng, path.name, signature, summary, body)
            total += len(sample.prompt) + len(sample.response)
            yield package, sample
        if total >= max_chars:
            return


def _sample(rng: random.Random, file: str, signature: str, summary: str, body: str) -> Sample:
    group = f"{file}/{body[:80]}"
    documented = f'{signature}\n    """{summary}"""'
    if rng.random() < 0.8:
        ask = rng.choice(["Complete this Python function.", "Write the body of this function."])
        return Sample("code", "complete", group, f"{ask}\n{documented}", f"{documented}\n{body}")
    ask = rng.choice(["Write a docstring for this function.", "What does this function do?"])
    return Sample("code", "docstring", group, f"{ask}\n{signature}\n{body}", summary)

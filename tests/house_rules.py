"""Rules of size and use: how large a file may be, and that nothing in the repository is unused."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from import_rules import files, imported

MAX_FILES = 24
MAX_LINES = 450
MAX_PAGE_LINES = 400
RESULTS = Path("docs/results")
ARCHITECTURE = Path("docs/architecture.md")


def crowded_folders(root: Path) -> list[str]:
    """Return every folder of the packages with more than MAX_FILES Python files."""
    counts: dict[Path, int] = {}
    for file in files(root):
        counts[file.parent] = counts.get(file.parent, 0) + 1
    return [
        f"{folder.as_posix()} has {count} Python files, more than {MAX_FILES}: use subfolders"
        for folder, count in counts.items()
        if count > MAX_FILES
    ]


def long_files(root: Path) -> list[str]:
    """Return every Python file of the packages and the tests with more than MAX_LINES lines."""
    names = [file.relative_to(root) for file in _python_files(root)]
    return [*_longer(root, names, MAX_LINES)]


def long_pages(root: Path) -> list[str]:
    """Return every page of the documentation with more than MAX_PAGE_LINES lines."""
    return [*_longer(root, _pages(root), MAX_PAGE_LINES)]


def _longer(root: Path, names: list[Path], limit: int) -> Iterator[str]:
    for name in names:
        lines = len((root / name).read_text().splitlines())
        if lines > limit:
            yield f"{name.as_posix()} has {lines} lines, more than {limit}"


def unused_modules(root: Path) -> list[str]:
    """Return every module of the packages that nothing imports, registers or names.

    A string or a configuration file names a module by its dotted path, as an entry point does.
    Tests do not count as users.
    """
    sources = {file: ast.parse((root / file).read_text()) for file in files(root)}
    named = set(_dotted_names(root))
    for file, tree in sources.items():
        for name in {name for _, name in imported(tree, file)} | set(_strings(tree)):
            named |= {name, name.rpartition(".")[0]}
    return [
        f"{file.as_posix()} is not imported, registered or named"
        for file, tree in sources.items()
        if file.stem not in {"__init__", "__main__"}
        and ".".join(file.with_suffix("").parts) not in named
        and not _registers(tree)
    ]


def _strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


def _dotted_names(root: Path) -> Iterator[str]:
    """Yield the dotted names in build and configuration files."""
    kept = [root / "pyproject.toml", root / "Makefile", *root.glob("*.yaml")]
    for folder in ("configs", "k8s"):
        kept += [file for file in (root / folder).rglob("*") if file.is_file()]
    for file in kept:
        if file.is_file():
            yield from re.findall(r"[a-z_]\w*(?:\.\w+)+", file.read_text())


def _registers(tree: ast.Module) -> bool:
    decorators = [
        decorator
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        for decorator in node.decorator_list
    ]
    return any(ast.unparse(each).startswith("register(") for each in decorators)


def unnamed_results(root: Path) -> list[str]:
    """Return every file under RESULTS whose name stands in no page and no test."""
    texts = [root / page for page in _pages(root)] + [*(root / "tests").rglob("*.py")]
    text = "\n".join(each.read_text() for each in texts)
    return [
        f"{file.relative_to(root).as_posix()} is named by no page and no test"
        for file in sorted((root / RESULTS).rglob("*"))
        if file.is_file() and file.suffix != ".md" and file.name not in text
    ]


def missing_files(root: Path) -> list[str]:
    """Return every Python file that ARCHITECTURE names and the repository does not have."""
    page = root / ARCHITECTURE
    named = re.findall(r"`([\w/]+\.py)`", page.read_text()) if page.is_file() else []
    known = ["/" + file.relative_to(root).as_posix() for file in _python_files(root)]
    return [
        f"{ARCHITECTURE.as_posix()} names {name}, which is not there"
        for name in dict.fromkeys(named)
        if not any(file.endswith("/" + name) for file in known)
    ]


def _python_files(root: Path) -> list[Path]:
    tests = sorted((root / "tests").rglob("*.py"))
    return [*(root / file for file in files(root)), *tests]


def _pages(root: Path) -> list[Path]:
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "bundles").rglob("*.md")]
    return [page.relative_to(root) for page in sorted(pages)]

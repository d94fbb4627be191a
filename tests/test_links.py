"""Every relative link and anchor of the README and the pages under docs/ and bundles/ exists."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("bundles/*/README.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def links() -> Iterator[tuple[Path, Path, str]]:
    """Yield the file of each link, the file that it names, and the anchor."""
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if not target.startswith(("http:", "https:")):
                path, _, anchor = target.partition("#")
                yield page, (page.parent / path).resolve() if path else page, anchor
    for folder in ("configs", "deployments", "k8s", "ops", "router", "schemas", "workers"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in {".py", ".js", ".yaml"}:
                for target in NAMED.findall(file.read_text()):
                    path, _, anchor = target.partition("#")
                    yield file, ROOT / path, anchor


def test_every_link_has_its_file_and_heading() -> None:
    broken = [
        f"{file.relative_to(ROOT)}: {target.name}#{anchor}"
        for file, target, anchor in links()
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []

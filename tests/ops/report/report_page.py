"""A report's page as a reader's machine sees it: its elements, without a browser."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """A parsed page.

    tables: by id the cells' values, a row each; figures as numbers. headings: (level, text).
    addresses: the values of src, href and action. ids: of elements. images: the source by
    alternative text. scripts: the number of script elements.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tables: dict[str, list[list[object]]] = {}
        self.headings: list[tuple[int, str]] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.named_by: list[str] = []
        self.metas: list[dict[str, str]] = []
        self.images: dict[str, str] = {}
        self.scripts = 0
        self._open: list[str] = []
        self._table = ""
        self._figure: float | None = None
        self._text = ""
        self.feed(file.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.addresses += [given[name] for name in ("src", "href", "action") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.named_by += given.get("aria-labelledby", "").split()
        if tag == "meta":
            self.metas.append(given)
        if tag == "img":
            self.images[given["alt"]] = given["src"]
        self.scripts += tag == "script"
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = given["id"]
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag == "data":
            self._figure = float(given["value"])
        if tag in ("td", "th", "h1", "h2", "h3"):
            self._text = ""

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> closes nothing"
        if tag in ("td", "th"):
            value = self._text.strip() if self._figure is None else self._figure
            self.tables[self._table][-1].append(value)
            self._figure = None
        if tag in ("h1", "h2", "h3"):
            self.headings.append((int(tag[1]), self._text.strip()))

    def handle_data(self, data):
        self._text += data

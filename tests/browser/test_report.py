"""The report in a real Chromium: drawn offline, on light and dark, in print, and as it is heard."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ops.report.report import Sources, make_report

if TYPE_CHECKING:
    from chat_page import Browser, ChatPage

pytestmark = pytest.mark.browser

CHARTS = ["figure-6", "figure-7"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the paper's numbers."""
    out = tmp_path_factory.mktemp("report")
    make_report(Sources(None, None, (), None, None, 10, 0.0, None, 0), out)
    return out / "report.html"


@pytest.fixture
def report(browser: "Browser", file: Path) -> "ChatPage":
    """The page, its charts drawn."""
    page = browser.begin(file.as_uri())
    page.until(lambda: len(page.all(".chart .barlayer")) == len(CHARTS))
    return page


def test_it_is_drawn_and_asks_for_nothing(report: "ChatPage") -> None:
    assert report.console_errors() == []
    assert report.run("return performance.getEntriesByType('resource').length") == 0
    for chart, bars in {"figure-6": 60, "figure-7": 10}.items():
        paths = f"[...document.querySelectorAll('#{chart}-chart .point path')]"
        assert report.run(f"return {paths}.filter((p) => p.getBBox().height > 0).length") == bars


@pytest.mark.parametrize("width", [360, 1000])
def test_no_width_scrolls_sideways(browser: "Browser", file: Path, width: int) -> None:
    page = browser.begin(file.as_uri(), width=width)
    page.until(lambda: len(page.all(".chart .barlayer")) == len(CHARTS))
    assert page.sideways() == 0


CONTRAST = """
const [ink, ground] = [arguments[0], arguments[1]].map((colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
});
return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(browser: "Browser", file: Path, scheme: str) -> None:
    browser.prefer(scheme)
    page = browser.begin(file.as_uri())
    page.until(lambda: page.all(".chart .xtick text"))
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    colours = [
        page.run("return getComputedStyle(document.querySelector('.chart .xtick text')).fill"),
        *(
            page.run(f"return getComputedStyle(document.querySelector({selector!r})).color")
            for selector in ("p", ".note", "td", "nav a")
        ),
    ]
    for colour in colours:
        assert page.driver.execute_script(CONTRAST, colour, ground) >= 4.5
    browser.reset()


def test_what_a_screen_reader_is_told(report: "ChatPage") -> None:
    found = report.heard()
    assert len(found["main"]) == len(found["banner"]) == 1
    assert found["navigation"] == ["Sections"]
    assert len(found["image"]) == len(CHARTS)
    assert all("the figures are in the table below" in name for name in found["image"])
    assert all(found["table"])
    assert found["columnheader"][:2] == ["metric", "paper"]
    report.run("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    more = len(report.heard()["table"]) - len(found["table"])
    assert more == len(CHARTS), "a table for every chart"


def test_every_table_is_printed(browser: "Browser", report: "ChatPage") -> None:
    report.run("dispatchEvent(new Event('beforeprint'))")
    assert not report.all("details:not([open])")
    report.run("dispatchEvent(new Event('afterprint'))")
    assert not report.all("details[open]")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert report.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    ground = report.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.reset()

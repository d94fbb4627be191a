"""The report in a real Chromium: offline, on light and dark, in print, and as it is heard."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from profile_report import profile_report

from ops.report.report import Sources, make_report

if TYPE_CHECKING:
    from chat_page import Browser, ChatPage

pytestmark = pytest.mark.browser

CHARTS = ["figure-6", "figure-7"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the paper's numbers."""
    out = tmp_path_factory.mktemp("report")
    make_report(Sources(None, None, None, None, 10, 0.0, None, 0), out)
    return out / "report.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, file: Path) -> dict[str, Path]:
    """Return the pages of the paper and of a profile."""
    return {"paper": file, "profile": profile_report(tmp_path_factory.mktemp("profile"))}


PAGES = pytest.mark.parametrize("name", ["paper", "profile"])


def drawn(browser: "Browser", file: Path, width: int = 1000) -> "ChatPage":
    """Open the page and wait until its pictures are decoded."""
    page = browser.begin(file.as_uri(), width=width)
    page.until(lambda: page.run("return [...document.images].every((image) => image.complete)"))
    return page


@pytest.fixture
def report(browser: "Browser", file: Path) -> "ChatPage":
    return drawn(browser, file)


@PAGES
def test_every_chart_is_shown(browser: "Browser", pages: dict[str, Path], name: str) -> None:
    page = drawn(browser, pages[name])
    assert page.console_errors() == []
    assert page.all("script") == []
    widths = page.run("return [...document.images].map((image) => image.naturalWidth)")
    assert len(widths) == len(page.all("figure"))
    assert min(widths) >= 500


INKS = """return [...document.images].map((image) => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const inks = {};
  for (let at = 0; at < data.length; at += 4) {
    const ink = data[at + 3] === 255 ? `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})` : null;
    inks[ink] = (inks[ink] ?? 0) + 1;
  }
  return { ground: data[3], inks: Object.keys(inks).filter((ink) => inks[ink] >= 200) };
})"""
"""By picture how opaque its corner is, and the colours that much of it has."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_legible_on_any_page(
    browser: "Browser", pages: dict[str, Path], scheme: str
) -> None:
    """They are transparent: whatever they are drawn in differs from the page's ground."""
    browser.prefer(scheme)
    page = drawn(browser, pages["profile"])
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    found = page.run(INKS)
    assert {picture["ground"] for picture in found} == {0}
    for ink in {ink for picture in found for ink in picture["inks"]} - {"null"}:
        assert page.contrast(ink, ground) >= 3.0, f"{ink} on {ground}"
    browser.reset()


@PAGES
@pytest.mark.parametrize("width", [360, 1000])
def test_a_page_fits_its_window_and_asks_for_nothing(
    browser: "Browser", pages: dict[str, Path], name: str, width: int
) -> None:
    page = drawn(browser, pages[name], width)
    assert page.sideways() == 0
    asked = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [address for address in asked if not address.startswith("data:")] == []


COLOURS = """return [...document.querySelectorAll("p, .note, td, th, nav a, summary")]
  .map((element) => getComputedStyle(element).color)"""


@PAGES
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_shown_is_legible(
    browser: "Browser", pages: dict[str, Path], name: str, scheme: str
) -> None:
    """Text differs from its ground by 4.5 (WCAG 2.2, 1.4.3)."""
    browser.prefer(scheme)
    page = drawn(browser, pages[name])
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    for colour in set(page.run(COLOURS)):
        assert page.contrast(colour, ground) >= 4.5, f"{colour} on {ground}"
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
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    heights = "return [...document.querySelectorAll('table')].map((t) => t.offsetHeight)"
    assert min(report.run(heights)) > 0
    assert report.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    ground = report.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.reset()

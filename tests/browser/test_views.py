"""The views beside the chat: every method side by side, and the routing table as a picture."""

import httpx
import pytest
from page_service import LIST, METHODS

pytestmark = pytest.mark.browser


def compared(page):
    page.until(lambda: page.one("#run").is_displayed() and page.all("#lanes .turn"))


def test_the_views_are_links_and_the_back_button_knows_them(page):
    for name in ("Compare", "Routing", "Chat"):
        page.view(name)
        page.until(lambda name=name: page.one(f"#{name.lower()}").is_displayed())
        [current] = page.all("nav a[aria-current=page]")
        assert current.text == name
        assert len([s for s in page.all("main > section") if s.is_displayed()]) == 1
    page.driver.back()
    page.until(lambda: page.one("#routing").is_displayed())
    assert page.console_errors() == []


def test_one_prompt_goes_through_every_method(page):
    page.view("Compare")
    page.until(lambda: page.focused() == "question")
    page.one("#question").send_keys("Write an advertisement for soap from a tailor in Madrid.")
    page.press("TAB")
    page.press("ENTER")
    compared(page)
    assert [lane.accessible_name for lane in page.all("#lanes > section")] == METHODS
    assert [m.text for m in page.all("#lanes .facts .method")] == METHODS
    texts = [e.text for e in page.all("#lanes .text")]
    assert texts[0]
    assert texts == [texts[0]] * 3, "lossless methods at temperature 0"
    tops = {lane.rect["y"] for lane in page.all("#lanes > section")}
    assert len(tops) == 1, "not side by side"

    speeds = page.run(
        "return [...document.querySelectorAll('#lanes progress')].map((p) => p.value)"
    )
    assert max(speeds) == 1
    assert all(0 < speed <= 1 for speed in speeds)
    verdict = page.one("#verdict").text
    assert verdict.startswith(f"Fastest this time: {METHODS[speeds.index(1)]}, ")
    assert page.one("#status").get_attribute("textContent") == verdict
    assert page.console_errors() == []


def test_a_comparison_can_be_stopped(page):
    page.view("Compare")
    page.run(
        """new MutationObserver((_, seen) => {
          if (!document.querySelector('#lanes .text')?.textContent) return;
          seen.disconnect();
          document.getElementById('halt').click();
        }).observe(document.getElementById('lanes'), {subtree: true, childList: true});"""
    )
    page.one("#question").send_keys("Tell me a long story about a sailor and a lighthouse.")
    page.one("#run").click()
    compared(page)
    assert page.one("#lanes").text.count("You stopped this answer.") == 1
    assert not page.one("#verdict").is_displayed()
    assert len([e for e in page.all("#lanes .text") if e.is_displayed()]) == 1


def test_a_refusal_is_said_in_every_lane(page):
    page.view("Compare")
    page.run(f"document.getElementById('question').value = {'word ' * 900!r}")
    page.one("#run").click()
    compared(page)
    assert len(page.errors()) == 3
    assert all("token" in error for error in page.errors())


def test_the_clusters_are_listed(page, address):
    table = httpx.get(f"{address}/v1/routing").json()
    page.view("Routing")
    page.until(lambda: page.all("#clusters svg"))
    assert "Ask something" in page.one("#fell").text

    rows = [" ".join(row.split()) for row in page.texts("#clusters tbody tr")]
    assert len(rows) == table["clusters"]
    for k, (row, one) in enumerate(zip(rows, table["assignment"], strict=True)):
        low, high = one["low"], one["high"]
        sampled = low if low == high else f"{low} to 0.7, {high} above"
        begin = f"{k} {one['greedy']} {sampled} "
        assert row.startswith(begin)
        assert float(row.removeprefix(begin).split()[0]) > 0, "expected tokens/s"
    assert page.texts("#methods tbody th") == table["methods"]


def test_the_last_prompts_cluster_is_marked(page):
    page.ask(LIST)
    page.finished()
    facts = page.facts()
    page.view("Routing")
    told = f"Your last prompt fell into cluster {facts['cluster']} and was answered by"
    page.until(lambda: page.one("#fell").text == f"{told} {facts['method']}.")
    assert page.texts("#clusters tr[aria-current=true] th") == [facts["cluster"]]


def test_the_view_keeps_up_with_the_table(page):
    page.view("Routing")
    page.until(lambda: page.all("#clusters svg"))
    before = page.one("#clusters svg")
    page.until(lambda: page.one("#clusters svg") != before)

    page.view("Chat")
    page.run(
        """window.asked = 0;
        const real = window.fetch;
        window.fetch = (url, options) => {
          window.asked += url === 'v1/routing';
          return real(url, options);
        };
        // more than two of the view's intervals
        setTimeout(() => { window.later = true; }, 4500);"""
    )
    page.until(lambda: page.run("return window.later"))
    assert page.run("return window.asked") <= 1, "asked for while out of sight"


COUNTED = """const real = window.fetch;
window.counts = {0: [30, 300, 600]};
window.fetch = async (url, options) => {
  if (url !== 'v1/routing') return real(url, options);
  const table = await (await real(url, options)).json();
  const sums = Object.entries(window.counts);
  table.loads[0].heads = sums.map(([version, [answers, steps, tokens]]) => (
    { part: 'eagle3', version: Number(version), answers, steps, tokens }));
  return new Response(JSON.stringify(table));
};"""
"""Adds counts of a head's versions to a replica's load report, as trained drafters have them."""


def test_what_the_versions_of_a_head_bring_is_drawn_over_time(page):
    page.view("Routing")
    page.until(lambda: page.all("#clusters svg"))
    assert not page.one("#heads").is_displayed()

    page.run(COUNTED)
    page.until(lambda: len(page.all("#acceptance path")) == 1)
    # Another version, and the first one in other steps; too few for a point at first.
    page.run("window.counts = {0: [40, 399, 700], 10: [9, 90, 270], 2: [30, 250, 750]};")
    page.until(lambda: len(page.all("#acceptance path")) == 2)
    page.run("window.counts = {0: [60, 500, 1000], 10: [9, 90, 270], 2: [30, 250, 750]};")
    page.until(lambda: len(page.all("#acceptance path")) == 3)
    titles = page.run(
        "return [...document.querySelectorAll('#acceptance title')].map((e) => e.textContent);"
    )
    said = [title.partition(" tokens")[0] for title in titles]
    assert said == ["eagle3 0: 2.00", "eagle3 0: 2.00", "eagle3 2: 3.00"]
    rows = [" ".join(row.split()) for row in page.texts("#versions tbody tr")]
    assert rows == ["eagle3 0 60 2.00", "eagle3 2 30 3.00", "eagle3 10 9 3.00"]
    assert any("eagle3 0: 2.00, eagle3 2: 3.00" in picture for picture in page.heard()["image"])
    assert page.sideways() == 0
    assert page.console_errors() == []


def test_a_table_out_of_reach_is_said(page, browser):
    browser.offline(True)
    page.view("Routing")
    page.until(lambda: page.errors() == ["The server cannot be reached. Is it running?"])
    browser.offline(False)
    page.until(lambda: page.all("#clusters svg") and not page.errors())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["Compare", "Routing"])
def test_on_a_phone_the_views_fit(browser, page, address, view, scheme):
    browser.prefer(scheme)
    page = browser.open(address, 360, 740)
    page.view(view)
    if view == "Compare":
        page.one("#question").send_keys("Hello!")
        page.one("#run").click()
        compared(page)
        assert page.one("#verdict").is_displayed()
    else:
        page.until(lambda: page.all("#clusters svg"))
    assert page.sideways() == 0
    edges = page.run(
        """const shown = [...document.querySelectorAll('#caption, #lanes > section, nav a')];
        return shown.map((e) => e.getBoundingClientRect()).map(({left, right}) => [left, right]);"""
    )
    assert len(edges) >= 4
    assert [(left, right) for left, right in edges if left < 0 or right > 360] == []
    tops = {link.rect["y"] for link in [page.one("h1"), *page.all("nav a")]}
    assert max(tops) - min(tops) < 20, "the header takes more than a line"

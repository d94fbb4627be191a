"""What a visitor does first: look at the page, ask, read, ask again; with mouse, keys, phone."""

import re

import httpx
import pytest
from page_service import LIST, METHODS

pytestmark = pytest.mark.browser


def words(text: str) -> list[str]:
    """Without markup, which the page shows as what it means."""
    return re.findall(r"\w+", text)


def test_the_page_says_what_it_is_without_errors(page):
    assert page.driver.title == "SpecAdapt"
    assert page.one("#hint").is_displayed()
    assert page.one("#note").is_displayed()
    assert len(page.all("#examples button")) == 4
    options = [option.text for option in page.all("#model option")]
    assert options[0] == "best for each prompt"
    assert {o.removeprefix("only ") for o in options[1:]} == set(METHODS)
    assert page.focused() == "prompt"
    assert page.console_errors() == []


def test_an_answer_streams_and_says_who_gave_it_and_how_fast(page):
    page.run(
        """window.lengths = new Set();
        new MutationObserver(() => {
          const text = document.querySelector('.assistant .text');
          if (text) window.lengths.add(text.textContent.length);
        }).observe(document.getElementById('log'), {subtree: true, childList: true});"""
    )
    page.ask("Tell me a long story about a sailor and a lighthouse.")
    page.finished()
    [answer] = page.answers()
    assert len(answer) > 10
    assert len(page.run("return [...window.lengths]")) > 3, "it came in one piece"
    facts = page.facts()
    assert facts["method"] in METHODS
    assert int(facts["cluster"]) >= 0
    assert float(facts["tokens/s"]) > 0
    assert float(facts["tokens/step"]) >= 1
    assert "accepted" in facts or facts["drafted"] == "nothing"
    assert facts["why"]
    assert words(page.one("#status").get_attribute("textContent")) == ["Answer", *words(answer)]
    assert page.console_errors() == []


def test_a_second_turn_goes_on_with_the_conversation(page):
    page.record_conversations()
    page.ask("Hello!")
    page.finished()
    page.ask("And what is your name?")
    page.finished(2)
    first, second = page.conversations()
    [said] = page.run("return [document.querySelector('.assistant .text').textContent]")
    assert [m["role"] for m in second] == ["user", "assistant", "user"]
    assert second[0] == first[0]
    assert words(second[1]["content"]) == words(said)
    assert len(page.answers()) == 2

    page.one("#fresh").click()
    assert page.answers() == []
    assert page.one("#hint").is_displayed()
    page.ask("Hello!")
    page.finished()
    assert len(page.conversations()[2]) == 1


def test_a_method_can_be_chosen(page):
    next(o for o in page.all("#model option") if o.text == "only ngram").click()
    page.ask(LIST)
    page.finished()
    assert page.facts()["method"] == "ngram"
    assert page.facts()["why"] == "your choice"


def test_an_example_is_asked_with_one_click(page):
    page.all("#examples button")[1].click()
    page.finished()
    assert "Add a docstring" in page.one(".user .text").text
    assert not page.one("#hint").is_displayed()
    assert page.answers()


def test_what_the_server_refuses_is_said_and_can_be_changed(page):
    long = "word " * 900
    page.run(f"document.getElementById('prompt').value = {long!r}")
    page.press("ENTER")
    [message] = page.until(page.errors)
    assert "token" in message
    assert "{" not in message
    assert page.answers() == []
    assert page.one("#prompt").get_attribute("value").strip() == long.strip()
    assert message in page.one("#status").get_attribute("textContent")

    seen = page.run(
        """const log = document.getElementById('log').getBoundingClientRect();
        const error = document.querySelector('.error').getBoundingClientRect();
        return error.top >= log.top && error.bottom <= log.bottom;"""
    )
    assert seen, "the message is out of sight"

    page.one("#prompt").clear()
    page.ask("Hello!")
    page.finished(2)
    assert len(page.answers()) == 1


def test_a_server_that_is_gone_is_said_in_words(page, browser):
    browser.offline(True)
    page.ask("Hello!")
    assert page.until(page.errors) == ["The server cannot be reached. Is it running?"]
    browser.offline(False)
    page.press("ENTER")
    page.finished(2)
    assert len(page.answers()) == 1


@pytest.mark.parametrize("how", ["button", "escape"])
def test_an_answer_can_be_stopped(page, address, how):
    stop = {
        "button": "document.getElementById('stop').click()",
        "escape": "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))",
    }[how]
    page.run(
        f"""const seen = new MutationObserver(() => {{
          if (!document.querySelector('.assistant .text')?.textContent) return;
          seen.disconnect();
          {stop};
        }});
        seen.observe(document.getElementById('log'), {{subtree: true, childList: true}});"""
    )
    page.ask("Tell me a long story about a sailor, a goat and a lighthouse.")
    page.finished()
    assert "You stopped this answer." in page.one(".assistant").text
    assert page.facts() == {} or "tokens/s" not in page.facts()
    assert page.one("#send").is_displayed()
    assert not page.one("#stop").is_displayed()
    assert page.focused() == "prompt"

    def idle() -> bool:
        loads = httpx.get(f"{address}/v1/routing").json()["loads"]
        return all(load["running"] == 0 for load in loads)

    page.until(idle)


@pytest.mark.parametrize("width", [320, 360])
def test_on_a_phone_nothing_is_wider_than_the_window(browser, page, address, width):
    page = browser.open(address, width, 740)
    assert page.sideways() == 0
    page.run(f"document.getElementById('prompt').value = {'x' * 300!r}")
    page.one("#send").click()
    page.finished()
    assert page.sideways() == 0
    for selector in ("#send", "#fresh", "#model", "#temperature"):
        box = page.one(selector).rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] >= 24
        assert box["width"] >= 48


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page, browser, scheme):
    """WCAG 2.2's contrast of 4.5 for everything that is written."""
    browser.prefer(scheme)
    page.ask("Hello!")
    page.finished()
    shown = page.run(
        """const behind = (e) => {
          const color = getComputedStyle(e).backgroundColor;
          return color === 'rgba(0, 0, 0, 0)' ? behind(e.parentElement) : color;
        };
        const shown = ['h1', 'nav a', 'label', '#fresh', '.user .text', '.assistant .text',
          '.facts span', '.facts b', '.hint .drafted', '.method', '#again', '#send'];
        return shown.map((selector) => {
          const e = document.querySelector(selector);
          return [selector, getComputedStyle(e).color, behind(e)];
        });"""
    )
    for selector, ink, ground in shown:
        assert page.contrast(ink, ground) >= 4.5, f"{selector}: {ink} on {ground}"


def test_everything_has_a_name_and_can_be_reached_by_keys(page):
    for control in page.all("select, input, textarea, button, a, .scroll"):
        if control.is_displayed():
            assert control.accessible_name, control.get_attribute("outerHTML")
    assert page.one("html").get_attribute("lang") == "en"
    assert len(page.all("h1")) == 1

    page.run("document.querySelector('nav a').focus()")
    order = [page.focused()]
    for _ in range(12):
        page.press("TAB")
        order.append(page.focused())
    assert order[:7] == ["a", "a", "a", "fresh", "model", "temperature", "log"]
    assert order[7:11] == ["button"] * 4
    assert order[11:] == ["prompt", "send"]


def test_a_line_break_does_not_send(page):
    page.type("one\ntwo")
    assert page.one("#prompt").get_attribute("value") == "one\ntwo"
    assert page.all(".turn") == []

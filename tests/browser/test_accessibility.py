"""The page for those who use keys, hear it, or want it to stand still."""

import pytest

pytestmark = pytest.mark.browser

VIEWS = ("Chat", "Compare", "Routing")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_its_landmarks(page, view):
    page.view(view)
    if view == "Routing":
        page.until(lambda: page.all("#clusters svg"))
    found = page.heard()
    assert found["navigation"] == ["Views"]
    assert len(found["main"]) == len(found["banner"]) == 1
    assert found["region"] == [view]
    assert page.texts("h1") == ["SpecAdapt"]
    status = page.one("[role=status]")
    assert status.get_attribute("aria-live") == "polite"
    assert [link.get_attribute("aria-current") for link in page.all("nav a")] == [
        "page" if name == view else None for name in VIEWS
    ]


def test_tables_can_be_heard(page):
    page.view("Routing")
    page.until(lambda: page.all("#clusters svg"))
    found = page.heard()
    clusters = [str(k) for k in range(len(page.texts("#clusters tbody tr")))]
    assert found["columnheader"][:2] == ["Cluster", "Method"]
    assert found["rowheader"] == [*clusters, *page.texts("#methods tbody th")]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("Compare", ["question", "run", "Answers by method"]),
        ("Routing", ["The routing table in force", "Everything"]),
    ],
)
def test_the_tab_key_goes_through_a_view(page, view, expected):
    page.view(view)
    if view == "Routing":
        page.until(lambda: page.all("#clusters svg"))
    page.run("[...document.querySelectorAll('nav a')].at(-1).focus()")
    order = []
    for _ in expected:
        page.press("TAB")
        focused = page.driver.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.accessible_name)
        outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"{order[-1]} does not show that it has the focus"
    assert order == expected


def test_links_and_buttons_work_by_key(page):
    page.run("document.querySelectorAll('nav a')[1].focus()")
    page.press("ENTER")
    page.until(lambda: page.one("#compare").is_displayed())
    page.until(lambda: page.focused() == "question")
    page.driver.back()
    page.until(lambda: page.focused() == "prompt")


@pytest.mark.parametrize(("motion", "animation"), [("no-preference", "blink"), ("reduce", "none")])
def test_nothing_moves_for_those_who_do_not_want_it(browser, page, motion, animation):
    browser.prefer(motion=motion)
    seen = page.imported(
        "answer.js",
        """const log = document.getElementById('log');
        const { turn, body } = new it.Answer(log);
        turn.classList.add('busy');
        log.append(turn);
        return getComputedStyle(body, '::after').animationName;""",
    )
    assert seen == animation

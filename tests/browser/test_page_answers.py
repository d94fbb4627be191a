"""What is made of an answer's text: markdown without HTML, the tint, another answer."""

import pytest
from page_service import LIST

pytestmark = pytest.mark.browser

RENDERED = {
    "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
    "## Title\ntext": "<h4>Title</h4><p>text</p>",
    "- a\n- **b** c": "<ul><li>a</li><li><strong>b</strong> c</li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> said": "<blockquote>said\n</blockquote>",
    "```py\nx = *y*\n\nz\n```\nend": "<pre><code>x = *y*\n\nz</code></pre><p>end</p>",
    "```\nunfinished": "<pre><code>unfinished</code></pre>",
    "def f():\n    return 1": "<pre><code>def f():\n    return 1</code></pre>",
    "`a*b*` and *so*": "<p><code>a*b*</code> and <em>so</em></p>",
    "2*3*4, a * b * c, __init__": "<p>2*3*4, a * b * c, __init__</p>",
    "[here](https://example.org/a)": '<p><a href="https://example.org/a" '
    'rel="noopener noreferrer nofollow" target="_blank">here</a></p>',
    # nothing of these becomes an element or a link
    "<img src=x onerror=alert(1)>": "<p>&lt;img src=x onerror=alert(1)&gt;</p>",
    "```\n<script>a()</script>": "<pre><code>&lt;script&gt;a()&lt;/script&gt;</code></pre>",
    "[x](javascript:alert(1))": "<p>[x](javascript:alert(1))</p>",
    '[x](https://e.org/"onclick="a)': '<p><a href="https://e.org/&quot;onclick=&quot;a" '
    'rel="noopener noreferrer nofollow" target="_blank">x</a></p>',
}


@pytest.mark.parametrize("source", RENDERED)
def test_markdown(page, source):
    html = page.imported(
        "markdown.js",
        f"""const source = {source!r};
        const shown = document.createElement('div');
        shown.append(it.markdown(source, (at, start, end) => at.append(source.slice(start, end))));
        return shown.innerHTML;""",
    )
    assert html == RENDERED[source]


def test_the_tint_goes_through_the_markup(page):
    """Runs may be ahead of the text, or end before it."""
    html = page.imported(
        "answer.js",
        """const answer = new it.Answer(document.getElementById('log'));
        const said = (content, drafted) => answer.add({choices: [{delta: {content}, drafted}]});
        said('a **bo', [['a **', false], ['bold** c', true]]);
        said('ld** cd<i>e', [['d<i>', false], ['<u>e</u>', true]]);
        return answer.body.innerHTML;""",
    )
    assert html == (
        '<p>a <strong><span class="drafted">bold</span></strong>'
        '<span class="drafted"> c</span>d&lt;i&gt;<span class="drafted">e</span></p>'
    )


def test_reasoning_stands_apart(page):
    """The runs cover it too, so that nothing is tinted."""
    shown = page.imported(
        "answer.js",
        """const answer = new it.Answer(document.getElementById('log'));
        const said = (delta, drafted) => answer.add({choices: [{delta, drafted}]});
        said({reasoning_content: 'Hm.'}, [['<think>Hm.', true]]);
        said({content: 'Yes'}, [['</think>Yes', true]]);
        const thoughts = answer.turn.querySelector('details .thoughts');
        return [thoughts.textContent, answer.body.innerHTML];""",
    )
    assert shown == ["Hm.", "<p>Yes</p>"]


@pytest.mark.parametrize("method", ["naive", "draft_verify"])
def test_what_was_drafted_is_tinted(page, method):
    next(o for o in page.all("#model option") if o.text == f"only {method}").click()
    # a sampled answer may be over before a draft is accepted
    page.run("document.getElementById('temperature').value = 0")
    page.ask(LIST)
    page.finished()
    tinted = page.run(
        """const text = document.querySelector('.assistant .text');
        const color = (e) => getComputedStyle(e).backgroundColor;
        const plain = [color(text), 'rgba(0, 0, 0, 0)'];
        const marked = [...text.querySelectorAll('.drafted')];
        const seen = marked.filter((e) => !plain.includes(color(e)));
        return [marked.length, seen.length];"""
    )
    if method == "naive":
        assert tinted == [0, 0]
        assert page.facts()["drafted"] == "nothing"
    else:
        assert tinted[0] == tinted[1] > 0, page.one(".assistant").text
        assert page.facts()["accepted"].endswith("drafted")


def test_an_answer_can_be_asked_for_again(page):
    page.record_conversations()
    page.ask("Hello!")
    page.finished()
    page.ask(LIST)
    page.finished(2)
    assert len(page.all("#again")) == 1
    first = page.all(".assistant")[-1]
    page.one("#again").click()
    page.until(lambda: page.all(".assistant")[-1] != first)
    page.finished(2)
    assert page.facts()["tokens/s"]
    _, asked, again = page.conversations()
    assert again == asked

    page.ask("Thanks!")
    page.finished(3)
    conversation = page.conversations()[-1]
    assert [m["role"] for m in conversation] == ["user", "assistant"] * 2 + ["user"]
    assert conversation[:3] == asked


def test_a_stopped_answer_can_be_asked_for_again(page):
    page.run(
        """new MutationObserver((_, seen) => {
          if (document.getElementById('stop').hidden) return;
          seen.disconnect();
          document.getElementById('stop').click();
        }).observe(document.getElementById('stop'), {attributes: true});"""
    )
    page.ask("Tell me a long story about a goat.")
    page.finished()
    assert "You stopped this answer." in page.one(".assistant").text
    page.one("#again").click()
    page.finished()
    assert "tokens/s" in page.facts()
    assert len(page.all(".user")) == 1
    assert len(page.all(".assistant")) == 1

"""`specadapt report`: what stands in the page is what was published or measured."""

import base64
import json
import re
from itertools import pairwise

import numpy as np
import pytest
from report_page import Page

from ops.report.blocks import Chart, Series, as_table
from ops.report.measured import measured, routed
from ops.report.results import PAPER, published
from router.fit.speedup import harmonic_mean
from tests.router.routing_world import make_profile

PNG = "data:image/png;base64,"
OURS = {"naive": 1000, "draft": 1500}


@pytest.fixture(scope="module")
def paper_page(tmp_path_factory):
    """The page of the paper's numbers, and what the command said."""
    from typer.testing import CliRunner

    from ops.main import app

    out = tmp_path_factory.mktemp("report")
    result = CliRunner().invoke(app, ["report", "--from-paper", "--out", str(out), "--json", "-"])
    assert result.exit_code == 0, result.stderr
    return Page(out / "report.html"), json.loads(result.stdout), out


@pytest.fixture(scope="module")
def own():
    profile, vectors = make_profile(per_cluster=20, noise=0.1)
    vectors += 0.05 * np.random.default_rng(0).standard_normal(vectors.shape, np.float32)
    return measured(profile, vectors, 2, 0.0, OURS, seed=0), profile, vectors


def test_the_papers_tables_are_what_it_published(paper_page):
    page, _, _ = paper_page
    known = json.loads(PAPER.read_text())
    _, *rows = page.tables["table-1"]
    assert [row[1] for row in rows] == list(known["clustering"].values())
    _, *rows = page.tables["table-2"]
    assert {row[0]: row[2] for row in rows} == known["overall"]
    header, *rows = page.tables["table-3"]
    assert header[1:] == [known["labels"][name] for name in known["by_cluster"]]
    columns = [list(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    assert columns == list(known["by_cluster"].values())
    _, *rows = page.tables["table-4"]
    assert {str(int(row[0])): row[1] for row in rows} == {
        k: found["routed"] for k, found in known["by_k"].items()
    }


def test_our_definitions_give_the_papers_figures(paper_page):
    page, _, _ = paper_page
    for row in page.tables["table-2"][1:]:
        assert row[3] == pytest.approx(row[2], abs=0.0051), row[0]
    routed, single = (row[1] for row in page.tables["figure-7-data"][-2:])
    assert routed == pytest.approx(published().by_k[10].routed, abs=0.001)
    assert single == pytest.approx(published().claims["best_single"], abs=0.005)


def test_charts_draw_the_tables(paper_page):
    page, _, _ = paper_page
    known = published()
    chosen = page.tables["figure-7-data"][1:11]
    best = [max(known.by_cluster[n][c] for n in known.portfolio) for c in range(10)]
    assert [next(y for y in row[1:] if y != "–") for row in chosen] == best
    assert [row[1:] for row in page.tables["figure-6-data"][1:11]] == [
        [speedups[c] for speedups in known.by_cluster.values()] for c in range(10)
    ]


def test_the_page_needs_nothing_else(paper_page):
    page, said, out = paper_page
    links = [address for address in page.addresses if not address.startswith("data:")]
    assert links, "the links to the sections"
    assert all(address.startswith("#") for address in links)
    assert page.scripts == 0
    [policy] = [m["content"] for m in page.metas if "http-equiv" in m]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert not re.search(r"https?:", policy)
    assert sorted(f.name for f in out.iterdir()) == ["figure-6.png", "figure-7.png", "report.html"]
    assert sorted(said["files"]) == sorted(str(f) for f in out.iterdir())
    shown = [base64.b64decode(src.removeprefix(PNG)) for src in page.images.values()]
    assert shown == [(out / f"figure-{n}.png").read_bytes() for n in (6, 7)]
    assert all(picture.startswith(b"\x89PNG") for picture in shown)
    assert all("the figures are in the table below" in alt for alt in page.images)


def test_headings_and_labels_are_whole(paper_page):
    page, _, _ = paper_page
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(text for _, text in page.headings)
    assert len(page.ids) == len(set(page.ids))
    links = {a.removeprefix("#") for a in page.addresses if a.startswith("#")}
    assert links | set(page.named_by) <= set(page.ids)


def test_a_profile_is_measured_as_the_paper_did(own):
    results, profile, _ = own
    paired = profile.paired()
    for name in ("draft", "ngram"):
        speedups = paired.speedups[:, paired.methods.index(name)]
        assert results.overall[name] == harmonic_mean(speedups)
        inside = [[], []]
        for prompt, value in zip(paired.prompt_ids, speedups, strict=True):
            inside[int(prompt.split("-")[1]) % 2].append(value)
        assert sorted(results.by_cluster[name]) == pytest.approx(sorted(map(harmonic_mean, inside)))
        low, high = results.intervals[name].low, results.intervals[name].high
        assert low < results.overall[name] < high
    assert results.assigned(results.portfolio).best_single == "ngram"
    assert set(results.assigned(results.portfolio).assignment) == {"draft", "ngram"}
    assert results.rates["draft"].parameters == 1500
    assert results.rates["ngram"].parameters is None


def test_held_out_prompts_choose_nothing():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((60, 4)).astype(np.float32)
    noise = np.exp(0.5 * rng.standard_normal((60, 3)))
    found = routed(vectors, noise, 20, seed=0)
    assert found.routed > 1.2 * found.held_out, "what is chosen by noise is gone on other prompts"
    assert found.over_best_single.low < 1.0


def test_clusters_that_matter_are_worth_as_much_held_out(own):
    _, profile, vectors = own
    paired = profile.paired()
    rows = {p.id: i for i, p in enumerate(profile.prompts)}
    found = routed(vectors[[rows[p] for p in paired.prompt_ids]], paired.speedups, 2, seed=0)
    assert found.held_out == pytest.approx(found.routed)
    assert found.over_best_single.low > 1.0


def test_the_page_of_a_profile(specadapt, world, fitted, tmp_path):
    folder, _, bundle = world
    common = ["--clusters", 2, "--config", folder / "config.yaml", "--bundle", bundle.path]
    made = specadapt.json("report", "--profile", folder / "fit", "--out", tmp_path, *common)
    page = Page(tmp_path / "report.html")
    header, *rows = page.tables["table-2"]
    at = header.index("here, over prompts")
    own = {row[0]: row[at] for row in rows if row[at] != "–"}
    assert own == made["results"]["overall"]
    assert own["ngram"] == pytest.approx(fitted[0]["harmonic_mean_speedup"]["ngram"])
    said = {row[0]: row[1:] for row in page.tables["claims"]}
    assert said["milliseconds to embed a prompt"] == [11.0, "–"]
    assert said["speedup of the best single method"] == [1.52, max(own.values())]
    assert len(page.tables["figure-2-data"]) == 1 + 3, "two clusters and the centroids"
    assert (tmp_path / "figure-1a.png").is_file()
    assert page.headings[1] == (2, "In plain words")
    assert made["summary"][0].split(": ")[0] in ("Sure", "Open", "Alike")
    assert "--bundle: demo@" in specadapt.refusal(
        *["report", "--profile", folder / "fit", "--out", tmp_path, "--bundle", "bundles/demo"]
    )


@pytest.mark.usefixtures("fitted")
def test_bad_input_is_one_line(specadapt, world, tmp_path):
    folder, _, _ = world
    assert "--profile: name a profile" in specadapt.refusal("report", "--out", tmp_path)
    both = ["--profile", folder / "fit", "--from-paper"]
    assert "--profile: name a profile" in specadapt.refusal("report", "--out", tmp_path, *both)
    priced = ["--from-paper", "--price", 2.0]
    assert "--price: has no effect with --from-paper" in specadapt.refusal(
        "report", "--out", tmp_path, *priced
    )
    hot = ["report", "--out", tmp_path, "--profile", folder / "fit"]
    assert "--temperature: nothing was measured at 0.8, only at 0" in specadapt.refusal(
        *hot, "--temperature", 0.8
    )
    assert "--clusters: 50 of" in specadapt.refusal(*hot, "--clusters", 50)


def test_every_chart_has_its_table():
    lines = Series("a", [1, 2], [0.5, None], [0.4, None], [0.6, None])
    table = as_table(Chart("c", "t", "n", "lines", "x", "y", [lines, Series("b", [2], [3.0])]))
    assert table.columns == ["x", "a", "a, low", "a, high", "b"]
    assert table.rows == [[1, 0.5, 0.4, 0.6, None], [2, None, None, None, 3.0]]
    points = as_table(Chart("c", "t", "n", "points", "x", "y", [Series("a", [1, 3], [2.0, 4.0])]))
    assert points.rows == [["a", 2, 2.0, 3.0]]
    boxes = as_table(Chart("c", "t", "n", "boxes", "x", "y", [Series("a", (), [1, 2, 3, 4, 5])]))
    assert boxes.rows == [["a", 1, 2, 3, 4, 5]]

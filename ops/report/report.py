"""A report's sections, put together and written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.cli.boundary import InputError
from ops.cli.settings import load_config
from ops.measure.embedding import embed
from ops.report.blocks import Chart, Section
from ops.report.measured import measured
from ops.report.page import page
from ops.report.paper_figures import paper_figures
from ops.report.paper_tables import paper_tables
from ops.report.parameters import parameters_by_method
from ops.report.pictures import draw
from ops.report.results import Results, published
from router.embed import Encoder
from router.profile import Profile
from workers.bundle import load_bundle


@dataclass(frozen=True)
class Sources:
    """What is reported on; without a profile the paper's numbers alone."""

    profile: Path | None
    bundle: Path | None
    config: Path | None
    clusters: int
    temperature: float
    seed: int


def make_report(sources: Sources, out: Path) -> dict[str, Any]:
    """Writes report.html and the charts; returns their names and what they were drawn from."""
    paper = published()
    own = None if sources.profile is None else _own(sources, Profile.load(sources.profile))
    sections = [_paper_section(paper, own)]
    out.mkdir(parents=True, exist_ok=True)
    file = out / "report.html"
    file.write_text(page(_title(own), _about(sources, own), sections), encoding="utf-8")
    charts = [b for s in sections for b in s.blocks if isinstance(b, Chart)]
    pictures = [draw(chart, out) for chart in charts]
    return {
        "files": [str(made) for made in (file, *pictures)],
        "results": (own or paper).model_dump(mode="json"),
    }


def _own(sources: Sources, profile: Profile) -> Results:
    settings = load_config(sources.config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    vectors = embed(encoder, [p.text for p in profile.prompts], "prompts")
    parameters: dict[str, int] = {}
    if sources.bundle is not None:
        family = load_bundle(sources.bundle)
        here = f"{family.name}@{family.content_hash}"
        if here != profile.meta.measured_under.bundle:
            raise InputError(
                f"--bundle: {here}, and the profile is of {profile.meta.measured_under.bundle}"
            )
        parameters = parameters_by_method(family, profile.meta.methods)
    return measured(
        profile, vectors, sources.clusters, sources.temperature, parameters, sources.seed
    )


def _paper_section(paper: Results, own: Results | None) -> Section:
    text = [
        "Tables I to IV and Figures 1, 2, 6 and 7 of the paper that this system is built from: "
        f"{paper.source}."
    ]
    if own is None:
        text.append(
            "These are its published numbers, drawn by the code that draws measured ones. Columns "
            "that are recomputed show that the same definitions give the same figures. It "
            "publishes no numbers of Figures 1 and 2."
        )
    return Section(
        "paper",
        "The paper's tables and figures",
        text,
        [*paper_tables(paper, own), *paper_figures(own or paper)],
    )


def _title(own: Results | None) -> str:
    return "SpecAdapt: the paper's numbers" if own is None else "SpecAdapt: a report"


def _about(sources: Sources, own: Results | None) -> str:
    if own is None:
        return "Nothing here was measured: all figures are the paper's, or computed from them."
    return (
        f"Drawn from {sources.profile} at temperature {sources.temperature:g}, with "
        f"{sources.clusters} clusters."
    )

"""A report's sections, put together and written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from ops.harness.embedding import embed
from ops.harness.settings import load_config
from ops.report.acceptance import acceptance_of, acceptance_section
from ops.report.blocks import Chart, Section
from ops.report.measured import measured
from ops.report.memory import memory_section
from ops.report.page import page
from ops.report.paper_figures import paper_figures
from ops.report.paper_tables import claims_table, paper_tables
from ops.report.parameters import parameters_by_method
from ops.report.pictures import draw
from ops.report.results import Results, published
from ops.report.speed import answers_tokens, speed_section
from ops.report.summary import summary_section
from ops.tables.trace_store import read_meta, read_rows
from router.embed import Encoder
from router.fit.profile import Profile
from schemas import MeasuredUnder
from workers.bundle import Bundle, load_bundle


@dataclass(frozen=True)
class Sources:
    """What a report is about: a profile, or else the paper's numbers alone.

    price: of the measured machine, per hour.
    """

    profile: Path | None
    traces: Path | None
    bundle: Path | None
    config: Path | None
    clusters: int
    temperature: float
    price: float | None
    seed: int


def make_report(sources: Sources, out: Path) -> dict[str, Any]:
    """Write report.html and a PNG per chart.

    Returns the files' names, the summary's sentences and the results that the charts show.
    """
    paper = published()
    if sources.profile is None:
        results, sections = paper, _of_paper(paper)
    else:
        results, sections = _of_profile(paper, Profile.load(sources.profile), sources)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "report.html"
    charts = [b for s in sections for b in s.blocks if isinstance(b, Chart)]
    pictures = {chart.id: draw(chart, out) for chart in charts}
    file.write_text(page(_title(sources), _about(sources), sections, pictures), encoding="utf-8")
    return {
        "files": [str(made) for made in (file, *pictures.values())],
        "summary": list(sections[0].text),
        "results": results.model_dump(mode="json"),
    }


def _of_paper(paper: Results) -> list[Section]:
    text = (
        "These are its published numbers, drawn by the code that draws measured ones. Columns that "
        "are recomputed show that the same definitions give the same figures. It publishes no "
        "numbers of Figures 1 and 2."
    )
    return [summary_section(paper, None), _paper_section(paper, None, text)]


def _of_profile(
    paper: Results, profile: Profile, sources: Sources
) -> tuple[Results, list[Section]]:
    meta, seed = profile.meta, sources.seed
    family = _family(sources.bundle, meta.measured_under)
    settings = load_config(sources.config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    vectors = embed(encoder, [p.text for p in profile.prompts], "prompts")
    parameters = parameters_by_method(family, meta.methods) if family else {}
    own = measured(profile, vectors, sources.clusters, sources.temperature, parameters, seed)
    rows = _traced(sources, meta.measured_under)
    sections = [
        summary_section(paper, own),
        _paper_section(paper, own, "Our measurements are next to its numbers."),
        *([acceptance_section(acceptance_of(rows), seed)] if rows else []),
        speed_section(
            own, profile.steps, sources.price, answers_tokens(profile, sources.temperature)
        ),
        *([memory_section(family, meta.methods)] if family else []),
        _conditions(profile),
    ]
    return own, sections


def _family(folder: Path | None, under: MeasuredUnder) -> Bundle | None:
    """Load the profile's bundle if it is named. Raises InputError for another bundle."""
    if folder is None:
        return None
    family = load_bundle(folder)
    here = f"{family.name}@{family.content_hash}"
    if here != under.bundle:
        raise InputError(f"--bundle: {here}, and the profile is of {under.bundle}")
    return family


def _traced(sources: Sources, under: MeasuredUnder) -> list[dict[str, Any]]:
    """Return the traces' rows at the report's temperature, or none without traces.

    Raises InputError for traces of another bundle, and for traces without such rows.
    """
    if sources.traces is None:
        return []
    known = read_meta(sources.traces).measured_under.bundle
    if known != under.bundle:
        raise InputError(f"--traces: of {known}, and the profile is of {under.bundle}")
    rows = list(read_rows(sources.traces, [("temperature", "=", sources.temperature)]))
    if not rows:
        raise InputError(f"--traces: nothing was traced at {sources.temperature:g}")
    return rows


def _paper_section(paper: Results, own: Results | None, text: str) -> Section:
    return Section(
        "paper",
        "The paper's tables and figures",
        [
            "Tables I to IV and Figures 1, 2, 6 and 7 of the paper that this system is built "
            f"from, {paper.source}. {text}"
        ],
        [
            *paper_tables(paper, own),
            claims_table(paper, own),
            *paper_figures(own or paper),
        ],
    )


def _conditions(profile: Profile) -> Section:
    meta = profile.meta
    return Section(
        "conditions",
        "How it was measured",
        [
            f"{len(profile.prompts)} prompts, at most {meta.max_tokens} tokens an answer, "
            f"{meta.concurrency} in flight, seed {meta.seed}.",
            ", ".join(f"{k}: {v}" for k, v in meta.measured_under.model_dump().items()) + ".",
            ", ".join(f"{k}: {v}" for k, v in meta.provenance.items()) + ".",
        ],
        [],
    )


def _title(sources: Sources) -> str:
    return "SpecAdapt: the paper's numbers" if sources.profile is None else "SpecAdapt: a report"


def _about(sources: Sources) -> str:
    if sources.profile is None:
        return "Nothing here was measured: all figures are the papers', or computed from them."
    return (
        f"Drawn from {sources.profile} at temperature {sources.temperature:g}, with "
        f"{sources.clusters} clusters."
    )

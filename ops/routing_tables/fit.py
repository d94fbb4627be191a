"""`specadapt fit`: prompts to clusters, a profile to the routing table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ops.common import flags
from ops.common.output import emit, table

if TYPE_CHECKING:
    from schemas import RoutingTable


def fit(  # noqa: PLR0913 - its parameters are flags
    profile: Annotated[Path, flags.option("--profile", "folder of the profile", "DIR")],
    out: Annotated[Path, flags.option("--out", "folder of the routing table", "DIR")],
    clusters: Annotated[int, flags.option("--clusters", "number of clusters", min=2)] = 10,
    predictor: Annotated[
        flags.Predictor,
        flags.option(
            "--predictor",
            "predictor of acceptance: the prompt's cluster (clusters), or the cluster "
            "corrected by the prompt's vector and features (regression)",
        ),
    ] = flags.Predictor.clusters,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: Annotated[
        list[Path] | None,
        flags.option(
            "--prompts",
            "prompts to cluster, as JSON Lines; repeatable  [default: the profile's]",
            "FILE",
        ),
    ] = None,
    ids: flags.Ids = None,
    profile_ids: flags.ProfileIds = None,
    limit: flags.Limit = None,
    lossy: Annotated[bool, flags.option("--lossy", "allow methods that are not lossless")] = False,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Fit a routing table: embed prompts, cluster them, and assign methods to clusters.

    Example: `specadapt fit --profile runs/profile --clusters 10 --out bundles/demo/routing`
    """
    import numpy as np

    from ops.common.prompts import select
    from ops.common.settings import load_config, names
    from ops.routing_tables.profile_store import profiled
    from router import cluster
    from router.drift import Reference
    from router.embed import Encoder
    from router.fit.assign import TableOptions, build_table
    from router.fit.regression import corrected
    from router.table import save_table
    from schemas import TEMPERATURE_BANDS

    routing = load_config(config).router
    measured = profiled(profile, profile_ids)
    encoder = Encoder(routing.encoder)
    vectors = encoder.embed([p.text for p in measured.prompts])
    texts = [p.text for p in select(prompts, ids, limit, seed)] if prompts else []
    clustered = encoder.embed(texts) if texts else vectors
    centroids = cluster.fit(clustered, clusters, seed)
    made = build_table(
        measured,
        vectors,
        centroids,
        encoder.info,
        TableOptions(
            methods=names(methods) if methods else None,
            lossy=lossy,
            default_method=routing.default_method,
            clustered_prompts=texts,
        ),
    )
    if predictor is flags.Predictor.regression:
        made = corrected(made, measured, vectors, routing.default_method)
    labels = cluster.assign(centroids, clustered)
    distances = Reference.of_fit(centroids, clustered, labels).state()
    made = made.model_copy(update={"provenance": {**made.provenance, "distances": distances}})
    save_table(made, out)
    figures = _figures(made, np.bincount(labels, minlength=clusters).tolist())
    figures["silhouette"] = cluster.silhouette(clustered, labels)
    rows = [
        [index, size, *by_band.values()]
        for index, (size, by_band) in enumerate(
            zip(figures["sizes"], figures["assignment"], strict=True)
        )
    ]
    title = f"{out}: silhouette {figures['silhouette']:.3f}, fit {made.fit_id}"
    emit(figures, lambda: [table(title, ["cluster", "prompts", *TEMPERATURE_BANDS], rows)], json)


def _by_band(made: "RoutingTable") -> list[dict[str, str]]:
    from schemas import TEMPERATURE_BANDS

    return [dict(zip(TEMPERATURE_BANDS, row, strict=True)) for row in made.assignment]


def _figures(made: "RoutingTable", sizes: list[int]) -> dict[str, Any]:
    return {
        "clusters": len(made.centroids),
        "predictor": "regression" if made.features else "clusters",
        "sizes": sizes,
        "assignment": _by_band(made),
        "speedup": [dict(zip(made.methods, row, strict=True)) for row in made.speedup.tolist()],
        "profiled_prompts": made.provenance["profiled_prompts"],
        "clustered_prompts": made.provenance["clustered_prompts"],
        "default_method": made.default_method,
        "fit_id": made.fit_id,
    }

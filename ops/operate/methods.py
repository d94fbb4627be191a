"""`specadapt methods`: what there is to decode with."""

from ops.common.flags import Json
from ops.common.output import emit, table

PARTS = ("engine", "drafter", "tree", "stop", "verifier")
FIELDS = ("name", *PARTS, "lossless", "source")


def methods(json: Json = None) -> None:
    """List the decoding methods and their parts.

    Example: `specadapt methods --json -`
    """
    from workers.methods import METHODS

    figures = [spec.model_dump(mode="json", include=set(FIELDS)) for spec in METHODS.values()]
    rows = [
        [row["name"], " · ".join(row[part] for part in PARTS), row["lossless"], row["source"]]
        for row in figures
    ]
    columns = ["name", " · ".join(PARTS), "lossless", "source"]
    emit(figures, lambda: [table("Methods", columns, rows)], json)

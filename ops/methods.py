"""`specadapt methods`: what there is to decode with."""

from ops.flags import Json
from ops.output import emit, table

FIELDS = (
    "name",
    "engine",
    "selector",
    "drafter",
    "tree",
    "stop",
    "verifier",
    "lossless",
    "source",
)


def methods(json: Json = None) -> None:
    """List the decoding methods and the parts each is made of.

    Example: `specadapt methods --json -`
    """
    from workers.methods import METHODS

    figures = [spec.model_dump(mode="json", include=set(FIELDS)) for spec in METHODS.values()]
    rows = [[row[field] for field in FIELDS] for row in figures]
    emit(figures, lambda: [table("Methods", FIELDS, rows)], json)

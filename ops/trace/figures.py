"""The figures of `specadapt trace`."""

from pathlib import Path
from typing import Any

from ops.trace.store import read_meta, read_rows
from router.acceptance import expected_steps


def summarise(folder: Path) -> dict[str, Any]:
    """By method and temperature: answers, their tokens, and MAT (output tokens per target step,
    the prefill's among them)."""
    sums: dict[str, dict[str, list[float]]] = {}
    for row in read_rows(folder):
        by_temperature = sums.setdefault(row["method"], {})
        found = by_temperature.setdefault(f"{row['temperature']:g}", [0.0, 0.0, 0.0])
        tokens = len(row["answer"])
        found[0] += 1
        found[1] += tokens
        found[2] += expected_steps(row["kept"], tokens)
    meta = read_meta(folder)
    return {
        "methods": {
            name: {
                heat: {"answers": int(answers), "tokens": int(tokens), "mat": tokens / steps}
                for heat, (answers, tokens, steps) in by_temperature.items()
            }
            for name, by_temperature in sums.items()
        },
        "settings": meta.model_dump(mode="json"),
    }

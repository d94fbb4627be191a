"""What the training commands print."""

from pathlib import Path

from ops.harness.output import emit, table


def emit_losses(
    held: dict[str, float], json: Path | None, agreement: dict[str, float] | None = None
) -> None:
    """Print held-out losses by domain, and a draft model's agreement with the target."""
    by_domain = {d: v for d, v in held.items() if d != "mean"}
    figures = {
        "loss": held["mean"],
        "val_loss_by_domain": by_domain,
        "acceptance_by_domain": agreement or {},
    }
    columns, rows = ["domain", "nats a token"], [[d, v] for d, v in held.items()]
    if agreement:
        columns.append("same favourite as the target")
        rows = [[*row, agreement[str(row[0])]] for row in rows]
    emit(figures, lambda: [table("Held rows", columns, rows)], json)

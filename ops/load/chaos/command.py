"""`specadapt bench chaos`: what clients notice of parts that fail, and when all is well again."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.output import cell, emit, progress, say, table


class FaultName(StrEnum):
    """The faults there are, in the order in which they happen."""

    replica = "replica"
    method = "method"
    feedback = "feedback"
    controller = "controller"
    proxy = "proxy"
    ingress = "ingress"
    disk = "disk"
    table = "table"
    store = "store"
    stall = "stall"
    drafter = "drafter"
    nan = "nan"
    slow_clients = "slow-clients"
    half_open = "half-open"
    killer_grammar = "killer-grammar"


def bench_chaos(
    fault: Annotated[
        list[FaultName] | None,
        typer.Option(
            "--fault", help="fault to inject; repeatable  [default: all, one after the other]"
        ),
    ] = None,
    config: flags.Config = None,
    bundle: flags.SmallBundle = flags.SMALL_BUNDLE,
    rate: flags.Rate = 1.0,
    trace: flags.Arrivals = None,
    quiet: Annotated[
        float,
        typer.Option(
            "--quiet",
            min=1.0,
            metavar="S",
            help="seconds without faults before and after each fault",
        ),
    ] = 20.0,
    prompts: flags.Prompts = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Inject faults into a service under load and report what clients notice.

    Starts the service itself and injects one fault after the other. Without --config it serves
    naive, ngram and two replicas of eagle3 behind two ingresses.

    Example: `specadapt bench chaos --fault replica --fault feedback --trace arrivals.csv`
    """
    import random

    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config
    from ops.load.chaos.figures import row
    from ops.load.chaos.runs import Load, arrivals_of, run_faults, served
    from workers.bundle import load_bundle

    asked = served(bundle) if config is None else load_config(config)
    settings = asked.model_copy(update={"bundle": bundle})
    chosen = select(prompts)
    random.Random(seed).shuffle(chosen)
    answers = {"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True}
    parameters = {"model": load_bundle(bundle).name, **answers}
    arrivals = arrivals_of(trace, rate, quiet, seed)
    load = Load(chosen, arrivals, parameters, quiet)
    names = [one.value for one in dict.fromkeys(fault or FaultName)]
    with progress() as bar:
        task = bar.add_task("", total=len(names))
        rows = []
        runs = run_faults(settings, names, load, lambda name: bar.update(task, description=name))
        for run in runs:
            rows.append(row(run))
            say(_said(rows[-1]))
            bar.advance(task)
    figures = {
        "faults": rows,
        "settings": {
            **describe_machine(),
            "bundle": str(bundle),
            "replicas": {m.name: m.max_replicas for m in settings.methods},
            "layout": settings.layout,
            "ingresses": settings.http.ingress_replicas,
            "rate": rate,
            "arrivals": "poisson" if trace is None else trace.name,
            "quiet_s": quiet,
            **answers,
            "seed": seed,
            "prompts": {"sha256": fingerprint(chosen), "count": len(chosen)},
        },
    }
    emit(figures, lambda: _tables(rows), json)


REQUESTS = {
    "fault": "fault",
    "requests": "requests",
    "answered": "answered",
    "lost": "lost",
    "broken_off": "broken off",
    "refused": "refused",
    "late": "late",
    "longest_silence_s": "silence s",
}
RECOVERY = {
    "fault": "fault",
    "service_recovered_s": "service s",
    "clients_recovered_s": "clients s",
    "observations_acknowledged": "learned",
    "acknowledged_lost": "forgotten",
    "never_counted": "not learned",
}


def _said(row: dict[str, Any]) -> str:
    named = ", ".join(f"{label} {cell(row[key])}" for key, label in (REQUESTS | RECOVERY).items())
    return named.removeprefix("fault ")


def _tables(rows: list[dict[str, Any]]) -> list[Any]:
    errors = [[row["fault"], what, count] for row in rows for what, count in row["errors"].items()]
    tables = {
        "What became of the requests": (REQUESTS.values(), _picked(rows, REQUESTS)),
        "When all was well again, and what was learned": (
            RECOVERY.values(),
            _picked(rows, RECOVERY),
        ),
        "Requests without a whole answer": (("fault", "what the client saw", "requests"), errors),
    }
    return [table(title, [*columns], body) for title, (columns, body) in tables.items() if body]


def _picked(rows: list[dict[str, Any]], columns: dict[str, str]) -> list[list[Any]]:
    return [[row[key] for key in columns] for row in rows]

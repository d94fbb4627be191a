"""`specadapt routing history|rollback|reset`: the learned states of a running service."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, table

SECONDS = 30.0

Url = Annotated[str, typer.Option("--url", help="the service")]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        envvar="SPECADAPT_ADMIN_KEY",
        show_default=False,
        help="an admin's, as `specadapt keys new --admin` makes them",
    ),
]
LOCAL = "http://127.0.0.1:8000"


def history(url: Url = LOCAL, key: Key = "", json: flags.Json = None) -> None:
    """The states that a service can go back to, the newest first.

    Example: `specadapt routing history --url http://127.0.0.1:8000`
    """
    _emit(_asked("GET", f"{url}/admin/routing/history", key), json)


def rollback(
    snapshot: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", min=1, help="[default: the newest]")
    ] = None,
    url: Url = LOCAL,
    key: Key = "",
    json: flags.Json = None,
) -> None:
    """Go back to an earlier state. The present one is kept, so that a second call undoes it.

    Example: `specadapt routing rollback 7`
    """
    body = {} if snapshot is None else {"snapshot": snapshot}
    found = _asked("POST", f"{url}/admin/routing/rollback", key, body)
    _emit({"snapshots": [found]}, json, "In force again")


def reset(url: Url = LOCAL, key: Key = "", json: flags.Json = None) -> None:
    """Forget what was learned; the present state is kept, and `rollback` goes back to it.

    Example: `specadapt routing reset`
    """
    _emit(_asked("POST", f"{url}/admin/routing/reset", key), json)


def _asked(
    method: str, url: str, key: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer's JSON; raises InputError with the service's own words where it refuses."""
    import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx.request(method, url, headers=headers, json=body, timeout=SECONDS)
        answer: dict[str, Any] = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(f"--url: no service answers at {url} ({error})") from error
    if response.is_success:
        return answer
    field = {401: "--key: ", 403: "--key: "}.get(response.status_code, "")
    raise InputError(f"{field}{answer.get('error', {}).get('message', response.status_code)}")


def _emit(
    figures: dict[str, Any], json: Any, title: str = "Learned states, the newest first"
) -> None:
    rows = [
        [
            one["number"],
            one["at"],
            one["occasion"],
            one["version"],
            one["clusters"],
            ", ".join(f"{name} {count}" for name, count in one["favourites"].items()),
        ]
        for one in figures["snapshots"]
    ]
    columns = ["number", "at", "kept before", "version", "clusters", "favourites"]
    emit(figures, lambda: [table(title, columns, rows)], json)

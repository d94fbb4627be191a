"""`specadapt grafana`: dashboards of the service."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness.boundary import InputError, show_help


def export(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="folder for one JSON file per dashboard")
    ],
) -> None:
    """Write the dashboards as JSON for Grafana's provisioning.

    Example: `specadapt grafana export --out k8s/components/monitoring/dashboards`
    """
    out.mkdir(parents=True, exist_ok=True)
    for uid, body in bodies().items():
        file = out / f"{uid}.json"
        file.write_text(body, encoding="utf-8")
        typer.echo(str(file))


def push(
    url: Annotated[
        str, typer.Option("--url", help="address of Grafana, such as https://grafana.example.com")
    ],
    token: Annotated[
        str,
        typer.Option(
            "--token",
            envvar="GRAFANA_TOKEN",
            show_default=False,
            help="token of a service account that may write dashboards",
        ),
    ],
    folder: Annotated[
        str | None, typer.Option("--folder", metavar="UID", help="Grafana folder  [default: none]")
    ] = None,
) -> None:
    """Upload the dashboards to Grafana and replace those of an earlier push.

    Example: `GRAFANA_TOKEN=glsa_... specadapt grafana push --url https://grafana.example.com`
    """
    from urllib.parse import urlsplit

    from grafana_api.grafana_api import GrafanaException
    from grafana_api.grafana_face import GrafanaFace
    from requests import RequestException

    from workers.http_clients import is_here

    place = urlsplit(url)
    grafana = GrafanaFace(
        auth=token,
        host=place.hostname,
        port=place.port,
        url_path_prefix=place.path.strip("/") + "/" if place.path.strip("/") else "",
        protocol=place.scheme,
    )
    grafana.api.s.trust_env = not is_here(url)  # else it would be asked through a proxy
    for uid, body in bodies().items():
        asked: dict[str, Any] = {"dashboard": json.loads(body), "overwrite": True}
        if folder is not None:
            asked["folderUid"] = folder
        try:
            answer = grafana.dashboard.update_dashboard(dashboard=asked)
        except GrafanaException as error:
            field = "--token: " if error.status_code in (401, 403) else ""
            raise InputError(f"{field}Grafana refused {uid}: {error}") from error
        except RequestException as error:
            raise InputError(f"--url: no Grafana answers at {url} ({error})") from error
        typer.echo(f"{place.scheme}://{place.netloc}{answer.get('url', '')}")


def bodies() -> dict[str, str]:
    """Every dashboard's JSON by its uid, the same each time."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    from ops.operate.dashboard_pages import BOARDS

    encoder = JSONEncoder(sort_keys=True, indent=1)
    return {board.uid: encoder.encode(board.built()) + "\n" for board in BOARDS}


grafana = typer.Typer(
    help="Export and upload the service's Grafana dashboards.",
    callback=show_help,
    invoke_without_command=True,
)
grafana.command("export")(export)
grafana.command("push")(push)

"""`specadapt grafana push`: upload the service's dashboards."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.common import flags
from ops.common.boundary import InputError

DASHBOARDS = Path(__file__).parents[2] / "k8s/components/monitoring/dashboards"


def push(
    url: Annotated[
        str, flags.option("--url", "address of Grafana, such as https://grafana.example.com")
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
        str | None, flags.option("--folder", "Grafana folder  [default: none]", "UID")
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
    for dashboard in _dashboards():
        asked: dict[str, Any] = {"dashboard": dashboard, "overwrite": True}
        if folder is not None:
            asked["folderUid"] = folder
        try:
            answer = grafana.dashboard.update_dashboard(dashboard=asked)
        except GrafanaException as error:
            field = "--token: " if error.status_code in (401, 403) else ""
            raise InputError(f"{field}Grafana refused {dashboard['uid']}: {error}") from error
        except RequestException as error:
            raise InputError(f"--url: no Grafana answers at {url} ({error})") from error
        typer.echo(f"{place.scheme}://{place.netloc}{answer.get('url', '')}")


def _dashboards() -> list[dict[str, Any]]:
    files = sorted(DASHBOARDS.glob("*.json"))
    if not files:
        raise InputError(f"no dashboards in {DASHBOARDS}: run the command of a clone")
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]

"""A bare Ray Serve deployment next to the service, as the reference of `bench http`.

`python -m ops.harness.bare_hop FILE` runs the service of a configuration file, and on the same Ray
a second application at `/bare`. That one takes a DecodeRequest as JSON, calls the method's own
deployment and streams its messages; it does not route, check, tokenise or count.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import StreamingResponse

from deployments.app import SHARED
from deployments.run import APPLICATION, serve_forever
from ops.harness.running_service import BARE_HOP
from ops.harness.settings import load_config
from schemas import AppConfig, DecodeRequest


class BareHop:
    """`hosts` maps each method to the name of the deployment that hosts it."""

    def __init__(self, hosts: dict[str, str]) -> None:
        self._streams = {method: _stream(host) for method, host in hosts.items()}

    async def __call__(self, request: Request) -> StreamingResponse:
        asked = DecodeRequest.model_validate_json(await request.body())
        messages = self._streams[asked.method].remote(asked, False)
        return StreamingResponse(_events(messages), media_type="text/event-stream")


def bare_hop(config: AppConfig) -> serve.Application:
    """The application, for the methods of a service that runs on the same Ray."""
    names = [method.name for method in config.methods]
    hosts = {name: SHARED if config.layout == "shared" else name for name in names}
    deployment: Any = serve.deployment(BareHop)
    options = {"num_cpus": 0, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
    application: serve.Application = deployment.options(
        name=BARE_HOP, max_ongoing_requests=256, ray_actor_options=options
    ).bind(hosts)
    return application


def _stream(deployment: str) -> Any:
    handle: DeploymentHandle[Any] = serve.get_deployment_handle(deployment, APPLICATION)
    return handle.options(method_name="generate", stream=True)


async def _events(messages: Any) -> AsyncIterator[str]:
    async for message in messages:
        yield f"data: {json.dumps(message)}\n\n"


if __name__ == "__main__":
    # Under its own name, since a class of __main__ would be pickled by value.
    from ops.harness import bare_hop as module

    settings = load_config(Path(sys.argv[1]))
    serve_forever(settings, beside={BARE_HOP: module.bare_hop(settings)})

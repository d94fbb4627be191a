"""`specadapt keys`: API keys of a service."""

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags
from ops.common.boundary import InputError

BYTES = 32


def create(
    name: Annotated[str, flags.option("--name", "name of the key in logs")],
    file: Annotated[
        Path,
        flags.option("--file", "key file, http.guard.keys_file; created if missing", "FILE"),
    ],
    tenant: Annotated[
        str | None, flags.option("--tenant", "tenant whose limits the key shares")
    ] = None,
    admin: Annotated[bool, flags.option("--admin", "allow the key for /admin only")] = False,
) -> None:
    """Create an API key, print it once and store its hash.

    A running service accepts the key immediately.

    Example: `specadapt keys create --name chat-app --file keys.yaml`
    """
    import yaml
    from pydantic import ValidationError

    from deployments.guard.key_file import hash_of, read_keys
    from schemas.keys import ApiKey, KeyRing, Limits

    try:
        ring = read_keys(file) if file.exists() else KeyRing(keys=())
    except ValueError as error:
        raise InputError(str(error)) from error
    key = f"sk-{secrets.token_urlsafe(BYTES)}"
    added = ApiKey(name=name, sha256=hash_of(key), tenant=tenant, admin=admin)
    tenants = dict(ring.tenants) if tenant is None else {tenant: Limits(), **ring.tenants}
    try:
        ring = KeyRing(keys=(*ring.keys, added), tenants=tenants)
    except ValidationError as error:
        raise InputError(f"--name: {file} already has a key named {name!r}") from error
    # All of it or nothing, in the place of what a service reads; for its owner's eyes.
    scratch = file.with_name(f".{file.name}.new")
    scratch.touch(mode=0o600)
    body = ring.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    scratch.write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
    if file.exists():
        os.chmod(scratch, file.stat().st_mode)  # noqa: PTH101 - of the file that it replaces
    scratch.replace(file)
    typer.echo(key)

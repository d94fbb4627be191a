"""The processes of a service of this process's own, as Ray's table of actors has them."""

from dataclasses import dataclass

from ray._private import state as ray_state

from deployments.actors import FEEDBACK, LOADS

CONTROLLER = "controller"
PROXY = "proxy"
_ROLES = {
    "SERVE_CONTROLLER_ACTOR": CONTROLLER,
    "SERVE_PROXY_ACTOR": PROXY,
    **{f"{role}:": role for role in (FEEDBACK, LOADS)},
}
_REPLICA = "SERVE_REPLICA::"


@dataclass(frozen=True)
class Process:
    """A living process of the service. role: CONTROLLER, PROXY, FEEDBACK, LOADS, or of a replica
    the name of its deployment; replica: its own name, empty for others."""

    role: str
    replica: str
    pid: int


def processes(*roles: str) -> list[Process]:
    """Return the running processes of these roles, or of all, without asking the service."""
    # ray.util.state would ask the dashboard, which is not started here
    actors = ray_state.actors().values()
    living = [_process(a["Name"], a["Pid"]) for a in actors if a["State"] == "ALIVE"]
    return [p for p in living if p is not None and (not roles or p.role in roles)]


def _process(actor: str, pid: int) -> Process | None:
    """The process of an actor; None for one that is no part of the service."""
    if actor.startswith(_REPLICA):
        _, deployment, replica = actor.split("#")
        return Process(deployment, replica, pid)
    role = next((role for prefix, role in _ROLES.items() if actor.startswith(prefix)), None)
    return None if role is None else Process(role, "", pid)

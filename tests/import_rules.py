"""Who may import whom: between packages, between the sub-packages of one, and never in a circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

PACKAGES = {
    "schemas": set(),
    "workers": {"schemas"},
    "router": {"schemas"},
    "deployments": {"schemas", "workers", "router"},
    "training": {"schemas", "workers"},
    "ops": {"schemas", "workers", "router", "deployments", "training"},
}
MODEL_LIBRARIES = {"torch", "transformers", "sentence_transformers"}
FORBIDDEN_LIBRARIES = {
    "schemas": {"ray", *MODEL_LIBRARIES},
    "workers": {"ray"},
    "router": {"ray", *MODEL_LIBRARIES},
    "training": {"ray"},
}
# Only the export of the encoder needs torch; everything that serves runs the exported one.
MAY_IMPORT_MODELS = {"router/fit/encoder_export.py"}

ENGINES_SHARE = {
    *("bundle", "chat_template", "drafting", "end_tokens", "engine", "grammar"),
    *("methods", "portfolio", "stream", "text", "target_sizes", "weight_files", "head_files"),
    *("engine_load", "cpu_arithmetic", "http_clients", "stopwatch"),
}
"""What an engine may import of `workers`: neither another engine nor the loader."""
PARTS_SHARE = {
    *(
        "distribution",
        "drafter_guard",
        "tree_growth",
        "build_context",
        "models",
        "interfaces",
        "registry",
    ),
    *("sequence", "tree"),
}
"""What a drafter, tree, stop or verifier may import of the engine: not the loop."""
BENEATH_PARTS = PARTS_SHARE | {"constraint", "logit_processor"}
"""These and what they rest on: none of it knows the loop."""
ROUTER_SERVES = {
    *("acceptance", "cluster", "constraints", "drift", "embed", "exploration"),
    *("learner", "load", "policy", "predict", "preferred", "prompt"),
    *("replica_loads", "scaling", "table", "times"),
}
"""What serves of the router. It does not know `router/fit`, which works offline."""

# A sub-package is a folder or file right under its package. One that is named here imports, of its
# package, itself and what stands behind it.
SUB_PACKAGES: dict[str, dict[str, set[str]]] = {
    "workers": {
        "torch_engine": ENGINES_SHARE,
        "vllm_engine": ENGINES_SHARE,
        "openai_engine": ENGINES_SHARE,
        "reasoning": {"text"},
        **dict.fromkeys(ENGINES_SHARE, ENGINES_SHARE),
    },
    "workers/torch_engine": {
        **dict.fromkeys(BENEATH_PARTS, BENEATH_PARTS),
        "models": set(),
        **dict.fromkeys(("drafters", "trees", "stops", "verifiers"), PARTS_SHARE),
    },
    "router": dict.fromkeys(ROUTER_SERVES, ROUTER_SERVES),
    "deployments": {
        "errors": set(),
        "transport": set(),
        "metrics": set(),
        "traces": set(),
        "artifacts": set(),
        "configuration": set(),
        "rollout": {"configuration"},
        "guard": {"errors", "metrics", "traces", "transport"},
        "actors": set(),
        "loads": {"actors"},
        "learning": {"errors", "metrics", "artifacts", "actors", "loads", "rollout"},
        "head_training": {
            *("errors", "metrics", "artifacts", "actors", "loads", "rollout"),
            "learning",
        },
        "request": {"errors", "metrics", "traces", "artifacts", "learning"},
        "api": {
            *("errors", "metrics", "artifacts", "configuration"),
            *("learning", "request", "guard"),
        },
        "replica": {
            *("errors", "metrics", "traces", "artifacts", "request"),
            *("actors", "loads", "learning", "head_training", "configuration", "rollout"),
        },
    },
    "ops": {
        "common": set(),
        "bench": {"common"},
        "routing_tables": {"common", "models"},
        "models": {"common"},
        "operate": {"common", "models", "routing_tables"},
        "report": {"common"},
        "simulate": {"common"},
    },
    "ops/bench": {
        "stats": set(),
        "decode": {"stats"},
        "serve_runs": {"stats"},
        "serve": {"serve_runs"},
        "plot": set(),
    },
    "ops/models": {"bundle": set(), "train": set()},
}
ASSEMBLERS = {
    "workers": {"loader"},
    "workers/torch_engine": {
        *("engine", "method", "processed_logits", "scheduler", "step", "target"),
    },
    "router": {"fit"},
    "deployments": {"app", "ingress", "run"},
    "ops": {"main", "__main__"},
    "ops/bench": set(),
    "ops/models": set(),
}
"""The sub-packages that put their package together and may import all of it."""


def imported(tree: ast.AST, file: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file (relative to the root) imports; `from a import
    b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = file.parts[: -node.level] if node.level else ()
            package = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{package}.{alias.name}"


def files(root: Path) -> list[Path]:
    """Every Python file of the packages, relative to the root."""
    return [
        file.relative_to(root)
        for own in sorted(PACKAGES)
        for file in sorted((root / own).rglob("*.py"))
    ]


def violations(root: Path) -> list[str]:
    """`file:line imports name` for every import that breaks a rule between packages or
    sub-packages."""
    found = []
    for file in files(root):
        for line, name in imported(ast.parse((root / file).read_text()), file):
            if _breaks_a_package(file, name) or _breaks_a_sub_package(file, name):
                found.append(f"{file.as_posix()}:{line} imports {name}")
    return found


def _breaks_a_package(file: Path, name: str) -> bool:
    own, package = file.parts[0], name.partition(".")[0]
    others = {*PACKAGES, "tests"} - PACKAGES[own] - {own}
    forbidden = others | FORBIDDEN_LIBRARIES.get(own, set())
    if file.as_posix() in MAY_IMPORT_MODELS:
        forbidden -= MODEL_LIBRARIES
    return package in forbidden


def _breaks_a_sub_package(file: Path, name: str) -> bool:
    path = name.replace(".", "/") + "/"
    for own, rules in SUB_PACKAGES.items():
        if not (file.as_posix().startswith(f"{own}/") and path.startswith(f"{own}/")):
            continue
        depth = own.count("/") + 1
        own, other = Path(file.parts[depth]).stem, path.split("/")[depth]
        if own in rules and other and other not in rules[own] | {own}:
            return True
    return False


def unnamed(root: Path) -> list[str]:
    """Sub-packages that neither have a rule nor are known to put their package together."""
    others = {own: SUB_PACKAGES[own].keys() | names for own, names in ASSEMBLERS.items()}
    return [
        place.relative_to(root).as_posix()
        for own, names in others.items()
        for place in sorted((root / own).glob("*"))
        if place.stem not in {*names, "__init__"}
        and (any(place.rglob("*.py")) if place.is_dir() else place.suffix == ".py")
    ]


def circle(root: Path) -> list[str]:
    """The files of one circle of imports, each importing the one after it; empty without any."""
    known = {_dotted(file): file.as_posix() for file in files(root)}
    graph = {
        name: _executed(known, name, imported(ast.parse((root / file).read_text()), Path(file)))
        for name, file in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [known[name] for name in reversed(error.args[1])]
    return []


def _dotted(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def _executed(known: dict[str, str], importer: str, names: Iterator[tuple[int, str]]) -> set[str]:
    """The modules that imports execute: each name itself or the module that holds it, and before
    it the packages it is in, save those that the importer is in as well."""
    held = {name if name in known else name.rpartition(".")[0] for _, name in names}
    packages = set().union(*map(_prefixes, held)) - _prefixes(importer)
    return (held | packages) & known.keys() - {importer}


def _prefixes(name: str) -> set[str]:
    return set(accumulate(name.split("."), "{}.{}".format))

"""What a bundle is made of: a GGUF file, a Hugging Face folder, or a package's file."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ops.common.boundary import InputError
from ops.common.output import quiet_transformers
from ops.common.settings import DRIVER, refuse_too_large
from ops.models.bundle.gguf_file import GgufFile
from schemas import SamplingDefaults
from workers.bundle import (
    IMPORTER,
    MANIFEST,
    PACKAGED_PARTS,
    Packaged,
    file_hash,
    load_bundle,
    read_json,
    user_cache,
)
from workers.weight_files import INDEX, SINGLE, parameter_count, weight_files

MODEL_FILES = ("config.json", "generation_config.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
PROVENANCE = "provenance.json"
WANTED = (*MODEL_FILES, *TOKENIZER_FILES, INDEX, "*.safetensors")
"""What is downloaded of a model of the Hugging Face hub."""
SAMPLING = {
    "temperature": "temp",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
"""Defaults of requests, by their names in generation_config.json and in GGUF files."""
NOT_CARRIED = ("tokenizer.chat_template.", "general.sampling.")
"""Beginnings of a GGUF file's fields for named chat templates, and for defaults of requests."""
TEMPLATES = "additional_chat_templates"
"""Folder of a Hugging Face folder's named chat templates."""
SPECULATORS = ("draft", "medusa", "eagle", "eagle3", "peagle", "dflash", "mtp")
"""Parts of a bundle that drafters are."""
ROUTING = "routing"
IMPORT_BYTES = 2
"""Of a parameter, in the bfloat16 that an import writes and tries."""
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
Say = Callable[[str], None]
Convert = Callable[[Path, Say], None]
"""Writes target/ and tokenizer/ of a source to a folder."""


def bundle_of(model: str, say: Say) -> Path:
    """Return the bundle that `model` names, or one made of it in the user's cache.

    model: a bundle, a GGUF file, a Hugging Face folder, or a name on the Hugging Face hub. Raises
    InputError if it is none of these or cannot be imported.
    """
    source, name = Path(model), None
    if (source / MANIFEST).is_file():
        return source
    if not source.exists():
        # the folder has the hash of a revision as its name
        source, name = folder_of(model), model.split("/")[-1]
    try:
        if source.is_file():  # a GGUF file's fields take a second to read
            own, digest = source.name.removesuffix(".gguf"), file_hash(source)
        else:
            facts = _source(source)[1]
            own, digest = facts["name"], facts["sha256"]
        folder = user_cache("bundles") / f"{_slug(name or own)}-{digest[:12]}-{IMPORTER}"
        if not folder.exists():
            imported(source, folder, say, name)
        return folder
    except InputError as error:  # `bundle import` has another name for it
        raise InputError(re.sub("^SRC", "MODEL", str(error))) from error


def derived(base: Path, speculators: Sequence[str], name: str | None, say: Say) -> Path:
    """Return a bundle in the user's cache with another bundle's parts, heads or draft models of its
    own (`part=folder or hub name`), and another name. Files are linked, not copied.

    Raises InputError for what is no such pair. Heads are read when an engine loads them.
    """
    body, given = read_json(base / MANIFEST), given_parts(speculators)
    own = {part: folder for part, folder in body["parts"].items() if part not in given}
    body = body | {"name": name or body["name"], "parts": own | {part: part for part in given}}
    if not given.keys() <= own.keys():  # a method that the base could not have is served too
        body.pop("portfolio", None)
    sources = {folder: base / folder for folder in own.values()} | given
    if not given and (base / ROUTING).is_dir():  # with other parts it is another portfolio's
        sources[ROUTING] = base / ROUTING
    digest = hashlib.sha256(json.dumps(body).encode())
    for folder in sorted(sources):
        for file in sorted(file for file in sources[folder].rglob("*") if file.is_file()):
            digest.update(f"{folder}/{file.name}\0{file_hash(file)}".encode())
    made = user_cache("bundles") / f"{_slug(body['name'])}-{digest.hexdigest()[:12]}"
    if not made.exists():
        say(f"putting {', '.join(sorted(given)) or 'the name'} and {base.name} into {made}")
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=made.parent) as scratch:
            for folder, source in sources.items():
                shutil.copytree(source, Path(scratch) / "made" / folder, copy_function=_linked)
            text = json.dumps(body, indent=2) + "\n"
            (Path(scratch) / "made" / MANIFEST).write_text(text, encoding="utf-8")
            (Path(scratch) / "made").rename(made)
    return made


def given_parts(speculators: Sequence[str], files: Sequence[str] = WANTED) -> dict[str, Path]:
    """Return the folders of parts that are given as `part=folder or hub name`, as `folder_of`
    finds them. Raises InputError for what is no such pair."""
    given = dict[str, Path]()
    for one in speculators:
        part, _, place = one.partition("=")
        if part not in SPECULATORS or not place:
            known = ", ".join(SPECULATORS)
            raise InputError(f"--speculator: {one}: must be PART=MODEL; parts are {known}")
        given[part] = folder_of(place, "--speculator", files)
    return given


def _linked(source: str, target: str) -> None:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:  # of another file system
        shutil.copyfile(source, target)


def folder_of(model: str, field: str = "MODEL", files: Sequence[str] = WANTED) -> Path:
    """Return a folder, or that of a model of the Hugging Face hub with the files of these patterns,
    from its cache if it is there. Raises InputError naming the field."""
    if Path(model).is_dir():
        return Path(model)
    if not HUB_NAME.fullmatch(model):
        raise InputError(f"{field}: {model} does not exist")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(model, allow_patterns=list(files)))
    except Exception as error:  # whatever the hub's client and its connections raise
        why = str(error).strip().split("\n")[0]
        raise InputError(
            f"{field}: {model} is no file or folder here and cannot be downloaded: {why}"
        ) from error
    return folder


def imported(source: Path, out: Path | None, say: Say, name: str | None = None) -> dict[str, Any]:
    """Make a bundle of a source in `out`, or fetch the packaged model that a bundle names. Return
    its folder, whether it is fresh, its parameters, the implementation of its forward pass, and
    where it comes from.

    `out` defaults to bundles/NAME and `name` to the source's own; a packaged model goes to the
    user's cache. What exists stays. Raises InputError for another kind of source, one with another
    hash, one that the memory does not hold, or an `out` that holds another model.
    """
    quiet_transformers()
    packaged: Packaged | None = None
    if (source / MANIFEST).is_file():
        packaged = load_bundle(source).packaged
        if packaged is None:
            raise InputError(f"SRC: {source} already has its target; there is nothing to import")
        if out is not None:
            raise InputError(f"--out: {source} takes a package's model, which the cache keeps")
        if (packaged.folder / PROVENANCE).is_file():
            return _described(packaged.folder, fresh=False)
        source, out = packaged.installed(), packaged.folder
        if file_hash(source) != packaged.sha256:
            raise InputError(f"{source} is not the file that the bundle names: its SHA-256 differs")
    convert, facts, advised = _source(source)
    name = _slug(name or facts["name"])
    folder = out or Path("bundles") / name
    if packaged is not None:
        facts |= {"package": packaged.package}
    with _made(folder, facts, say) as scratch:
        if scratch is not None:
            convert(scratch, say)
            _tried(scratch, say)
            if packaged is None:
                parts = {part: part for part in PACKAGED_PARTS}
                body = {"name": name, "parts": parts, "sampling": _sampling(advised, say)}
                text = json.dumps(body, indent=2) + "\n"
                (scratch / MANIFEST).write_text(text, encoding="utf-8")
    return _described(folder, fresh=scratch is not None)


def _source(source: Path) -> tuple[Convert, dict[str, Any], dict[str, Any]]:
    """Return what converts a GGUF file or a Hugging Face folder, the source's facts, and the
    defaults of requests that its makers advise, None where they advise none."""
    if source.is_file():
        from ops.models.bundle.gguf_weights import convert_gguf  # it imports torch

        file = GgufFile(source)
        refuse_too_large(source, IMPORT_BYTES * file.parameters)
        keys = {name: f"general.sampling.{key}" for name, key in SAMPLING.items()}
        left = [f for f in file.fields if f.startswith(NOT_CARRIED) and f not in keys.values()]
        advised = {name: file.fields.get(key) for name, key in keys.items()}
        return partial(convert_gguf, file), file.facts() | {"left_out": left}, advised
    if (source / "config.json").is_file():
        if not DRIVER.exists():  # a GPU's memory is not asked for before torch is here
            refuse_too_large(source, IMPORT_BYTES * parameter_count(source))
        made = source / "generation_config.json"
        fields = read_json(made) if made.is_file() else {}
        advised = {name: fields.get(name) for name in SAMPLING}
        return partial(copy_model, source), folder_facts(source), advised
    raise InputError(
        f"SRC: {source} is neither a GGUF file nor a folder with config.json or {MANIFEST}"
    )


def _sampling(advised: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return the advised defaults of requests, as vLLM takes them."""
    given = {name: value for name, value in advised.items() if value is not None}
    try:
        SamplingDefaults.model_validate(given)
    except ValueError:
        say(f"leaving out the model's sampling defaults, which are not valid here: {given}")
        return {}
    return given


def _tried(scratch: Path, say: Say) -> None:
    """Decode a token; raises InputError naming no path of the scratch folder, which goes away."""
    from ops.models.bundle.trial import try_out  # it imports torch

    say("decoding one token")
    try:
        try_out(scratch)
    except Exception as error:  # whatever the libraries that load a model raise for odd files
        known = isinstance(error, ValueError)
        said = str(error) if known else f"SRC: the model cannot be loaded: {error!r}"
        where = said.replace(f"{scratch}/target", "SRC").replace(f"{scratch}/", "SRC/")
        raise InputError(where.replace(str(scratch), "SRC")) from error


@contextmanager
def _made(folder: Path, facts: dict[str, Any], say: Say) -> Iterator[Path | None]:
    """Yield a scratch folder that becomes `folder` when it is complete, or None if that exists."""
    if folder.exists():
        if _provenance(folder).get("sha256") != facts["sha256"]:
            raise InputError(f"{folder} is there with something else in it: name another --out")
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=folder.parent) as name:
        scratch = Path(name) / folder.name
        scratch.mkdir()
        say(f"importing {facts['name']} ({facts['quantisation']}) into {folder}")
        if facts["left_out"]:
            say(f"leaving out {', '.join(facts['left_out'])}")
        yield scratch
        text = json.dumps(facts, indent=2) + "\n"
        (scratch / PROVENANCE).write_text(text, encoding="utf-8")
        if not folder.exists():  # another process was as quick
            shutil.move(scratch, folder)


def _described(folder: Path, fresh: bool) -> dict[str, Any]:
    from workers.torch_engine.models.families import NotCoveredError, read_shape

    target = folder / "target"
    try:
        read_shape(target)
        forward = "our own forward"
    except NotCoveredError as reason:
        forward = f"transformers' forward ({reason})"
    return {
        "folder": str(folder),
        "fresh": fresh,
        "parameters": parameter_count(target),
        "forward": forward,
        "provenance": _provenance(folder),
    }


def _provenance(folder: Path) -> dict[str, Any]:
    file = folder / PROVENANCE
    return read_json(file) if file.is_file() else {}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "model"


def folder_facts(source: Path) -> dict[str, Any]:
    """Say where the model comes from. Raises InputError or BundleError for a file that is missing,
    cut off or a Git LFS pointer."""
    config = read_json(source / "config.json")
    if not (source / "tokenizer.json").is_file():
        raise InputError(f"SRC: {source} has no tokenizer.json")
    digest = hashlib.sha256()
    for file in sorted((*_model(source), *_tokenizer(source))):
        digest.update(f"{file.name}\0{file_hash(file)}".encode())
    return {
        "name": source.resolve().name,
        "file": source.name,
        "sha256": digest.hexdigest(),
        "quantisation": config.get("dtype") or config.get("torch_dtype") or "float32",
        "licence": None,
        "left_out": sorted(f"{TEMPLATES}/{one.name}" for one in (source / TEMPLATES).glob("*")),
    }


def copy_model(source: Path, out: Path, _say: Say) -> None:
    """Copy the model's files to target/ in `out` and the tokenizer's to tokenizer/."""
    for part, files in (("target", _model(source)), ("tokenizer", _tokenizer(source))):
        (out / part).mkdir()
        for file in files:
            shutil.copyfile(file, out / part / file.name)


def _model(source: Path) -> list[Path]:
    """The weights are those that transformers would read: a folder may hold others too."""
    weights = weight_files(source)
    index = [] if weights[0].name == SINGLE else [source / INDEX]
    named = [source / name for name in MODEL_FILES]
    return sorted(file for file in (*named, *index, *weights) if file.is_file())


def _tokenizer(source: Path) -> list[Path]:
    return sorted(source / name for name in TOKENIZER_FILES if (source / name).is_file())

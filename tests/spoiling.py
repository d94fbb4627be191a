"""Ways to spoil the files of a model or a bundle. Each is a function of its folder."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


def both(*ways):
    """One after the other."""
    return lambda folder: [spoil(folder) for spoil in ways]


def text(file, content):
    return lambda folder: (folder / file).write_text(content)


def removed(file):
    def spoil(folder):
        path = folder / file
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    return spoil


def cut(file, kept):
    def spoil(folder):
        path = folder / file
        path.write_bytes(path.read_bytes()[:kept])

    return spoil


def fields(file, **changes):
    """Other values in a JSON file."""

    def spoil(folder):
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


def config(part=".", **changes):
    """Other values in config.json."""
    return fields(f"{part}/config.json", **changes)


def tensors(change, part="."):
    """Other weights: `change` gets them by name."""

    def spoil(folder):
        file = folder / part / WEIGHTS
        weights = load_file(file)
        change(weights)
        save_file(weights, file, {"format": "pt"})

    return spoil


def without(name):
    return lambda weights: weights.pop(name)


def changed(name, change):
    return lambda weights: weights.update({name: change(weights[name]).contiguous()})


def replaced(name, *shape, dtype=torch.float32):
    return lambda weights: weights.update({name: torch.ones(*shape, dtype=dtype)})


def sharded(folder):
    """The same weights in two files with an index."""
    weights, index = load_file(folder / WEIGHTS), {}
    (folder / WEIGHTS).unlink()
    names = sorted(weights)
    for file, part in ((FIRST, names[::2]), (SECOND, names[1::2])):
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))

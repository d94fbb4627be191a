"""A routing table on disk: save, load, restrict to what is served.

routing.json   everything but the arrays, and a hash over them
routing.npz    the arrays
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.drift import DriftWatch
from router.preferred import kept, with_preferred
from router.prompt import NAMES
from schemas import TEMPERATURE_BANDS, EncoderInfo, Live, RoutingTable
from schemas.json_files import read_json, validated
from schemas.routing import LIVE_AXES, TABLE_AXES
from schemas.text_files import FileError, open_file

JSON_FILE = "routing.json"
ARRAYS_FILE = "routing.npz"


class RoutingTableError(ValueError):
    """A table that cannot be read or does not belong here; the message names both sides."""


def save_table(table: RoutingTable, folder: Path) -> None:
    """Save a routing table. A reader sees the old pair of files or the new one, or refuses both."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {n: v for n, v in dict(table).items() if isinstance(v, np.ndarray)}
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **own)
    body = table.model_dump(mode="json", exclude={*own, "live"})
    body["arrays_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
    _replace(folder / ARRAYS_FILE, packed.getvalue())
    _replace(folder / JSON_FILE, (json.dumps(body, indent=1) + "\n").encode())


def load_table(
    folder: Path,
    encoder: EncoderInfo | None = None,
    settings_hashes: Mapping[str, str] | None = None,
) -> RoutingTable:
    """Load a routing table from `folder` and check that it matches the encoder and the methods'
    settings, where they are given. Raises RoutingTableError."""
    text, arrays_file = folder / JSON_FILE, folder / ARRAYS_FILE
    for path in (text, arrays_file):
        if not path.is_file():
            raise RoutingTableError(f"{folder} holds no routing table: {path.name} is missing")
    try:
        table = _read(text, arrays_file)
    except FileError as error:
        raise RoutingTableError(str(error)) from error
    try:
        DriftWatch(table)
    except ValueError as error:
        raise RoutingTableError(f"{text}: provenance.distances: {error}; fit again") from error
    if table.features not in ((), NAMES):
        raise RoutingTableError(
            f"{text}: features are {', '.join(table.features)}, but this version computes "
            f"{', '.join(NAMES)}; fit again"
        )
    check_table(table, encoder, settings_hashes)
    return table


def _read(text: Path, arrays_file: Path) -> RoutingTable:
    body, packed = read_json(text), _read_bytes(arrays_file)
    if not isinstance(body, dict):
        raise FileError(f"{text}: expected a JSON object with the fields of a routing table")
    if hashlib.sha256(packed).hexdigest() != body.pop("arrays_sha256", None):
        raise FileError(
            f"{arrays_file} does not belong to {JSON_FILE} in the same folder; save the table again"
        )
    arrays = {
        name: array
        for name, array in _unpack_arrays(packed, str(arrays_file)).items()
        if not name.startswith("live_")  # of an earlier version, which stored what was learned
    }
    table = validated(RoutingTable, body | arrays, str(text))
    known = dict(table)
    expected = {name for name, value in known.items() if isinstance(value, np.ndarray)}
    if arrays.keys() != expected:
        names = ", ".join(sorted(arrays.keys() ^ expected))
        raise FileError(f"{arrays_file}: {names}: missing or not of this version; fit again")
    for name in expected:
        values = known[name]
        # A speedup of NaN was not measured.
        if not np.isfinite(values[~np.isnan(values)] if name == "speedup" else values).all():
            raise FileError(f"{arrays_file}: {name} holds NaN or infinity; fit again")
    return table


def check_table(
    table: RoutingTable,
    encoder: EncoderInfo | None = None,
    settings_hashes: Mapping[str, str] | None = None,
) -> None:
    """Raise RoutingTableError if the table was made for another encoder or other settings."""
    if encoder is not None and encoder != table.encoder:
        raise RoutingTableError(
            f"the routing table was fitted with encoder {_encoder(table.encoder)}, but "
            f"{_encoder(encoder)} is loaded; fit again, or name that encoder in router.encoder"
        )
    for name, theirs in (settings_hashes or {}).items():
        ours = table.settings_hashes.get(name)
        if name in table.methods and ours != theirs:
            raise RoutingTableError(
                f"method {name}: the routing table was measured with settings {ours}, but "
                f"{theirs} is served; profile and fit again, or restore the settings"
            )


def restrict(table: RoutingTable, methods: Sequence[str]) -> RoutingTable:
    """Return the table of the served methods; the fastest replaces a preferred method that is not
    served.

    Raises RoutingTableError for a method that the table does not have.
    """
    unknown = [name for name in methods if name not in table.methods]
    if unknown or not methods:
        raise RoutingTableError(
            f"methods: {', '.join(unknown) or '(none)'} not in the routing table, which has "
            f"{', '.join(table.methods)}; profile and fit with them"
        )
    indices = [i for i, name in enumerate(table.methods) if name in methods]
    names = tuple(table.methods[i] for i in indices)
    live = table.live.model_copy(update=_taken(table.live, LIVE_AXES, indices))
    small = RoutingTable.model_validate(
        {
            **dict(table),
            **_taken(table, TABLE_AXES, indices),
            "live": live,
            "methods": names,
            "assignment": ((names[0],) * len(TEMPERATURE_BANDS),) * len(table.assignment),
            "default_method": names[0],
            "settings_hashes": {n: h for n, h in table.settings_hashes.items() if n in names},
            "lossless": {n: v for n, v in table.lossless.items() if n in names},
        }
    )
    default = table.default_method if table.default_method in names else None
    chosen = with_preferred(small, default)
    return chosen.model_copy(
        update={"assignment": kept(table.assignment, names, chosen.assignment)}
    )


def _taken(
    record: RoutingTable | Live, axes_of: Mapping[str, str], indices: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Return a record's arrays with a method axis, for some methods (by index)."""
    return {
        name: np.take(getattr(record, name), indices, axis=axes.index("m"))
        for name, axes in axes_of.items()
        if "m" in axes
    }


def _encoder(info: EncoderInfo) -> str:
    return f"{info.name} ({info.dimension} dimensions, {info.sha256[:12]})"


def _replace(path: Path, content: bytes) -> None:
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_bytes(content)
    scratch.replace(path)


def _read_bytes(file: Path) -> bytes:
    """Return the content of a regular file. Raises FileError."""
    with open_file(file) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise FileError(f"{file}: {error.strerror}") from error


def _unpack_arrays(content: bytes, place: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in an .npz file's content by name; pickled ones are refused.

    Raises FileError naming `place`.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays.items())
    # zipfile, zlib, struct and NumPy raise different errors.
    except Exception as error:
        raise FileError(f"{place}: not an .npz file of plain arrays: {error}") from error

"""A GGUF file's fields and tensors, and where it comes from."""

import math
from pathlib import Path
from typing import Any

from ops.common.boundary import InputError
from workers.bundle import file_hash, refuse_pointer

FIX = "import the model's Hugging Face folder instead"
"""What to do about a file that says something that is not carried over."""
TYPES: dict[str, type] = {
    **dict.fromkeys(("general.architecture", "general.type", "general.name"), str),
    **dict.fromkeys(("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template"), str),
    **dict.fromkeys(("split.count", "split.no"), int),
    **dict.fromkeys(
        (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "scores", "merges")), list
    ),
}
"""What these fields must be; those that end in _token_id are integers too."""


class GgufFile:
    """An opened GGUF file.

    fields: values by key, without those of the file's own header. tensors: gguf's ReaderTensor by
    name, their data mapped from the file.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError for what is not a whole GGUF file."""
        from gguf import GGUFReader

        refuse_pointer(path)
        try:
            reader = GGUFReader(path)
            self.fields: dict[str, Any] = {
                key: field.contents()
                for key, field in reader.fields.items()
                if not key.startswith("GGUF.")
            }
        except Exception as error:  # any, for any bytes
            raise InputError(
                f"SRC: {path} is not a whole GGUF file: {error}: download it again"
            ) from error
        self.path = path
        self.tensors: dict[str, Any] = {tensor.name: tensor for tensor in reader.tensors}
        for key, value in self.fields.items():
            wanted = int if key.endswith("_token_id") else TYPES.get(key)
            if wanted is not None and not isinstance(value, wanted):
                raise self.refusal(f"{key} is {value!r}: it must be {wanted.__name__}")
        self._refuse_part()
        self._refuse_layout(reader)

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model family."""
        return str(self.required("general.architecture"))

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return sum(int(tensor.n_elements) for tensor in self.tensors.values())

    def required(self, key: str) -> Any:
        """Return a field's value. Raises InputError if it is missing."""
        if key not in self.fields:
            raise self.refusal(f"{key} is missing: {FIX}")
        return self.fields[key]

    def number(self, key: str, default: float | None = None) -> float:
        """Return a field's value as a positive number. Raises InputError if it is not one."""
        value = self.required(key) if default is None else self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refusal(f"{key} is {value!r}: it must be a number")
        if not (math.isfinite(value) and value > 0):
            raise self.refusal(f"{key} is {value}: it must be positive")
        return float(value)

    def refusal(self, problem: str) -> InputError:
        """An error that names the file."""
        return InputError(f"SRC: {self.path.name}: {problem}")

    def _refuse_part(self) -> None:
        parts = self.fields.get("split.count", 0)
        if parts > 1:
            number = self.fields.get("split.no", 0) + 1
            raise self.refusal(
                f"split.count is {parts} and this is part {number}: make one file with "
                "`llama-gguf-split --merge FIRST_PART MERGED`"
            )
        kind = self.fields.get("general.type", "model")
        if kind != "model":
            raise self.refusal(f"general.type is {kind!r}: only 'model' can be imported")

    def _refuse_layout(self, reader: Any) -> None:
        """Refuse bytes that the reader takes as they are: in another order, or of two tensors."""
        if reader.byte_order != "I":
            raise self.refusal(f"its bytes are in the order of other machines: {FIX}")
        end, before = 0, ""
        for tensor in sorted(reader.tensors, key=lambda one: one.data_offset):
            if tensor.data_offset < end:
                raise self.refusal(f"{before} and {tensor.name} overlap: the file is damaged")
            end, before = tensor.data_offset + tensor.n_bytes, tensor.name

    def facts(self) -> dict[str, Any]:
        """Say where the model comes from."""
        from gguf import LlamaFileType

        kind = self.fields.get("general.file_type")
        names: dict[Any, str] = {member.value: member.name for member in LlamaFileType}
        quantisation = names.get(kind, str(kind))
        return {
            "name": self.path.name.removesuffix(".gguf"),
            "model": self.fields.get("general.name"),
            "file": self.path.name,
            "sha256": file_hash(self.path),
            "quantisation": quantisation.removeprefix("MOSTLY_").removeprefix("ALL_"),
            "licence": self.fields.get("general.license"),
            "pre_tokenizer": self.fields.get("tokenizer.ggml.pre"),
        }

"""A GGUF file's fields and tensors, and where it comes from."""

from pathlib import Path
from typing import Any

from ops.cli.boundary import InputError
from workers.bundle import file_hash, refuse_pointer

FIX = "import the model's Hugging Face folder instead"
"""What to do about a file that says something that is not carried over."""


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
        self._refuse_part()

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model family."""
        return str(self.required("general.architecture"))

    def required(self, key: str) -> Any:
        """A field's value; raises InputError where it is missing."""
        if key not in self.fields:
            raise self.refusal(f"{key} is missing: {FIX}")
        return self.fields[key]

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

    def facts(self) -> dict[str, Any]:
        """Say where the model comes from."""
        from gguf import LlamaFileType

        kind = self.fields.get("general.file_type")
        names = {member.value: member.name for member in LlamaFileType}
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

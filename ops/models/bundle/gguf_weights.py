"""A GGUF file's tensors under the names of a Hugging Face checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, dequantize, get_tensor_name_map
from gguf.quants import Q4_K
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig

from ops.models.bundle.gguf_config import FREQUENCIES, Architecture, architecture_of, read_config
from ops.models.bundle.gguf_file import FIX, GgufFile
from ops.models.bundle.gguf_tokenizer import save_tokenizer
from workers.torch_engine.models.weights import pack
from workers.weight_files import PACKED

NAMED = 4
"""Tensors that a message names."""
WIDE = {"F64", "F32", "F16", "BF16"}
"""Types that are not quantised."""
Change = Callable[[np.ndarray], np.ndarray]
Groups = tuple[np.ndarray, np.ndarray, np.ndarray]
"""uint8 codes below 16 [out, in], float32 scales and offsets [out, in / 32]: weight = code * scale
+ offset."""


def convert_gguf(file: GgufFile, out: Path, say: Callable[[str], None]) -> None:
    """Write target/ (safetensors in bfloat16) and tokenizer/ to `out`.

    Raises InputError naming the field or tensor that would make another model of it.
    """
    target, config = out / "target", read_config(file)
    target.mkdir()
    size = 2 * file.parameters / 1e9
    say(f"converting the weights to bfloat16, {size:.1f} GB")
    save_weights(file, architecture_of(file), config, target)
    say("reading the tokenizer")
    save_tokenizer(file, out / "tokenizer")
    config.save_pretrained(target)
    GenerationConfig.from_model_config(config).save_pretrained(target)


def save_weights(file: GgufFile, architecture: Architecture, config: Any, out: Path) -> None:
    """Write model.safetensors in bfloat16 to `out`, and name the model's class in the config. Of a
    quantised file, 4-bit weights are also written as they are, for `engine.dtype: q4`.

    Raises InputError naming tensors that are missing, unknown, of another shape than the config's,
    not finite, or quantised in a way that is not read.
    """
    model = _without_memory(file, config)
    config.architectures = [type(model).__name__]
    expected = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    names = {hf: _gguf_name(file, hf, config.num_hidden_layers) for hf in expected}
    matrices = [names[hf] for hf, dims in expected.items() if len(dims) == 2]
    _refuse_misfit(file, {names[hf]: dims for hf, dims in expected.items()})
    weights, packed = {}, {}
    for hf, name in names.items():
        change = _change(name, architecture, config)
        weights[hf] = _tensor(change(_dequantised(file, name))).to(torch.bfloat16)
        groups = read_groups(file.tensors[name])
        if groups is not None:
            packed[hf] = pack(*(_tensor(change(each)) for each in groups))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    if packed or not any(file.tensors[name].tensor_type.name in WIDE for name in matrices):
        (out / PACKED).parent.mkdir()
        save_file(packed, out / PACKED)


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values, order="C"))


def _change(name: str, architecture: Architecture, config: Any) -> Change:
    """Return what turns a tensor's rows, or a norm's values, into those of a checkpoint."""
    if name.endswith("norm.weight"):
        return lambda values: values - architecture.norm_offset
    if architecture.interleaved and name.split(".")[-2] in ("attn_q", "attn_k"):
        heads = _heads(name, config)
        return lambda values: _halves(values, heads)
    return lambda values: values


def _without_memory(file: GgufFile, config: Any) -> Any:
    """Transformers' own model, for its tensors' names and shapes."""
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    except Exception as error:  # transformers refuses sizes in ways of its own
        raise file.refusal(f"its fields make no model: {error}") from error


def _gguf_name(file: GgufFile, name: str, layers: int) -> str:
    arch = next(key for key, value in MODEL_ARCH_NAMES.items() if value == file.architecture)
    stem, _, suffix = name.rpartition(".")
    found = get_tensor_name_map(arch, layers).get_name(stem)
    if found is None:
        raise file.refusal(f"no tensor is known for {name}: {FIX}")
    return f"{found}.{suffix}"


def _refuse_misfit(file: GgufFile, expected: dict[str, tuple[int, ...]]) -> None:
    missing = [name for name in expected if name not in file.tensors]
    if missing:
        raise file.refusal(
            f"{len(missing)} tensors are missing ({', '.join(missing[:NAMED])}): "
            "download the file again, or merge its parts"
        )
    extra = [name for name in file.tensors if name not in expected and name != FREQUENCIES]
    if extra:
        raise file.refusal(
            f"a {file.architecture} model does not have {', '.join(extra[:NAMED])} "
            f"({len(extra)} tensors): {FIX}"
        )
    for name, dims in expected.items():
        found = tuple(int(n) for n in reversed(file.tensors[name].shape))
        if found != dims:
            raise file.refusal(f"{name} is {list(found)}, its fields make it {list(dims)}")


def _dequantised(file: GgufFile, name: str) -> np.ndarray:
    tensor = file.tensors[name]
    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except (NotImplementedError, ValueError) as error:
        raise file.refusal(
            f"{name} is quantised as {tensor.tensor_type.name}, which is not read: {FIX}"
        ) from error
    if not np.isfinite(values).all():
        raise file.refusal(f"{name} holds NaN or infinity: the file is damaged")
    return values


def _heads(name: str, config: Any) -> int:
    queries = ".attn_q." in name
    return int(config.num_attention_heads if queries else config.num_key_value_heads)


def _halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows from rotary pairs side by side to one half of each pair after the other."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def read_groups(tensor: Any) -> Groups | None:
    """Return the groups of 32 weights of a matrix stored as Q4_0, Q4_1 or Q4_K, else None."""
    read = _READERS.get(tensor.tensor_type.name)
    return None if read is None or tensor.data.ndim != 2 else read(tensor.data)


def _q4_0(data: np.ndarray) -> Groups:
    blocks = data.reshape(len(data), -1, 18)
    scale = _float16s(blocks[..., :2])[..., 0]
    return _nibbles(blocks[..., 2:]), scale, -8.0 * scale


def _q4_1(data: np.ndarray) -> Groups:
    blocks = data.reshape(len(data), -1, 20)
    numbers = _float16s(blocks[..., :4])
    return _nibbles(blocks[..., 4:]), numbers[..., 0], numbers[..., 1]


def _q4_k(data: np.ndarray) -> Groups:
    """Eight groups share two float16 numbers, with 6-bit multiples of these for each group."""
    rows, blocks = len(data), data.reshape(-1, 144)
    numbers = _float16s(blocks[:, :4])
    scales, offsets = Q4_K.get_scale_min(blocks[:, 4:16])
    scale = numbers[:, :1] * scales.astype(np.float32)
    offset = -numbers[:, 1:] * offsets.astype(np.float32)
    codes = _nibbles(blocks[:, 16:].reshape(rows, -1, 32))
    return codes, scale.reshape(rows, -1), offset.reshape(rows, -1)


def _float16s(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: np.ndarray) -> np.ndarray:
    """Return codes [rows, weights] of bytes [rows, blocks, bytes]: a block's lower halves first."""
    codes: np.ndarray = np.concatenate((data & 15, data >> 4), -1)
    return codes.reshape(len(data), -1)


_READERS: dict[str, Callable[[np.ndarray], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
}

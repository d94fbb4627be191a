"""LoRA adapters as the configuration names them, without vLLM."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from schemas import EngineConfig
from schemas.config import OpenAIConfig
from workers.methods import get_method
from workers.vllm_engine.adapter_files import check_adapters, lora_arguments


def adapter(folder: Path, layers: tuple[str, ...] = ("self_attn.q_proj",), **config) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4} | config))
    names = [
        f"base_model.model.model.layers.0.{one}.lora_{m}.weight" for one in layers for m in "AB"
    ]
    weights = {name: np.zeros(1, np.float32) for name in names}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def refused(methods: list, adapters: dict[str, Path], said: str, **engine) -> None:
    config = EngineConfig(lora_adapters=adapters, **engine)
    specs = [get_method(name) for name in methods]
    with pytest.raises(ValueError, match=said) as caught:
        check_adapters(config, specs)
    assert str(caught.value).startswith("engine.lora_adapters")


def test_the_engine_has_room_for_all_adapters(tmp_path: Path) -> None:
    assert lora_arguments({}) == {}
    few = {
        "law": adapter(tmp_path / "law", r=8),
        "code": adapter(tmp_path / "code", ("mlp.down_proj",), r=20),
    }
    assert lora_arguments(few) == {
        "enable_lora": True,
        "max_loras": 2,
        "max_lora_rank": 32,
        "lora_target_modules": ["down_proj", "q_proj"],
    }
    wide = adapter(tmp_path / "wide", r=8, rank_pattern={"down_proj": 64})
    assert lora_arguments({"wide": wide})["max_lora_rank"] == 64
    config = EngineConfig(lora_adapters=few)
    check_adapters(config, [get_method("vllm_eagle3"), get_method("vllm_naive")])


def test_an_adapter_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    refused(["vllm_naive"], {"law": tmp_path / "nowhere"}, r"\.law: .*nowhere.*give the folder")
    (tmp_path / "adapter_config.json").write_text("{}")
    refused(["vllm_naive"], {"law": tmp_path}, r"\.law: .*'r'.*give the folder")
    refused(["vllm_naive"], {"a": adapter(tmp_path / "a", r=600)}, "rank 600: vLLM takes 1 to 512")
    bare = adapter(tmp_path / "bare")
    (bare / "adapter_model.safetensors").unlink()
    refused(["vllm_naive"], {"law": bare}, r"\.law: .*adapter_model.safetensors cannot be read")
    for layers, said in (((), "nothing"), (("embed_tokens",), "embed_tokens")):
        wrong = adapter(tmp_path / said, layers)
        refused(["vllm_naive"], {"law": wrong}, f"changes {said}: give")


def test_methods_and_servers_without_adapters_are_refused(tmp_path: Path) -> None:
    law = {"law": adapter(tmp_path / "law")}
    refused(["naive"], law, "only vLLM's methods.*naive is of torch: leave")
    refused(["vllm_naive"], {"vllm_naive": law["law"]}, "a method has this name: rename")
    server = OpenAIConfig(urls=("http://10.0.0.5:8000/v1",))
    refused(["vllm_naive"], law, "servers load their own", openai=server)


@pytest.mark.parametrize("name", ["", "a:b", "a b", "a/b", "x" * 65])
def test_a_name_stands_between_colons(name: str) -> None:
    with pytest.raises(ValueError, match="is no adapter's name: use up to 64 letters"):
        EngineConfig(lora_adapters={name: "folder"})

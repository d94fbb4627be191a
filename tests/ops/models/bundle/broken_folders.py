"""Ways to spoil a Hugging Face folder, and what the import says of each."""

import json

import torch
from safetensors.torch import load_file, save_file

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


def sharded(folder):
    """The same weights in two files with an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    written = {"metadata": {}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(written))
    return index


def changed(folder, **changes):
    """Other values in config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def weights_of(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def no_shard(folder):
    sharded(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def no_index(folder):
    sharded(folder)
    (folder / "model.safetensors.index.json").unlink()


def one_shard_alone(folder):
    no_index(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def index_elsewhere(folder):
    index = sharded(folder)
    name = next(name for name, file in index.items() if "00001" in file)
    other = index | {name: "model-00002-of-00002.safetensors"}
    text = json.dumps({"weight_map": other})
    (folder / "model.safetensors.index.json").write_text(text)


def index_outside(folder):
    sharded(folder)
    text = json.dumps({"weight_map": {"model.norm.weight": "../model.safetensors"}})
    (folder / "model.safetensors.index.json").write_text(text)


def index_broken(folder):
    sharded(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": [')


def cut_off(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def cut_in_the_header(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:40])


def empty(folder):
    (folder / "model.safetensors").write_bytes(b"")


def pointer(folder):
    (folder / "model.safetensors").write_text(POINTER)


def pointer_to_tokenizer(folder):
    (folder / "tokenizer.json").write_text(POINTER)


def broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')


def broken_config(folder):
    (folder / "config.json").write_text('{"model_type": "llama"')


def no_model_type(folder):
    (folder / "config.json").write_text("{}")


def untied(folder):
    changed(folder, tie_word_embeddings=False)


def a_layer_less(folder):
    changed(folder, num_hidden_layers=2)


def a_layer_more(folder):
    changed(folder, num_hidden_layers=4)


def another_width(folder):
    changed(folder, intermediate_size=96)


def biases(folder):
    name = "model.layers.0.self_attn.q_proj.bias"
    weights_of(folder, lambda weights: weights.update({name: torch.ones(64)}))


def not_a_number(folder):
    def spoil(weights):
        weights["model.layers.1.mlp.down_proj.weight"][0, 0] = torch.nan

    weights_of(folder, spoil)


def overflowing(folder):
    def enlarge(weights):
        weights["model.norm.weight"].fill_(3e38)
        weights["model.layers.0.input_layernorm.weight"].fill_(3e38)

    weights_of(folder, enlarge)


def few_embeddings(folder):
    def cut(weights):
        weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:100].clone()

    weights_of(folder, cut)
    changed(folder, vocab_size=100)


def end_of(eos):
    def spoil(folder):
        changed(folder, eos_token_id=eos)
        (folder / "generation_config.json").unlink(missing_ok=True)

    spoil.__name__ = f"end_{eos}"
    return spoil


def odd_end(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": {"id": 1}}')


def header_of(folder, change):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[end:])


def overlapping(folder):
    def overlap(header):
        first, second = (f"model.layers.{i}.self_attn.k_proj.weight" for i in (0, 1))
        header[second]["data_offsets"] = header[first]["data_offsets"]

    header_of(folder, overlap)


def another_dtype(folder):
    header_of(folder, lambda header: header["model.norm.weight"].update(dtype="F64"))


def quantised_to(dtype):
    def spoil(folder):
        def quantise(weights):
            name = "model.layers.0.mlp.up_proj.weight"
            weights[name] = (weights[name] * 100).to(dtype)

        weights_of(folder, quantise)

    spoil.__name__ = str(dtype).removeprefix("torch.")
    return spoil


def no_heads(folder):
    changed(folder, num_attention_heads=0)


def no_factor(folder):
    changed(folder, rope_scaling={"rope_type": "linear"})


def no_positions(folder):
    changed(folder, max_position_embeddings=0)


def code_of_its_own(folder):
    changed(folder, model_type="own", auto_map={"AutoConfig": "own.Config"})


def end_beyond(folder):
    changed(folder, eos_token_id=99_999)
    (folder / "generation_config.json").unlink(missing_ok=True)


REFUSED = {
    no_weights: "no *.safetensors",
    no_shard: "model-00002-of-00002.safetensors is missing",
    no_index: "model.safetensors.index.json is missing",
    one_shard_alone: "model.safetensors.index.json is missing",
    index_elsewhere: "is not in model-00002-of-00002.safetensors",
    index_outside: "'weight_map' must map tensors to files in this folder",
    index_broken: "model.safetensors.index.json is not JSON",
    cut_off: "model.safetensors is cut off or damaged",
    cut_in_the_header: "model.safetensors is not a whole safetensors file",
    empty: "model.safetensors is not a whole safetensors file",
    pointer: "model.safetensors is a Git LFS pointer, not the file: run `git lfs pull`",
    pointer_to_tokenizer: "tokenizer.json is a Git LFS pointer",
    broken_tokenizer: "the tokenizer in",
    broken_config: "config.json is not JSON",
    no_model_type: "config.json",
    untied: "the weights lack lm_head.weight",
    a_layer_less: "does not have model.layers.2.",
    a_layer_more: "the weights lack model.layers.3.",
    another_width: "mlp.",
    biases: "does not have model.layers.0.self_attn.q_proj.bias",
    not_a_number: "model.layers.1.mlp.down_proj.weight holds NaN",
    overflowing: "the model does not decode",
    few_embeddings: "the model's vocab_size is 100",
    end_beyond: "eos_token_id is 99999",
    end_of("</s>"): "eos_token_id is '</s>': expected token ids",
    end_of([[1]]): "eos_token_id is [[1]]: expected token ids",
    odd_end: "generation_config.json: eos_token_id is {'id': 1}",
    overlapping: "model.safetensors is not a whole safetensors file",
    another_dtype: "model.safetensors is not a whole safetensors file",
    quantised_to(torch.int8): "mlp.up_proj.weight is quantised as I8",
    quantised_to(torch.float8_e4m3fn): "mlp.up_proj.weight is quantised as F8_E4M3",
    no_heads: "config.json",
    no_factor: "'factor'",
    no_positions: "max_position_embeddings is 0",
    code_of_its_own: "contains custom code",
}

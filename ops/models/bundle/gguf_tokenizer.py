"""The tokenizer that a GGUF file describes, with the pre-tokenizer that it names."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Sequence, Split
from transformers import PreTrainedTokenizerFast
from transformers.integrations import gguf
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from ops.models.bundle.gguf_file import FIX, GgufFile

SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
CONTROL, USER_DEFINED = 3, 4
SPACES = " \u2581\t\n"
TOKEN_TYPES = range(1, 7)
KINDS = ("gpt2", "llama")
"""tokenizer.ggml.model: byte-level BPE, and SentencePiece's BPE."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
"""The patterns of llama.cpp's `default`; each splits what the one before left."""
SINGLE_DIGITS = {
    *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
}
"""Pre-tokenizers that let every digit stand alone before GPT-2's pattern."""
WHOLE_WORDS = {
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken"),
}
"""Pre-tokenizers whose BPE takes a word that is a token as it is, without merges."""

SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
PREFIXED = {"phi3": (True,), "gemma2": (False,), "gemma3": (False,)}
"""Whether a space goes before a text, for the families whose SentencePiece tokenizers transformers
builds in one way only."""

KNOWN = {
    *("tokens", "scores", "token_type", "merges", "model", "pre", "add_bos_token"),
    *("add_eos_token", "add_space_prefix", "remove_extra_whitespaces", "token_type_count"),
}
NEUTRAL = {
    "add_eos_token": (False,),
    "remove_extra_whitespaces": (False,),
    "add_sep_token": (False,),
    "precompiled_charsmap": ([],),
}
"""Fields with the values that ask for nothing."""


def save_tokenizer(file: GgufFile, out: Path) -> None:
    """Write the file's tokenizer and chat template to `out`.

    Raises InputError naming the field that is missing, damaged or not carried over.
    """
    _refuse_fields(file)
    fields = file.fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    named = {
        f"{short}_token": tokens[fields[f"tokenizer.ggml.{name}_token_id"]]
        for short, name in SPECIAL.items()
        if f"tokenizer.ggml.{name}_token_id" in fields
    }
    if _begins(file):
        named["add_bos_token"] = True
    try:
        tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=_backend(file),
            chat_template=fields.get("tokenizer.chat_template"),
            # as transformers writes them when it has read a tokenizer from disk
            is_local=True,
            local_files_only=False,
            **named,
        )
    except Exception as error:  # tokenizers raises nothing narrower
        raise file.refusal(f"tokenizer.ggml describes no tokenizer: {error}") from error
    _check(file, tokenizer)
    tokenizer.save_pretrained(out)


def _refuse_fields(file: GgufFile) -> None:
    fields = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.fields.items()
        if key.startswith("tokenizer.ggml.")
    }
    kind = file.required("tokenizer.ggml.model")
    if kind not in KINDS:
        known = " and ".join(KINDS)
        raise file.refusal(f"tokenizer.ggml.model is {kind!r}: {known} are read: {FIX}")
    for name, value in fields.items():
        if name in NEUTRAL and value not in NEUTRAL[name]:
            raise file.refusal(f"tokenizer.ggml.{name} is {value}: it is not carried over: {FIX}")
        if name not in KNOWN and name not in NEUTRAL and not name.endswith("_token_id"):
            raise file.refusal(f"tokenizer.ggml.{name} is not carried over: {FIX}")
    prefix = PREFIXED.get(file.architecture, (False, True)) if kind == "llama" else (False,)
    if file.fields.get(SPACE_PREFIX, prefix[0]) not in prefix:
        raise file.refusal(
            f"{SPACE_PREFIX} is {file.fields[SPACE_PREFIX]}: it is not carried over: {FIX}"
        )
    tokens, types = (
        file.required("tokenizer.ggml.tokens"),
        file.required("tokenizer.ggml.token_type"),
    )
    if len(set(tokens)) != len(tokens):
        raise file.refusal("tokenizer.ggml.tokens has a token twice: the file is damaged")
    if len(types) != len(tokens) or any(one not in TOKEN_TYPES for one in types):
        raise file.refusal(
            f"tokenizer.ggml.token_type must have a type from 1 to 6 for each of {len(tokens)} "
            "tokens: the file is damaged"
        )
    if "merges" not in fields and kind == "gpt2":
        raise file.refusal("tokenizer.ggml.merges is missing: the file is damaged")
    if "merges" not in fields and len(fields.get("scores", ())) != len(tokens):
        raise file.refusal(f"tokenizer.ggml.scores must have {len(tokens)} numbers")
    # A byte-level tokenizer is only as right as the pattern that splits its text.
    splits = {"default", "gpt-2", *SINGLE_DIGITS, *GGUF_PRE_TOKENIZER_SPLITS}
    if kind == "gpt2" and (pre := file.required("tokenizer.ggml.pre")) not in splits:
        raise file.refusal(
            f"tokenizer.ggml.pre is {pre!r}: known are {', '.join(sorted(splits))}: {FIX}"
        )
    template = file.fields.get("tokenizer.chat_template", "")
    try:
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except TemplateError as error:
        raise file.refusal(f"tokenizer.chat_template cannot be read: {error}: {FIX}") from error


def _backend(file: GgufFile) -> Any:
    if file.fields["tokenizer.ggml.model"] == "gpt2":
        return _byte_level(file)
    reader: Any = gguf
    architecture, described, _ = reader.get_gguf_tokenizer(str(file.path))
    backend = reader.convert_gguf_tokenizer(architecture, described)[0]
    if architecture == "llama" and not file.fields.get(SPACE_PREFIX, True):
        backend.pre_tokenizer = Metaspace(prepend_scheme="never", split=False)
        # without the last step, which takes the prefix away again
        steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence(steps)
    return backend


def _byte_level(file: GgufFile) -> Any:
    tokens, types, merges = (
        file.fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "merges")
    )
    pre = file.fields["tokenizer.ggml.pre"]
    backend = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
            continuing_subword_prefix="",
            end_of_word_suffix="",
            ignore_merges=pre in WHOLE_WORDS,
        )
    )
    backend.pre_tokenizer, backend.decoder = _pre_tokenizer(pre), decoders.ByteLevel()
    kinds = list(zip(tokens, types, strict=True))
    backend.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == CONTROL]
    )
    backend.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == USER_DEFINED]
    )
    return backend


def _pre_tokenizer(name: str) -> Any:
    if name == "gpt-2":
        return ByteLevel(add_prefix_space=False)
    if name in SINGLE_DIGITS:
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    patterns = DEFAULT if name == "default" else (GGUF_PRE_TOKENIZER_SPLITS[name],)
    splits = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


def _begins(file: GgufFile) -> bool:
    """Whether a text begins with the begin token: as the file says, else as llama.cpp does."""
    kind, pre = (file.fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    usual = kind == "llama" or pre in WHOLE_WORDS
    begins = bool(file.fields.get("tokenizer.ggml.add_bos_token", usual))
    if begins and "tokenizer.ggml.bos_token_id" not in file.fields:
        raise file.refusal("tokenizer.ggml.bos_token_id is missing and add_bos_token asks for it")
    return begins


def _check(file: GgufFile, tokenizer: Any) -> None:
    """Refuse a tokenizer whose ids differ from the file's or that splits its special tokens."""
    tokens, types = (file.fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    if len(tokenizer) > len(tokens):
        raise file.refusal(
            f"tokenizer.ggml.tokens has {len(tokens)} tokens, its special tokens make "
            f"{len(tokenizer)} of them: {FIX}"
        )
    for index, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind not in (CONTROL, USER_DEFINED) or not token.strip(SPACES):
            continue
        if tokenizer.encode(token, add_special_tokens=False) != [index]:
            raise file.refusal(
                f"tokenizer.ggml.tokens: {token!r} ({index}) is a special token that the "
                f"tokenizer would cut: {FIX}"
            )

"""The tokens that end a response."""

from tokenizers import Tokenizer

from workers.bundle import Bundle, BundleError, read_json

TURN_END = "<|end|>"


def end_tokens(bundle: Bundle) -> frozenset[int]:
    """Return the ids that end a response: of generation_config.json, else config.json; of the
    tokenizer; and `<|end|>` if the tokenizer has it. Raises BundleError for ids that are not
    numbers."""
    target, tokenizer = bundle.part("target"), bundle.backend_tokenizer()
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = target / name
        found = read_json(file) if file.is_file() else {}
        eos = found.get("eos_token_id")
        if eos is not None:
            given = eos if isinstance(eos, list) else [eos]
            if not all(type(one) is int for one in given):
                raise BundleError(f"{file}: eos_token_id is {eos!r}: expected token ids")
            ids.update(given)
            break
    ends = _tokenizers_own(bundle, tokenizer), tokenizer.token_to_id(TURN_END)
    return frozenset(ids.union(end for end in ends if end is not None))


def _tokenizers_own(bundle: Bundle, tokenizer: Tokenizer) -> int | None:
    """Return the tokenizer's end token, None if it has none."""
    file = bundle.part("tokenizer") / "tokenizer_config.json"
    named = read_json(file).get("eos_token") if file.is_file() else None
    content = named.get("content") if isinstance(named, dict) else named
    if isinstance(content, str):
        return tokenizer.token_to_id(content)
    # transformers knows the defaults of tokenizer classes; importing it takes seconds
    own: int | None = bundle.tokenizer().eos_token_id
    return own

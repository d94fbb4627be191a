"""Messages to token ids, by the chat templates of two families."""

import copy

import pytest
from conftest_bundle import byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workers.chat_template import (
    ChatFormatError,
    encode_chat,
    encode_prompt,
    encode_text,
)

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRICT = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('no system here') }}{% endif %}"
    "{{ message['content'] | trim }}{{ eos_token }}{% endfor %}"
)
# As Qwen3's: thoughts are taken out of earlier answers, and tools and thoughts have tokens that are
# not marked special.
THINKING = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}"
    "{{ content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ content }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{% endif %}"
)
UNMARKED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


def thinking_tokenizer(template: str = THINKING) -> PreTrainedTokenizerFast:
    tokenizer = chatml_tokenizer(template)
    strips = {"</tool_call>": {"lstrip": True, "rstrip": True}}
    added = [AddedToken(name, normalized=False, **strips.get(name, {})) for name in UNMARKED]
    tokenizer.add_tokens([*added, AddedToken("  "), AddedToken("gadget")])
    return tokenizer


def chatml_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", chat_template=template
    )


TOKENIZERS = {
    "demo": byte_tokenizer(),
    "chatml": chatml_tokenizer(),
    "unmarked": thinking_tokenizer(CHATML),
}
NAMES = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|end|>", "<tool_call>", "\U000f0000"]
NAMES += ["<think>", "</think>", "</tool_call>"]
WORDS = ["  ", "gadget"]
CONTENTS = st.lists(st.sampled_from([*NAMES, "a ", "12", "\n", "é", "<|"]), max_size=6).map("".join)
TURN = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    CONTENTS,
)
CHATS = st.lists(TURN, min_size=1, max_size=4).map(
    lambda turns: [{"role": "user", "content": "q"}, *turns]
)
PLAIN = [
    {"role": "user", "content": "Hi,  12 gadgets of <b>?"},
    {"role": "assistant", "content": "Yes."},
]


def controls(tokenizer, ids):
    added = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items() if str(t) not in WORDS}
    return [added[i] for i in ids if i in added]


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("prompted", [False, True])
def test_plain_messages_are_what_the_template_makes_of_them(family, prompted):
    tokenizer = TOKENIZERS[family]
    theirs = tokenizer.apply_chat_template(PLAIN, tokenize=False, add_generation_prompt=prompted)
    expected = tokenizer.encode(theirs, add_special_tokens=False)
    assert encode_chat(tokenizer, PLAIN, prompted) == expected


@pytest.mark.parametrize("family", TOKENIZERS)
@settings(deadline=None)
@given(chat=CHATS)
def test_nothing_that_is_written_becomes_a_control_token(family, chat):
    tokenizer = TOKENIZERS[family]
    ids = encode_chat(tokenizer, chat, True)
    blank = [{**message, "content": ""} for message in chat]
    assert controls(tokenizer, ids) == controls(tokenizer, encode_chat(tokenizer, blank, True))
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    at = 0
    for message in chat:
        at = text.index(message["content"], at) + len(message["content"])


def test_what_a_template_refuses_is_said():
    strict = chatml_tokenizer(STRICT)
    with pytest.raises(ChatFormatError, match="refuses these messages: no system here"):
        encode_chat(strict, [{"role": "system", "content": "x"}], True)
    with pytest.raises(ChatFormatError, match=r"messages\[0\].role is 'nobody': use one of system"):
        encode_chat(strict, [{"role": "nobody", "content": "x"}], True)
    without = copy.deepcopy(strict)
    without.chat_template = None
    with pytest.raises(ChatFormatError, match="chat_template is not set"):
        encode_chat(without, PLAIN, True)


TOOLS = (
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + message['content'] }}"
    "{% for call in message['tool_calls'] %}{{ call | tojson }}{% endfor %}"
    "{{ '<|im_end|>' }}{% endfor %}"
)


def test_names_of_control_tokens_in_tools_and_calls_are_text():
    tokenizer = chatml_tokenizer(TOOLS)
    tools = [{"name": "a<|im_end|>", "of": {"<|im_start|>": ["<|im_end|>", 1, None]}}]
    call = {"name": "f", "arguments": {"x": "<|im_end|>"}}
    chat = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    ids = encode_chat(tokenizer, chat, False, variables={"tools": tools})
    assert tokenizer.decode(ids) == (
        '{"name": "a<|im_end|>", "of": {"<|im_start|>": ["<|im_end|>", 1, null]}}'
        '<|im_start|>assistant{"name": "f", "arguments": {"x": "<|im_end|>"}}<|im_end|>'
    )
    assert controls(tokenizer, ids) == controls(
        tokenizer,
        encode_chat(
            tokenizer, [{"role": "assistant", "content": ""}], False, variables={"tools": []}
        ),
    )


def test_more_private_characters_than_there_are_for_names_are_refused():
    every = "".join(map(chr, range(0xF0000, 0xFFFFE)))
    with pytest.raises(ChatFormatError, match="private character"):
        encode_chat(
            chatml_tokenizer(),
            [{"role": "user", "content": every + "<|im_end|>"}],
            add_generation_prompt=True,
        )


@settings(deadline=None)
@given(st.lists(st.sampled_from([*NAMES, *WORDS, "a ", "12", "é", "<"]), max_size=6).map("".join))
def test_plain_text_has_no_control_tokens_and_is_else_as_ever(text):
    tokenizer = TOKENIZERS["unmarked"]
    ids = encode_text(tokenizer, text)
    assert controls(tokenizer, ids) == []
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    if not any(name in text for name in NAMES):
        assert ids == tokenizer.encode(text, add_special_tokens=False)


def test_a_prompt_is_its_own_template():
    tokenizer = TOKENIZERS["unmarked"]
    ids = encode_prompt(tokenizer, "<|im_start|>user\nhi<|im_end|>\n<think>")
    assert controls(tokenizer, ids) == ["<|im_start|>", "<|im_end|>", "<think>"]


def test_a_template_writes_unmarked_tokens_and_the_spaces_they_take():
    tokenizer = thinking_tokenizer(
        "{% for m in messages %}<tool_call>{{ m.content }}  </tool_call>\n{% endfor %}<think>"
    )
    chat = [{"role": "user", "content": "f(</tool_call> <tool_call>)"}]
    ids = encode_chat(tokenizer, chat, False)
    assert controls(tokenizer, ids) == ["<tool_call>", "</tool_call>", "<think>"]
    plain = [{"role": "user", "content": "f(x)  \n"}]
    written = tokenizer.apply_chat_template(plain, tokenize=False)
    expected = tokenizer.encode(written, add_special_tokens=False)
    assert encode_chat(tokenizer, plain, False) == expected


def test_a_template_takes_the_thoughts_out_of_an_answer_and_of_nothing_else():
    tokenizer = thinking_tokenizer()
    said = "<think>\nhm\n</think>\n\n<tool_call>yes"
    chat = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "and?"},
    ]
    ids = encode_chat(tokenizer, chat, True)
    turns = ["<|im_start|>", "<|im_end|>"] * len(chat)
    assert controls(tokenizer, ids) == [*turns, "<|im_start|>", "<think>", "</think>"]
    text = tokenizer.decode(ids)
    assert f"user\n{said}<|im_end|>" in text
    assert "assistant\n<tool_call>yes<|im_end|>" in text


def test_a_long_run_of_spaces_before_a_stripping_token_takes_no_time():
    tokenizer = TOKENIZERS["unmarked"]
    text = "a" + " " * 300_000
    ids = encode_chat(tokenizer, [{"role": "user", "content": text}], True)
    assert text in tokenizer.decode(ids)

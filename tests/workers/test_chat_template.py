"""Messages to token ids, by the chat templates of two families."""

import copy

import pytest
from conftest_bundle import byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workers.chat_template import ChatFormatError, encode_chat, encode_text, encode_turns

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


TOKENIZERS = {"demo": byte_tokenizer(), "chatml": chatml_tokenizer()}
NAMES = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|end|>", "\U000f0000"]
CONTENTS = st.lists(st.sampled_from([*NAMES, "a ", "12", "\n", "é", "<|"]), max_size=6).map("".join)
TURN = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    CONTENTS,
)
CHATS = st.lists(TURN, min_size=1, max_size=4).map(
    lambda turns: [{"role": "user", "content": "q"}, *turns]
)
PLAIN = [{"role": "user", "content": "Hi, 12 of <b>?"}, {"role": "assistant", "content": "Yes."}]


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
def test_nothing_that_is_written_becomes_a_special_token(family, chat):
    tokenizer = TOKENIZERS[family]
    ids = encode_chat(tokenizer, chat, True)
    special = [i for i in ids if i in tokenizer.added_tokens_decoder]
    blank = [{**message, "content": ""} for message in chat]
    assert special == [
        i for i in encode_chat(tokenizer, blank, True) if i in tokenizer.added_tokens_decoder
    ]
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    at = 0
    for message in chat:
        at = text.index(message["content"], at) + len(message["content"])


@pytest.mark.parametrize("family", TOKENIZERS)
@settings(deadline=None)
@given(chat=CHATS)
def test_turns_add_up_to_the_conversation(family, chat):
    tokenizer = TOKENIZERS[family]
    turns = encode_turns(tokenizer, chat)
    ids = [token for turn in turns for part in turn for token in part]
    assert ids == encode_chat(tokenizer, chat, False)
    for message, (header, rest) in zip(chat, turns, strict=True):
        if message["role"] == "assistant":
            end = rest.index(tokenizer.eos_token_id)
            assert rest[:end] == encode_text(tokenizer, message["content"])
            assert header
        else:
            assert header == []


def test_a_conversation_in_turns_asks_as_a_prompt_does():
    tokenizer = TOKENIZERS["chatml"]
    (_, asked), (header, _) = encode_turns(tokenizer, PLAIN)
    assert asked + header == encode_chat(tokenizer, PLAIN[:1], True)


def test_what_a_template_refuses_is_said():
    strict = chatml_tokenizer(STRICT)
    with pytest.raises(ChatFormatError, match="refuses these messages: no system here"):
        encode_chat(strict, [{"role": "system", "content": "x"}], True)
    with pytest.raises(ChatFormatError, match=r"messages\[0\].role is 'tool': use one of system"):
        encode_chat(strict, [{"role": "tool", "content": "x"}], True)
    without = copy.deepcopy(strict)
    without.chat_template = None
    with pytest.raises(ChatFormatError, match="chat_template is not set"):
        encode_chat(without, PLAIN, True)


def test_a_template_that_changes_what_was_said_has_no_turns():
    last = "{% for m in messages %}{% if loop.last %}{{ m['content'] }}{% endif %}{% endfor %}"
    with pytest.raises(ChatFormatError, match="rewrites earlier messages"):
        encode_turns(chatml_tokenizer(last), PLAIN)

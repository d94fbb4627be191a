"""LangChain and LlamaIndex against the running service, with nothing changed but its address."""

import numpy as np
import pytest
from langchain_openai import ChatOpenAI
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from running_service import HTTP

ENCODER = "static-minilm"
TEXTS = ["Write a Python function.", "Tell me about the sea."]


class Verdict(BaseModel):
    ok: bool


@pytest.fixture(scope="module")
def vectors(base):
    answer = HTTP.post(f"{base}/embeddings", json={"model": ENCODER, "input": TEXTS}).json()
    return np.asarray([entry["embedding"] for entry in answer["data"]])


@pytest.fixture(scope="module")
def langchain(base):
    return ChatOpenAI(
        model="tiny", base_url=base, api_key="none", max_tokens=10, temperature=0, max_retries=0
    )


def test_langchain_chat(langchain):
    answer = langchain.invoke([("system", "Be brief."), ("human", "Write a Python function")])
    assert answer.usage_metadata["output_tokens"] <= 10
    pieces = list(langchain.stream("Write a Python function", stream_usage=True))
    assert "".join(p.content for p in pieces) == langchain.invoke("Write a Python function").content
    assert sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata) > 0
    assert len(langchain.batch(["a", "b", "c"])) == 3


def test_langchain_structured_output(langchain):
    longer = langchain.model_copy(update={"max_tokens": 60})
    structured = longer.with_structured_output(Verdict)
    assert isinstance(structured.invoke("Is it so?"), Verdict)


@pytest.fixture(scope="module")
def llama_index(base):
    return OpenAILike(
        model="tiny",
        api_base=base,
        api_key="none",
        is_chat_model=True,
        context_window=512,
        max_tokens=10,
        temperature=0,
        max_retries=0,
    )


def test_llama_index_chat(llama_index):
    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(content="Hello")]
    whole = llama_index.chat(messages)
    assert whole.raw.usage.completion_tokens <= 10
    pieces = list(llama_index.stream_chat(messages))
    assert "".join(piece.delta for piece in pieces) == whole.message.content
    assert pieces[-1].message.content == whole.message.content
    more = [*messages, whole.message, ChatMessage(content="And now?")]
    assert llama_index.chat(more).raw.usage.prompt_tokens > whole.raw.usage.prompt_tokens


def test_llama_index_embeddings(base, vectors):
    embeddings = OpenAILikeEmbedding(
        model_name=ENCODER, api_base=base, api_key="none", embed_batch_size=10
    )
    np.testing.assert_allclose(embeddings.get_text_embedding_batch(TEXTS), vectors, atol=1e-6)
    np.testing.assert_allclose(embeddings.get_query_embedding(TEXTS[1]), vectors[1], atol=1e-6)

"""A service whose random model is made to answer agents: first a call of a tool, then a text."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import uvicorn
from conftest_bundle import demo_tokenizer, random_llama
from served import service_config
from service_here import ingress_here, listening

from deployments.api.prompt_reader import PromptReader
from deployments.artifacts import served_encoder
from deployments.guard.haproxy import free_port
from schemas import Grammar
from workers.bundle import load_bundle
from workers.loader import load_engine

CONTEXT = 65_536
TEMPLATE = Path(__file__).parents[2] / "configs" / "chatml-tools.jinja"
RESULT = "<tool_response>"
PACKAGES = ("@openai/codex@0.171.0", "@anthropic-ai/claude-code@2.1.197")
LAST = "It says so."


@dataclass
class Scripted:
    """The service's address, the text of the call to make, and the prompts that came."""

    url: str = ""
    call: str = ""
    prompts: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def agents_bundle(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("agents") / "tiny", demo_tokenizer()
    torch.manual_seed(0)
    target = random_llama(vocab=len(tokenizer), eos=tokenizer.eos_token_id, layers=2)
    target.config.max_position_embeddings = CONTEXT
    target.save_pretrained(folder / "target")
    tokenizer.save_pretrained(folder / "tokenizer")
    parts = '{"name": "tiny", "parts": {"tokenizer": "tokenizer", "target": "target"}}'
    (folder / "bundle.json").write_text(parts)
    return load_bundle(folder)


@pytest.fixture(scope="session")
def scripted(agents_bundle, tmp_path_factory):
    """Serve on a socket of this machine."""
    methods = ("naive", "ngram")
    config = service_config(
        tmp_path_factory.mktemp("service"),
        agents_bundle,
        methods,
        engine={"threads": 1, "max_context": CONTEXT, "kv_slots": 2 * CONTEXT},
        http={"chat_template": TEMPLATE},
    )
    engine = load_engine(methods, agents_bundle, config.engine)
    made, servers, ready, port = Scripted(), [], threading.Event(), free_port()

    async def serve():
        reader = PromptReader(agents_bundle, methods, config.engine, config.http)
        ingress = await ingress_here(config, engine, served_encoder(config), reader)
        script(ingress, made)
        servers.append(uvicorn.Server(uvicorn.Config(ingress.app, port=port, log_level="warning")))
        ready.set()
        await servers[0].serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(300)
    made.url = listening(f"http://127.0.0.1:{port}")
    yield made
    servers[0].should_exit = True
    thread.join(60)
    engine.close()


def script(ingress, made):
    """Force each answer by a grammar: the call, and after a tool's result the last text."""
    tokenizer = ingress.reader.tokenizers.own

    def scripted(real):
        def stream(request, whole):
            prompt = tokenizer.decode(request.prompt_token_ids)
            made.prompts.append(prompt)
            said = LAST if RESULT in prompt else made.call
            grammar = Grammar(kind="lark", text=f"start: {json.dumps(said)}")
            sampling = request.sampling.model_copy(update={"grammar": grammar})
            return real(request.model_copy(update={"sampling": sampling}), whole)

        return stream

    ingress.streams |= {name: scripted(real) for name, real in ingress.streams.items()}


@pytest.fixture(scope="session")
def npm(tmp_path_factory):
    """The commands, installed from npm; SPECADAPT_TEST_AGENTS names a folder that has them."""
    folder = Path(os.environ.get("SPECADAPT_TEST_AGENTS") or tmp_path_factory.mktemp("npm"))
    if not (folder / "node_modules").exists():
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES],
            check=True,
        )
    return folder / "node_modules" / ".bin"


@pytest.fixture
def agent(npm, tmp_path) -> Callable[..., str]:
    """Run a command in an empty folder, with a home of its own; get what it writes."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()

    def run(name: str, *arguments: str, **environment: str) -> str:
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        environment = {**kept, "HOME": str(home), "DISABLE_TELEMETRY": "1", **environment}
        done = subprocess.run(
            [str(npm / name), *arguments],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.stdout + done.stderr

    return run

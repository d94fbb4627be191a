"""A service whose random model is made to answer agents: first a call of a tool, then a text."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue

import pytest
import torch
from conftest_bundle import demo_tokenizer, random_llama
from served import service_config
from service_here import listening, service_here
from stand_in import running

from deployments.guard.haproxy import free_port
from deployments.guard.middleware import guarded
from deployments.metrics import Metrics
from schemas import Grammar, GuardConfig
from workers.bundle import load_bundle

CONTEXT = 65_536
TEMPLATE = Path(__file__).parents[2] / "configs" / "chatml-tools.jinja"
RESULT = "<tool_response>"
LAST = "It says so."
NPM = (
    *("@openai/codex@0.171.0", "@anthropic-ai/claude-code@2.1.197", "opencode-ai@1.18.33"),
    *("openai@7.59.0", "@anthropic-ai/sdk@1.14.0"),
    *("ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/openai-compatible@3.0.92"),
)
PIP = {"aider": "aider-chat==0.86.2", "litellm": "litellm[proxy]==1.90.0"}
"""By the name of the command, which gets an environment of its own."""
ORIGIN = f"http://127.0.0.1:{free_port()}"
"""Of the page that asks from a browser."""
IMPORTS = {
    "openai": "/node_modules/openai/index.mjs",
    "@anthropic-ai/sdk": "/node_modules/@anthropic-ai/sdk/index.mjs",
    "@opentelemetry/api": "/node_modules/@opentelemetry/api/dist/index.mjs",
    "standardwebhooks": "data:text/javascript,export class Webhook {}",
}
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
"""Nothing but this machine is reached: the proxy's port is closed."""


@dataclass(frozen=True)
class Client:
    """A client, and what it is to do. `{url}` and `{home}` stand for the service and its home.

    call: what the model answers first. files: below the home. offers: tools that the prompts show.
    says: what the client writes in the end. through: the proxy that it asks instead.
    """

    command: tuple[str, ...]
    call: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ()
    says: str = LAST
    through: str = ""


@dataclass
class Scripted:
    """The service's address, the text of the call to make, and the prompts that came."""

    url: str = ""
    call: str = ""
    prompts: list[str] = field(default_factory=list)

    def begin(self, call: str) -> None:
        self.call = call
        self.prompts.clear()


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
    made = Scripted()

    def served(ingress):
        script(ingress, made)
        return guarded(ingress.app, GuardConfig(cors_origins=(ORIGIN,)), Metrics())

    with service_here(config, served) as made.url:
        yield made


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
def programs(tmp_path_factory):
    """Where the commands are; SPECADAPT_TEST_AGENTS names a folder that keeps what is installed."""
    folder = Path(os.environ.get("SPECADAPT_TEST_AGENTS") or tmp_path_factory.mktemp("programs"))
    if not (folder / "node_modules").exists():
        npm = ("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *NPM)
        subprocess.run(npm, check=True)
    return folder


@pytest.fixture
def folders(programs, tmp_path):
    """An empty folder to work in, from which node finds the packages, and a home."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "node_modules").symlink_to(programs / "node_modules")
    shutil.copy(Path(__file__).with_name("sdks.mjs"), work)
    return work, home


@pytest.fixture
def run(scripted, programs, folders) -> Callable[[Client], str]:
    """Run a client; get what it writes."""
    work, home = folders

    def run(client: Client) -> str:
        if client.through:
            with litellm(programs, home, scripted.url) as url:
                return ran(client, url)
        return ran(client, scripted.url)

    def ran(client: Client, url: str) -> str:
        def filled(text: str) -> str:
            return text.replace("{url}", url).replace("{home}", str(home))

        for name, text in client.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(filled(text))
        done = subprocess.run(
            [program(programs, client.command[0]), *map(filled, client.command[1:])],
            cwd=work,
            env=environment(home) | {k: filled(v) for k, v in client.environment.items()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        return done.stdout + done.stderr

    return run


def program(programs: Path, name: str) -> str:
    """The path of a command, which is installed first if it comes from PyPI."""
    if name not in PIP:
        found = programs / "node_modules" / ".bin" / name
        return str(found) if found.exists() else name
    binaries = programs / name / "bin"
    if not (binaries / name).exists():
        subprocess.run([sys.executable, "-m", "venv", str(programs / name)], check=True)
        subprocess.run([str(binaries / "python"), "-m", "pip", "install", PIP[name]], check=True)
    return str(binaries / name)


def environment(home: Path) -> dict[str, str]:
    """The variables of every client: little of this process's own."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return kept | QUIET | {"HOME": str(home)}


@contextmanager
def litellm(programs: Path, home: Path, url: str) -> Iterator[str]:
    """LiteLLM's proxy before the service."""
    port, file = free_port(), home / "litellm.yaml"
    served = {"model": "hosted_vllm/tiny", "api_base": f"{url}/v1", "api_key": "unused"}
    listed = {"model_list": [{"model_name": "tiny", "litellm_params": served}]}
    file.write_text(json.dumps(listed))
    where = ("--config", str(file), "--host", "127.0.0.1", "--port", str(port))
    command = [program(programs, "litellm"), *where, "--telemetry", "False"]
    with (home / "litellm.log").open("wb") as log:
        proxy = subprocess.Popen(command, cwd=home, env=environment(home), stdout=log, stderr=log)
        try:
            yield listening(f"http://127.0.0.1:{port}")
        finally:
            proxy.terminate()
            proxy.wait(60)


@pytest.fixture
def page(scripted, folders):
    """Ask with an SDK from a page of another origin in Chromium; get the answer."""
    work, home = folders
    answers = SimpleQueue[str]()

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *given):
            super().__init__(*given, directory=str(work))

        def do_POST(self):
            answers.put(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    def ask(name: str) -> str:
        asked = f"answered({json.dumps(name)}, {json.dumps(scripted.url)})"
        (work / "page.html").write_text(
            f'<script type="importmap">{json.dumps({"imports": IMPORTS})}</script>'
            '<script type="module">import { answered } from "./sdks.mjs";'
            f'const body = await {asked}.catch(String); fetch("/", {{ method: "POST", body }});'
            "</script>"
        )
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
        own = f"--user-data-dir={home / 'profile'}"
        command = ["chromium", *flags, own, f"{ORIGIN}/page.html"]
        browser = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL)
        try:
            return answers.get(timeout=300)
        finally:
            browser.terminate()
            browser.wait(60)

    with running(ThreadingHTTPServer(("127.0.0.1", int(ORIGIN.rpartition(":")[2])), Files)):
        yield ask

"""Another server beside ours: how it is started, ended and compared."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from conftest_bundle import DEMO
from random_adapter import save_adapter

from ops.bench.http.other_server import other_server, split_command
from ops.bench.http.our_service import our_service
from ops.bench.http.report import Turn, against
from ops.bench.http.vllm_command import completed
from ops.harness.boundary import InputError
from ops.harness.chat_client import Reply
from ops.harness.settings import Setup
from router.table import load_table
from schemas import AppConfig
from workers.methods import get_method

SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

# A process that only its end by others ends, as a server's workers.
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(child.pid).encode())

port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path):
    """The command of a server with the given source."""

    def command(source: str) -> list[str]:
        file = tmp_path / "server.py"
        file.write_text(source)
        return [sys.executable, str(file)]

    return command


def turn(seconds: float, *answers: tuple[str, int, float]) -> Turn:
    """Answers: text, output tokens, seconds to the first text."""
    replies = [
        Reply(text=text, usage={"completion_tokens": tokens}, first_text_seconds=first)
        for text, tokens, first in answers
    ]
    return Turn(replies, seconds)


def alive(pid: int) -> bool:
    """Whether a process that is not our child runs still."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.slow
def test_a_server_and_what_it_started_are_gone_in_the_end(program):
    with other_server(program(SERVER), {}) as address:
        child = int(httpx.get(f"{address}/health").text)
        assert alive(child)
    deadline = time.monotonic() + 60.0
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_a_server_that_ends_says_what_the_first_error_was(program):
    failing = "print('MemoryError: no room'); print('Error: engine failed'); raise SystemExit(1)"
    with (
        pytest.raises(InputError, match=r"^--against: .* before it was ready: MemoryError: no roo"),
        other_server(program(failing), {}),
    ):
        pass


def test_a_server_gets_the_environment_of_our_engine(program):
    telling = "import os; raise SystemExit('Error: threads ' + os.environ['OMP_NUM_THREADS'])"
    with (
        pytest.raises(InputError, match="threads 7"),
        other_server(program(telling), {"OMP_NUM_THREADS": "7"}),
    ):
        pass


def test_the_program_of_a_command_may_lie_beside_ours():
    [program, flag] = split_command("specadapt --help")
    assert os.access(program, os.X_OK)
    assert flag == "--help"
    for command, said in [
        ("no-such-program serve", "no such program"),
        ("x --port 1", "leave out --port"),
    ]:
        with pytest.raises(InputError, match=said):
            split_command(command)


def test_a_command_with_a_model_stays_as_it_is(tiny_bundle):
    setup = Setup(tiny_bundle.path, (get_method("naive"),), AppConfig().engine)
    command = ["/bin/vllm", "serve", "some/model"]
    assert completed(command, setup) == command
    with pytest.raises(InputError, match="naive has none"):
        completed(command[:2], setup)


def test_a_command_without_a_model_gets_the_only_methods_arguments_or_plain_decodings():
    engine = AppConfig().engine
    ngram, suffix = get_method("vllm_ngram"), get_method("vllm_suffix")
    for methods, drafts in [((ngram,), True), ((ngram, suffix), False)]:
        words = completed(["/bin/vllm", "serve"], Setup(DEMO, methods, engine))
        assert words[2] == str(DEMO / "target")
        assert ("--speculative-config" in words) == drafts


def test_each_of_several_values_is_a_word_of_the_command(tmp_path):
    save_adapter(DEMO / "target", tmp_path / "law")
    engine = AppConfig(engine={"lora_adapters": {"law": tmp_path / "law"}}).engine
    words = completed(["/bin/vllm", "serve"], Setup(DEMO, (get_method("vllm_naive"),), engine))
    place = words.index("--lora-target-modules")
    assert words[place + 1 : place + 4] == ["down_proj", "q_proj", "v_proj"]


def test_the_service_beside_it_has_one_method_and_a_table_that_knows_nothing(
    tiny_bundle, tmp_path, encoder_folder
):
    settings = AppConfig.model_validate(
        {"layout": "shared", "router": {"encoder": str(encoder_folder)}}
    )
    setup = Setup(tiny_bundle.path, (get_method("ngram"),), settings.engine)
    alone = our_service(settings, setup, tmp_path)
    assert [method.name for method in alone.methods] == ["ngram"]
    assert (alone.layout, alone.bundle) == ("per_method", tiny_bundle.path)
    table = load_table(tmp_path)
    assert table.methods == ("ngram",)
    assert table.step_count.sum() == 0
    both = Setup(tiny_bundle.path, (get_method("ngram"), get_method("naive")), settings.engine)
    assert our_service(settings, both, tmp_path / "unused").layout == "shared"
    assert not (tmp_path / "unused").exists()


def test_ratios_are_ours_over_theirs():
    ours = [turn(2.0, ("a", 10, 0.02), ("b", 20, 0.04)), turn(1.0, ("c", 15, 0.03))]
    theirs = [turn(4.0, ("a", 10, 0.01), ("x", 20, 0.02)), turn(2.0, ("c", 15, 0.015))]
    theirs[0].spent["server"], theirs[1].spent["server"] = 0.004, 0.002
    figures = against(ours, theirs, seed=0)
    assert figures["tokens_per_s"] == pytest.approx(7.5)
    assert figures["ttft_ms_p50"] == pytest.approx(15.0)
    assert figures["processor_ms"] == {"server": pytest.approx(2.0)}
    assert figures["ratio"]["tokens_per_s"] == pytest.approx(2.0)
    assert figures["ratio"]["tokens_per_s_ci95"] == pytest.approx([2.0, 2.0])
    assert figures["ratio"]["ttft_ms_p50"] == pytest.approx(2.0)
    assert figures["same_answers"] == pytest.approx(2 / 3)


def test_failed_answers_are_counted_and_compared_with_nothing():
    ours = turn(1.0, ("a", 10, 0.02), ("b", 5, 0.02))
    theirs = Turn([None, *turn(1.0, ("b", 5, 0.01)).replies], 1.0)
    figures = against([ours], [theirs], seed=0)
    assert figures["errors"] == 1
    assert figures["same_answers"] == 1.0

"""The same prompts in an engine of this process: what being served costs an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ops.bench.routed.figures import Run
from ops.harness.decoding import decode
from ops.harness.engines import Engines, engines_of
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from schemas import SamplingParams
from workers.bundle import load_bundle
from workers.chat_template import ChatTokenizer, encode_chat


@dataclass(frozen=True)
class InProcess:
    """An engine in this process with the methods of a service."""

    engines: Engines
    tokenizer: ChatTokenizer

    async def ask(self, method: str, prompt: Prompt, repeat: int, sampling: SamplingParams) -> Run:
        """One answer, under the same clock as a client's."""
        tokens = encode_chat(self.tokenizer, prompt.messages, add_generation_prompt=True)
        await self.engines.others_asleep(method)
        answer = await decode(
            self.engines, prompt.id, method, tokens, sampling, scope=f"{method} {repeat}"
        )
        return Run(
            arm=method,
            prompt_id=prompt.id,
            domain=prompt.domain,
            repeat=repeat,
            method=method,
            reason="pinned",
            tokens=len(answer.token_ids),
            seconds=answer.seconds,
            target_steps=answer.stats.target_steps,
            text=answer.text,
            first_text_seconds=answer.first_token_seconds,
            looping=answer.stats.looping,
        )


@contextmanager
def in_process_engine(setup: Setup) -> Iterator[InProcess]:
    """The set-up's methods in this process, with as many threads as the service's replicas."""
    bundle = load_bundle(setup.bundle)
    with engines_of(setup, bundle, "in-process") as engines:
        yield InProcess(engines, bundle.tokenizer())

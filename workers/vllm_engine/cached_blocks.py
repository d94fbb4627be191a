"""The prefixes that a vLLM engine's cache holds, as its events tell."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed.kv_events import (
    MEDIUM_GPU,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
    KVEventBatch,
)

from schemas.prefixes import REPORTED, PrefixHasher

log = logging.getLogger(__name__)

POLL_MILLISECONDS = 500
SEPARATOR = "\x1f"
"""Stands between a request's scope and the rest of its cache salt."""

Name = bytes | int
"""vLLM's hash of a block."""


@dataclass(frozen=True)
class _Block:
    """A cached block. hashes: of the prefixes that end in it. read: the tokens up to its end."""

    parent: Name | None
    read: PrefixHasher
    hashes: tuple[bytes, ...]


class CachedBlocks:
    """Hash the prefixes that the events of an engine's cache name. Safe in any thread."""

    def __init__(self) -> None:
        self._blocks: dict[Name, _Block] = {}
        self._lock = threading.Lock()

    def apply(self, events: Iterable[KVCacheEvent]) -> None:
        """Follow events. Blocks behind an unknown one are ignored."""
        with self._lock:
            for event in events:
                if isinstance(event, AllBlocksCleared):
                    self._blocks.clear()
                elif isinstance(event, BlockRemoved | BlockStored) and _of_the_target(event):
                    if isinstance(event, BlockStored):
                        self._store(event)
                    else:
                        for name in event.block_hashes:
                            self._blocks.pop(name, None)

    def clear(self) -> None:
        """Forget all blocks."""
        with self._lock:
            self._blocks.clear()

    def hashes(self) -> bytes:
        """Return at most REPORTED hashes: of the newest blocks, and of those before them."""
        found, seen = dict[bytes, None](), set[Name]()
        with self._lock:
            for name in reversed(self._blocks):
                chain, at = list[_Block](), name
                while at in self._blocks and at not in seen:
                    seen.add(at)
                    chain.append(self._blocks[at])
                    if chain[-1].parent is None:
                        break
                    at = chain[-1].parent
                for block in reversed(chain):
                    found.update(dict.fromkeys(block.hashes))
                if len(found) >= REPORTED:
                    break
        return b"".join(list(found)[:REPORTED])

    def _store(self, event: BlockStored) -> None:
        parent = event.parent_block_hash
        before = None if parent is None else self._blocks.get(parent)
        if parent is not None and before is None:
            return
        read = PrefixHasher(_scope(event)) if before is None else before.read
        for place, name in enumerate(event.block_hashes):
            begin, read = place * event.block_size, read.copy()
            hashes = read.extend(event.token_ids[begin : begin + event.block_size])
            self._blocks[name] = _Block(parent, read, tuple(hashes))
            parent = name


class CacheEvents:
    """Listen to an engine's cache. config: field `kv_events_config` of the engine's arguments."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="specadapt-cache-")
        endpoint = f"ipc://{Path(self._folder.name) / 'events'}"
        self.config = KVEventsConfig(enable_kv_cache_events=True, endpoint=endpoint)
        self._blocks, self._ended = CachedBlocks(), threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._listen, name="cache-events", daemon=True)

    def listen(self) -> None:
        """Begin to listen; the engine is loaded."""
        self._thread.start()

    def hashes(self) -> bytes | None:
        """Return hashes of cached prefixes for a load report; None if they are unknown."""
        return None if self._lost else self._blocks.hashes()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._ended.set()
        self._thread.join()
        self._folder.cleanup()

    def _listen(self) -> None:
        decoder, expected = msgspec.msgpack.Decoder(KVEventBatch), 0
        with zmq.Context() as context, context.socket(zmq.SUB) as socket:
            socket.connect(self.config.endpoint)
            socket.subscribe(b"")
            while not self._ended.is_set():
                if not socket.poll(POLL_MILLISECONDS):
                    continue
                _, number, payload = socket.recv_multipart()
                try:
                    if int.from_bytes(number) != expected:  # messages were lost
                        self._blocks.clear()
                    expected = int.from_bytes(number) + 1
                    self._blocks.apply(decoder.decode(payload).events)
                except Exception:
                    log.exception("the cached prefixes are no longer reported")
                    self._lost = True
                    return


def _of_the_target(event: BlockStored | BlockRemoved) -> bool:
    """Return whether an event is of the first group of layers, in the device's memory."""
    return event.group_idx in (None, 0) and event.medium in (None, MEDIUM_GPU)


def _scope(event: BlockStored) -> str:
    """Return the scope of the requests that may read a prompt's first block."""
    keys = (event.extra_keys or [None])[0] or ()
    salts = [key for key in keys if isinstance(key, str) and SEPARATOR in key]
    return salts[0].partition(SEPARATOR)[0] if salts else ""

"""Selection of rows from the second runner's batch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from vllm.utils import torch_utils
from vllm.v1.worker.gpu.input_batch import InputBatch

from workers.vllm_engine.drafting.rows import kept_tokens


def on_device(values: npt.ArrayLike, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Copy host values to the device without waiting for it."""
    # Looked up at each call: vLLM's CPU worker replaces the function.
    return torch_utils.async_tensor_h2d(np.asarray(values), device=device, dtype=dtype)


def select_rows(batch: InputBatch, rows: Sequence[int]) -> tuple[InputBatch, torch.Tensor]:
    """Return a batch of some rows, and where their tokens lie in the whole one [tokens].

    Rejected draft tokens are included, since the host does not know them. The batch is as an
    unpadded, eager forward needs it. What it says of logits is still the whole batch's, as
    drafters read none of it.
    """
    device, index = batch.idx_mapping.device, np.asarray(rows, dtype=np.int64)
    places_np, starts = kept_tokens(batch.query_start_loc_np, rows, [0] * batch.num_reqs)
    places = on_device(places_np, device, torch.int64)
    chosen = on_device(index, device, torch.int64)
    query_start = starts.astype(np.int32)
    as_decode, longest = batch.prefill_runs_as_decode_np, batch.max_seq_len_np
    selected = replace(
        batch,
        req_ids=[batch.req_ids[row] for row in rows],
        num_reqs=len(rows),
        num_reqs_after_padding=len(rows),
        idx_mapping=batch.idx_mapping[chosen],
        idx_mapping_np=batch.idx_mapping_np[index],
        num_scheduled_tokens=batch.num_scheduled_tokens[index],
        num_tokens=len(places_np),
        num_tokens_after_padding=len(places_np),
        query_start_loc=on_device(query_start, device, torch.int32),
        query_start_loc_np=query_start,
        seq_lens=batch.seq_lens[chosen],
        seq_lens_cpu_upper_bound=batch.seq_lens_cpu_upper_bound[torch.from_numpy(index)],
        num_computed_tokens_np=batch.num_computed_tokens_np[index],
        prefill_len_np=batch.prefill_len_np[index],
        num_computed_prefill_tokens_np=batch.num_computed_prefill_tokens_np[index],
        is_prefilling_np=batch.is_prefilling_np[index],
        has_prefill=bool(batch.is_prefilling_np[index].any()),
        decode_graph_eligible=False,
        input_ids=batch.input_ids[places],
        positions=batch.positions[places],
        is_padding=batch.is_padding[places],
        prompt_lens=None if batch.prompt_lens is None else batch.prompt_lens[chosen],
        max_seq_len_np=None if longest is None else longest[index],
        prefill_runs_as_decode_np=None if as_decode is None else as_decode[index],
        max_query_len=None,
        fast_prefill=None,
    )
    return selected, places

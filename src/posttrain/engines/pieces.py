"""What engines that hold their own copy of the weights share: what to write in token ids, seeds,
completions, and the check that the copy is the policy's.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from posttrain.engines import Until
from posttrain.engines.likelihood import token_logps
from posttrain.engines.sampling import Completion, Request, Sampling
from posttrain.engines.transformers import evaluating, stop_ids
from posttrain.errors import DataError, Fault
from posttrain.policies import Policy, batch_ids, chat_ids, chat_texts, response_ids

PROBE = ("Ann has 12 apples and buys 30 more. How many has she now?", "12 + 30 = 42 apples.")
"""What the log-probs of a copy and of the policy are compared on."""


class Piece(NamedTuple):
    """Go on from `prefix` by at most `room` tokens; `seed` is this piece's own."""

    prefix: tuple[int, ...]
    room: int
    seed: int


class Written(NamedTuple):
    """The tokens of a piece and their log-probs in nats."""

    tokens: tuple[int, ...] = ()
    logps: tuple[float, ...] = ()


def fresh_pieces(policy: Policy, prompts: Sequence[str], sampling: Sampling) -> list[Piece]:
    """One piece for each completion to draw, those of a prompt together."""
    prompt_ids = batch_ids(policy.tokenizer, chat_texts(policy.tokenizer, [*prompts]))
    return [
        Piece(tuple(ids), sampling.max_new_tokens, mixed(sampling.seed, place, sample))
        for place, ids in enumerate(prompt_ids)
        for sample in range(sampling.samples)
    ]


def resumed_pieces(policy: Policy, requests: Sequence[Request]) -> list[Piece]:
    """One piece for each request, after what is written."""
    texts = list(dict.fromkeys(request.prompt for request in requests))
    ids = batch_ids(policy.tokenizer, chat_texts(policy.tokenizer, texts))
    prompt_ids = dict(zip(texts, ids, strict=True))
    return [
        # A stream that began anew with the same numbers would tie a piece to the one before it.
        Piece(
            (*prompt_ids[request.prompt], *request.written),
            request.room,
            mixed(request.seed, len(request.written)),
        )
        for request in requests
    ]


class Write(Protocol):
    """How an engine writes pieces, as far as `until` lets it."""

    def __call__(
        self, pieces: Sequence[Piece], sampling: Sampling, until: Until | None = None
    ) -> list[Written]: ...


def generated(
    policy: Policy, write: Write, prompts: Sequence[str], sampling: Sampling
) -> list[list[Completion]]:
    """`sampling.samples` completions of each prompt [P][samples]."""
    pieces = fresh_pieces(policy, prompts, sampling)
    drawn = completions(policy, write(pieces, sampling), sampling)
    group = sampling.samples
    return [drawn[at * group : (at + 1) * group] for at in range(len(prompts))]


def resumed(
    policy: Policy,
    write: Write,
    requests: Sequence[Request],
    sampling: Sampling,
    until: Until | None,
) -> list[Completion]:
    """What each request adds; see `Engine.resume`."""
    pieces = resumed_pieces(policy, requests)
    return completions(policy, write(pieces, sampling, until), sampling)


def answered(
    policy: Policy, prompts: Sequence[str], responses: Sequence[str]
) -> list[tuple[list[int], list[int]]]:
    """Token ids of each prompt and of its response, the end-of-turn token included."""
    prompt_ids = batch_ids(policy.tokenizer, chat_texts(policy.tokenizer, [*prompts]))
    answers = [response_ids(policy.tokenizer, response) for response in responses]
    return list(zip(prompt_ids, answers, strict=True))


def mixed(*numbers: int) -> int:
    """A seed of 31 bits from several numbers."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(blake2b(text, digest_size=4).digest()) >> 1


def completions(policy: Policy, written: Sequence[Written], sampling: Sampling) -> list[Completion]:
    """What was written, with its text and whether it came to an end."""
    ends = stop_ids(policy)
    texts = policy.tokenizer.batch_decode(
        [[t for t in piece.tokens if t not in ends] for piece in written],
        skip_special_tokens=True,
    )
    every = ends | set(sampling.stop)
    return [
        Completion(text, *piece, truncated=not piece.tokens or piece.tokens[-1] not in every)
        for text, piece in zip(texts, written, strict=True)
    ]


def weight_version(model: Any) -> tuple[int, ...]:
    """Changes when any parameter does: the sum of each one's bits, read as whole numbers.

    Torch's own counter of writes will not do: fused optimisers and `.data` pass it by.
    """
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [
        p.detach().view(whole[p.element_size()]).sum(dtype=torch.int64) for p in model.parameters()
    ]
    return tuple(torch.stack(sums).tolist()) if sums else ()


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and values of the full model's parameters, a LoRA added to its base; tied once.

    The model stays as it is: to merge and unmerge in place would round its weights each time.
    """
    if not hasattr(model, "get_base_model"):
        yield from ((name, p.detach()) for name, p in model.named_parameters())
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    base = model.get_base_model()
    tuned = {name: m for name, m in base.named_modules() if isinstance(m, BaseTunerLayer)}
    own = {id(p) for m in tuned.values() for p in m.get_base_layer().parameters()}
    adapters = {id(p) for m in tuned.values() for p in m.parameters()} - own
    for name, parameter in base.named_parameters():
        if id(parameter) in adapters:
            continue
        value = parameter.detach()
        owner, _, rest = name.partition(".base_layer.")
        if rest == "weight":
            layer = tuned[owner]
            value = value + sum(layer.get_delta_weight(a).detach() for a in layer.active_adapters)
        yield f"{owner}.{rest}" if rest else name, value


def probe_ids(policy: Policy) -> list[int]:
    """The tokens that a copy of the weights is tried on."""
    prompt, answer = PROBE
    return [*chat_ids(policy.tokenizer, prompt), *response_ids(policy.tokenizer, answer)]


def check_copy(policy: Policy, found: Sequence[float], tolerance: float, fault: Fault) -> None:
    """Raise DataError unless `found` are the policy's log-probs of `probe_ids`, from the second on.

    `fault` says whose they are; how far they are off is added to it.
    """
    ids = torch.tensor([probe_ids(policy)], device=policy.model.device)
    with evaluating(policy), torch.no_grad():
        own_T = token_logps(policy.model(input_ids=ids).logits[0, :-1], ids[0, 1:]).cpu()
    gap = float((torch.tensor(found) - own_T).abs().max())
    if not gap <= tolerance:
        why = f"log-probs of a probe differ by {gap:.3g} nats, {tolerance:g} are allowed"
        raise DataError(Fault(fault.what, fault.where, f"{why}; {fault.why}", fault.mend))

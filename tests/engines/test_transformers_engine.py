"""The engine draws what the model says, whatever the batch."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from posttrain.engines import Completion, Request, Sampling
from posttrain.engines.transformers import TransformersEngine, keep_likely, pick
from posttrain.policies import Policy, chat_ids, load_policy

PROMPTS = ["2 + 3?", "Ann has 12 apples and buys 30 more. How many apples has Ann?", "", "7 * 8?"]
GREEDY = Sampling(temperature=0.0, max_new_tokens=12)


@pytest.fixture(scope="module")
def policy(tiny_policy: Path) -> Policy:
    return load_policy(tiny_policy)


@pytest.fixture
def hasty(policy: Policy) -> TransformersEngine:
    """An engine for which an eighth of the tokens end a response, so that rows finish apart."""
    engine = TransformersEngine(policy)
    engine.stop_ids = frozenset(range(0, len(policy.tokenizer), 8))
    return engine


def fresh_logps(
    policy: Policy, prompt: str, completion: Completion, temperature: float
) -> list[float]:
    """By one plain forward pass over one row."""
    start = chat_ids(policy.tokenizer, prompt)
    with torch.no_grad():
        logits_TV = policy.model(torch.tensor([[*start, *completion.tokens]])).logits[0]
    logp_TV = (logits_TV / temperature).log_softmax(-1)
    return [logp_TV[len(start) + i - 1, t].item() for i, t in enumerate(completion.tokens)]


def test_greedy_is_what_hugging_face_generates(policy: Policy) -> None:
    found = TransformersEngine(policy).generate(PROMPTS, GREEDY)
    for prompt, (completion,) in zip(PROMPTS, found, strict=True):
        ids = torch.tensor([chat_ids(policy.tokenizer, prompt)])
        expected = policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12
        )
        assert completion.tokens == tuple(expected[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(samples=3, seed=4, max_new_tokens=24)])
def test_batch_size_changes_nothing(hasty: TransformersEngine, sampling: Sampling) -> None:
    whole = hasty.generate(PROMPTS, sampling)
    if sampling.temperature:
        assert len({len(c.tokens) for group in whole for c in group}) > 3
    for batch in (1, 2, 5):
        hasty.batch = batch
        split = hasty.generate(PROMPTS, sampling)
        assert [[c.tokens for c in g] for g in split] == [[c.tokens for c in g] for g in whole]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_recorded_logps_are_those_of_a_fresh_pass(
    hasty: TransformersEngine, policy: Policy, temperature: float
) -> None:
    sampling = Sampling(samples=4, temperature=temperature, max_new_tokens=24, seed=1)
    for prompt, group in zip(PROMPTS, hasty.generate(PROMPTS, sampling), strict=True):
        for completion in group:
            fresh = fresh_logps(policy, prompt, completion, temperature or 1.0)
            assert completion.logps == pytest.approx(fresh, abs=1e-4)


def test_the_seed_decides(policy: Policy) -> None:
    engine = TransformersEngine(policy)
    one, same, other = (
        engine.generate(PROMPTS, Sampling(samples=2, seed=seed, max_new_tokens=8))
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other
    assert one[0][0].tokens != one[0][1].tokens


def test_a_response_ends_with_its_stop_token_or_is_truncated(hasty: TransformersEngine) -> None:
    found = hasty.generate(PROMPTS, Sampling(samples=8, max_new_tokens=8))
    completions = [completion for group in found for completion in group]
    assert {completion.truncated for completion in completions} == {True, False}
    for completion in completions:
        assert 1 <= len(completion.tokens) == len(completion.logps) <= 8
        assert completion.truncated == (completion.tokens[-1] not in hasty.stop_ids)
        assert not hasty.stop_ids & set(completion.tokens[:-1])


def test_samples_follow_the_policy(policy: Policy) -> None:
    """Of 4096 first tokens the shares are those of the softmax, within four standard errors."""
    sampling = Sampling(samples=4096, max_new_tokens=1, temperature=0.5)
    drawn = TransformersEngine(policy, batch=4096).generate(["2 + 3?"], sampling)[0]
    with torch.no_grad():
        logits_V = policy.model(torch.tensor([chat_ids(policy.tokenizer, "2 + 3?")])).logits[0, -1]
    share_V = (logits_V / 0.5).softmax(-1)
    count_V = torch.bincount(torch.tensor([c.tokens[0] for c in drawn]), minlength=len(share_V))
    error_V = (share_V * (1 - share_V) / 4096).sqrt()
    top = share_V.topk(20).indices
    assert ((count_V / 4096 - share_V).abs() <= 4 * error_V)[top].all()


def test_top_k_of_one_is_greedy(policy: Policy) -> None:
    engine = TransformersEngine(policy)
    top = engine.generate(PROMPTS, Sampling(top_k=1, max_new_tokens=12))
    greedy = engine.generate(PROMPTS, GREEDY)
    assert [g[0].tokens for g in top] == [g[0].tokens for g in greedy]


def test_top_p_keeps_the_smallest_nucleus() -> None:
    logits_BV = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept_BV = keep_likely(logits_BV, Sampling(top_p=0.75)).softmax(-1)
    assert kept_BV.tolist()[0] == pytest.approx([0.625, 0.375, 0.0, 0.0])
    assert keep_likely(logits_BV, Sampling(top_p=0.01)).isfinite().sum() == 1


def test_a_draw_never_lands_on_an_impossible_token() -> None:
    logits_BV = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]] * 3)
    draws_B = torch.tensor([0.0, 0.5, 1 - 2**-24])
    assert pick(logits_BV, draws_B, Sampling()).tolist() == [1, 3, 3]


def test_no_prompts_no_completions(policy: Policy) -> None:
    engine = TransformersEngine(policy)
    assert engine.generate([], Sampling()) == []
    assert engine.logps([], []) == []


def test_training_mode_is_put_back(policy: Policy) -> None:
    policy.model.train()
    TransformersEngine(policy).generate(["2"], GREEDY)
    assert policy.model.training
    policy.model.eval()


def test_logps_of_given_responses_do_not_depend_on_their_company(policy: Policy) -> None:
    engine = TransformersEngine(policy)
    prompts = [PROMPTS[1], PROMPTS[1], PROMPTS[0], PROMPTS[1]]
    responses = ["42", "#### 1 and a longer answer", "", "B"]
    together = engine.logps(prompts, responses)
    for prompt, response, found in zip(prompts, responses, together, strict=True):
        assert found == pytest.approx(engine.logps([prompt], [response])[0], abs=1e-5)
        tokens = [*policy.tokenizer(response)["input_ids"], policy.tokenizer.eos_token_id]
        completion = Completion(response, tuple(tokens), (), truncated=False)
        assert found == pytest.approx(fresh_logps(policy, prompt, completion, 1.0), abs=1e-4)


REQUESTS = [
    Request(prompt, seed, room)
    for seed, (prompt, room) in enumerate(
        [(PROMPTS[0], 24), (PROMPTS[1], 24), (PROMPTS[0], 9), (PROMPTS[3], 1), (PROMPTS[2], 24)] * 3
    )
]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_resumed_response_does_not_depend_on_its_company(
    hasty: TransformersEngine, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature)
    whole = hasty.resume(REQUESTS, sampling)
    if temperature:
        assert len({len(completion.tokens) for completion in whole}) > 3
    for batch in (1, 2, 7):
        hasty.batch = batch
        split = hasty.resume(REQUESTS, sampling)
        assert [c.tokens for c in split] == [c.tokens for c in whole]
        for one, other in zip(split, whole, strict=True):
            assert one.logps == pytest.approx(other.logps, abs=1e-4)
    assert hasty.resume([], sampling) == []


def test_rooms_differ_by_row(hasty: TransformersEngine) -> None:
    for request, completion in zip(REQUESTS, hasty.resume(REQUESTS, Sampling()), strict=True):
        assert 1 <= len(completion.tokens) == len(completion.logps) <= request.room
        ended = completion.tokens[-1] in hasty.stop_ids
        assert completion.truncated == (not ended)
        assert ended or len(completion.tokens) == request.room


@pytest.mark.parametrize("cuts", [(1,), (3, 4), (1, 2, 8)])
def test_one_policy_writes_the_same_in_one_piece_or_in_several(
    hasty: TransformersEngine, policy: Policy, cuts: tuple[int, ...]
) -> None:
    """Each piece has another room, so other numbers of draws, and other rows for company."""
    for request in REQUESTS:
        (whole,) = hasty.resume([request], Sampling())
        written: tuple[int, ...] = ()
        logps: tuple[float, ...] = ()
        for end in (*cuts, request.room):
            room = min(end, request.room) - len(written)
            if room <= 0 or (written and written[-1] in hasty.stop_ids):
                continue
            company = Request("7?", 99, 3)
            more, _ = hasty.resume([request._replace(room=room, written=written), company],
                                   Sampling())  # fmt: skip
            written, logps = written + more.tokens, logps + more.logps
        assert written == whole.tokens
        assert logps == pytest.approx(whole.logps, abs=1e-4)
        fresh = fresh_logps(policy, request.prompt, Completion("", written, (), False), 1.0)
        assert logps == pytest.approx(fresh, abs=1e-4)


@pytest.mark.parametrize("batch", [4, 512])
@pytest.mark.parametrize("enough", [1, 6, 99])
def test_until_stops_the_rest(hasty: TransformersEngine, batch: int, enough: int) -> None:
    """What is done is whole, the rest a beginning; the first requests are begun first."""
    requests = [request._replace(room=24) for request in REQUESTS]
    whole = hasty.resume(requests, Sampling())
    hasty.batch = batch
    told: list[int] = []

    def until(done: Sequence[int]) -> bool:
        told[:] = done
        return len(done) >= enough

    part = hasty.resume(requests, Sampling(), until)
    assert len(told) == len(set(told)) >= min(enough, len(requests))
    for at, (piece, full) in enumerate(zip(part, whole, strict=True)):
        assert piece.tokens == full.tokens[: len(piece.tokens)]
        assert (piece.tokens == full.tokens) == (at in told)
        assert at in told or piece.truncated
    begun = [bool(piece.tokens) for piece in part]
    assert begun == sorted(begun, reverse=True)
    assert all(begun) == (batch == 512 or enough == 99)


def test_stop_ids_end_a_piece_besides_the_policys_own(
    hasty: TransformersEngine, policy: Policy
) -> None:
    stop = tuple(range(3, len(policy.tokenizer), 8))
    requests = [request._replace(room=24) for request in REQUESTS]
    heard = hasty.resume(requests, Sampling(stop=stop))
    ends = [completion.tokens[-1] in stop for completion in heard]
    assert any(ends)
    assert not all(ends)
    for piece, full in zip(heard, hasty.resume(requests, Sampling()), strict=True):
        assert piece.tokens == full.tokens[: len(piece.tokens)]
        assert not {*stop, *hasty.stop_ids} & {*piece.tokens[:-1]}
        assert piece.truncated == (piece.tokens[-1] not in {*stop, *hasty.stop_ids})
        own = [t for t in piece.tokens if t not in hasty.stop_ids]
        assert piece.text == policy.tokenizer.decode(own, skip_special_tokens=True)

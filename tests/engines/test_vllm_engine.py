"""vLLM draws and measures what the policy does. Runs where vLLM is: `.venv-vllm/bin/python`."""

import gc
import random
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from tests.conftest import EMBEDDED
from tests.engines.on_vllm import (
    PROMPTS,
    RESPONSES,
    TOLERANCE,
    assert_same_likelihoods,
    assert_stopped,
    engine_of,
    fresh_logps,
    needs_vllm,
    take_step,
)

from posttrain.engines import ENGINES, Engine, Request, Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import ConfigError, DataError
from posttrain.plugins import Plugin, build
from posttrain.policies import Policy, load_policy


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
@pytest.mark.parametrize("options", [{}, {"dtype": "float32", "sleep": True}])
def test_without_vllm_the_error_says_how_to_get_it(options: dict[str, Any]) -> None:
    make = build(ENGINES, Plugin(name="vllm", options=options))
    with pytest.raises(ConfigError, match=r"vLLM is not installed[\s\S]*setup_vllm\.sh"):
        make(None)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "int8"}, {"gpu_memory_utilization": 1.5}, {"batch": 0}, {"tolerance": 0.0}],
)
def test_bad_options_fail_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(ENGINES, Plugin(name="vllm", options=options))


@needs_vllm
@pytest.mark.vllm
def test_likelihoods_are_the_policys(policy: Policy, engine: Engine) -> None:
    assert_same_likelihoods(policy, engine)


@needs_vllm
@pytest.mark.vllm
def test_greedy_is_the_transformers_engines(policy: Policy, engine: Engine) -> None:
    greedy = Sampling(temperature=0.0, max_new_tokens=24)
    found = engine.generate(PROMPTS, greedy)
    expected = TransformersEngine(policy).generate(PROMPTS, greedy)
    for (mine,), (theirs,) in zip(found, expected, strict=True):
        assert mine._replace(logps=()) == theirs._replace(logps=())
        assert mine.logps == pytest.approx(theirs.logps, abs=TOLERANCE)


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(1.0, 1.0, 0), (0.7, 0.9, 20)])
def test_logps_are_those_before_top_p_at_the_sampling_temperature(
    policy: Policy, engine: Engine, temperature: float, top_p: float, top_k: int
) -> None:
    sampling = Sampling(3, temperature, top_p, top_k, max_new_tokens=16, seed=5)
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, sampling), strict=True):
        for completion in group:
            expected = fresh_logps(policy, prompt, completion.tokens, temperature)
            assert list(completion.logps) == pytest.approx(expected, abs=TOLERANCE)
    assert_same_likelihoods(policy, engine)


@needs_vllm
@pytest.mark.vllm
def test_a_seed_gives_the_same_texts_again(policy: Policy, engine: Engine) -> None:
    sampling = Sampling(samples=4, max_new_tokens=16, seed=1)
    found = engine.generate(PROMPTS, sampling)
    assert engine.generate(PROMPTS, sampling) == found
    assert engine.generate(PROMPTS, sampling._replace(seed=2)) != found
    assert len({completion.tokens for completion in found[0]}) > 1


@needs_vllm
@pytest.mark.vllm
def test_more_than_fits_at_once(policy: Policy) -> None:
    """More prompts than are read in one go, more rows than are drawn in one, and than memory for
    keys and values holds."""
    prompts = [f"{at} + {'1 ' * 40}" for at in range(160)]
    engine = engine_of(policy, kv_cache_gib=0.02, batch=128)
    sampling = Sampling(temperature=2.0, max_new_tokens=40, seed=1)
    found = engine.generate(prompts, sampling)
    assert all(group[0].tokens for group in found)
    for prompt, (completion,) in list(zip(prompts, found, strict=True))[::60]:
        expected = fresh_logps(policy, prompt, completion.tokens, 2.0)
        assert list(completion.logps) == pytest.approx(expected, abs=TOLERANCE)


@needs_vllm
@pytest.mark.vllm
def test_vllm_takes_over_the_weights_of_each_step(policy: Policy, engine: Engine) -> None:
    before = engine.logps(PROMPTS, RESPONSES)
    for _ in range(2):
        take_step(policy)
        assert_same_likelihoods(policy, engine)
    after = engine.logps(PROMPTS, RESPONSES)
    assert max(abs(a - b) for a, b in zip(before[1], after[1], strict=True)) > 0.1


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_heads(tied: bool) -> None:
    own = load_policy(EMBEDDED, dtype=torch.float32)
    if not tied:
        own.model.config.tie_word_embeddings = False
        own.model.lm_head.weight = torch.nn.Parameter(own.model.lm_head.weight.detach() * 0.5)
    engine = engine_of(own)
    assert_same_likelihoods(own, engine)
    take_step(own)
    assert_same_likelihoods(own, engine)


@needs_vllm
@pytest.mark.vllm
def test_an_adapter_draws_as_the_merged_policy() -> None:
    from peft import LoraConfig, get_peft_model

    base = load_policy(EMBEDDED, dtype=torch.float32)
    adapter = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    own = Policy(get_peft_model(base.model, adapter).eval(), base.tokenizer)
    engine = engine_of(own)
    assert_same_likelihoods(own, engine)
    with torch.no_grad():
        for name, parameter in own.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    assert_same_likelihoods(own, engine)


@needs_vllm
@pytest.mark.vllm
def test_weights_that_do_not_arrive_are_noticed(policy: Policy) -> None:
    engine = engine_of(policy, tolerance=1e-9)
    with pytest.raises(DataError, match="does not hold the policy's weights"):
        engine.logps(["a"], ["b"])


@needs_vllm
@pytest.mark.vllm
def test_a_short_format_differs_by_rounding(policy: Policy) -> None:
    engine = engine_of(policy, dtype="bfloat16")
    assert_same_likelihoods(policy, engine, tolerance=0.5)


@needs_vllm
@pytest.mark.vllm
def test_a_resumed_request_goes_on_from_what_is_written(policy: Policy, engine: Engine) -> None:
    greedy = Sampling(temperature=0.0)
    ((whole,),) = engine.generate([PROMPTS[1]], greedy._replace(max_new_tokens=20))
    assert len(whole.tokens) > 8
    first, later = whole.tokens[:8], len(whole.tokens) - 8
    (rest,) = engine.resume([Request(PROMPTS[1], 0, later, first)], greedy)
    assert (*first, *rest.tokens) == whole.tokens
    asked = [Request(PROMPTS[1], 3, 12, first), Request(PROMPTS[0], 4, 5)]
    drawn = engine.resume(asked, Sampling())
    assert engine.resume(asked, Sampling()) == drawn
    assert [len(c.tokens) <= r.room for c, r in zip(drawn, asked, strict=True)] == [True, True]


@needs_vllm
@pytest.mark.vllm
def test_stop_tokens_end_a_piece(policy: Policy, engine: Engine) -> None:
    stop = tuple(range(0, len(policy.tokenizer), 8))
    requests = [Request(PROMPTS[1], seed, 40) for seed in range(6)]
    for completion in engine.resume(requests, Sampling(stop=stop)):
        ends = {*stop, int(policy.tokenizer.eos_token_id)}
        assert completion.truncated == (completion.tokens[-1] not in ends)
        assert not ends & set(completion.tokens[:-1])


@needs_vllm
@pytest.mark.vllm
def test_until_stops_the_rest_where_they_are(policy: Policy, engine: Engine) -> None:
    rooms, told = [2, 5, 120], list[list[int]]()

    def enough(done: Any) -> bool:
        told.append(list(done))
        return len(done) == 2

    # The least likely tokens keep a response from ending early.
    requests = [Request(PROMPTS[0], 1, room, written=(700, 701)) for room in rooms]
    found = engine.resume(requests, Sampling(temperature=5.0), enough)
    assert_stopped(found, told, rooms)
    assert_same_likelihoods(policy, engine)


@needs_vllm
@pytest.mark.vllm
def test_too_long_a_prompt_is_told(policy: Policy, engine: Engine) -> None:
    with pytest.raises(DataError, match="at most 255"):
        engine.generate(["1 " * 400], Sampling(max_new_tokens=1))
    assert engine.generate([PROMPTS[0]], Sampling(max_new_tokens=1))


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("options", [{"max_model_len": 10**6}, {"kv_cache_gib": 1e-5}])
def test_what_vllm_refuses_is_told(policy: Policy, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="vLLM does not start"):
        engine_of(policy, **options)


@needs_vllm
@pytest.mark.vllm
def test_starting_vllm_leaves_the_process_as_it_was(policy: Policy) -> None:
    random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state().tolist()
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    engine_of(policy).generate(["a"], Sampling(max_new_tokens=2))
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, set_threads)


@needs_vllm
@pytest.mark.vllm
def test_an_engine_outlives_another(policy: Policy, engine: Engine) -> None:
    expected = engine.logps(["a"], ["b"])
    other = engine_of(policy)
    assert other.logps(["a"], ["b"]) == expected
    del other
    gc.collect()
    assert engine.generate(["a"], Sampling(max_new_tokens=2))
    assert engine.logps(["a"], ["b"]) == expected


@needs_vllm
@pytest.mark.vllm
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can sleep")
def test_a_cpu_cannot_sleep(policy: Policy) -> None:
    with pytest.raises(ConfigError, match="cannot sleep"):
        engine_of(policy, sleep=True)

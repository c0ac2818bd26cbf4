"""Laws that every replay keeps, and what each one composes."""

import json

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.experience import Lesson
from posttrain.rl.replays import REPLAYS
from posttrain.rl.rollout import Rollout, Source


def lessons(step: int, *groups: list[float], source: Source = "fresh") -> list[Lesson]:
    """One lesson for each reward; the third token's log-prob tells which."""
    made = []
    for number, rewards in enumerate(groups):
        prompt = Prompt(id=f"{step}/{number}", text="?", answer="1", task="arithmetic", source="t")
        mean = sum(rewards) / max(1, len(rewards))
        for place, reward in enumerate(rewards):
            rollout = Rollout(
                prompt,
                "",
                (1, 2, 3),
                (-0.5, -0.25, -0.1 * place),
                False,
                versions=(step,) * 3,
                source=source,
                reward=reward,
            )
            made.append(Lesson(rollout, number, (reward - mean,), len(set(rewards)) > 1))
    return made


MIXED = [1.0, 0.0]


@pytest.mark.parametrize("name", REPLAYS)
@pytest.mark.parametrize("groups", [[], [[]], [[1.0]], [[1.0, 1.0], [0.0, 0.0]], [MIXED]])
def test_what_is_fresh_is_learnt_from_once_in_a_batch(name: str, groups: list[list[float]]) -> None:
    replay = REPLAYS[name]()
    for step in range(3):
        fresh = lessons(step, *groups)
        batches = replay.compose(fresh, step)
        assert batches
        assert sorted(sum(batch.count(each) for batch in batches) for each in fresh) == [
            len(batches)
        ] * len(fresh)
        assert all(isinstance(number, float) for number in replay.metrics().values())


@pytest.mark.parametrize("name", REPLAYS)
def test_group_numbers_are_distinct_in_a_batch(name: str) -> None:
    replay = REPLAYS[name]()
    for step in range(4):
        for batch in replay.compose(lessons(step, MIXED, MIXED, MIXED), step):
            prompts = {lesson.group: lesson.rollout.prompt.id for lesson in batch}
            assert all(prompts[lesson.group] == lesson.rollout.prompt.id for lesson in batch)
            assert len({*prompts.values()}) == len(prompts)


@pytest.mark.parametrize("name", REPLAYS)
def test_a_restored_replay_composes_the_same(name: str) -> None:
    replay, restored = REPLAYS[name](), REPLAYS[name]()
    for step in range(3):
        replay.compose(lessons(step, MIXED, [1.0, 1.0], MIXED), step)
    restored.compose(lessons(9, MIXED), 9)
    restored.restore(json.loads(json.dumps(replay.state(), sort_keys=True)))
    for step in range(3, 6):
        fresh = lessons(step, MIXED, MIXED)
        assert restored.compose(fresh, step) == replay.compose(fresh, step)
        assert restored.metrics() == replay.metrics()


def test_rr_fifo_with_everything_fresh_replays_nothing() -> None:
    replay = REPLAYS["rr_fifo"](fresh=1.0)
    for step in range(3):
        fresh = lessons(step, MIXED, MIXED)
        assert replay.compose(fresh, step) == REPLAYS["fresh"]().compose(fresh, step)


@pytest.mark.parametrize(("share", "replayed"), [(0.5, 4), (0.8, 1), (0.25, 12)])
def test_rr_fifo_fills_up_with_old_groups(share: float, replayed: int) -> None:
    replay = REPLAYS["rr_fifo"](fresh=share)
    for step in range(4):
        assert replay.compose(lessons(step, *[MIXED] * 4), step)
    fresh = lessons(4, *[MIXED] * 4)
    (batch,) = replay.compose(fresh, 4)
    old = [lesson for lesson in batch if lesson.rollout.source == "replay"]
    assert len(old) == 2 * replayed
    assert len(batch) == len(fresh) + len(old)
    assert {lesson.rollout.behaviour_logps[0] for lesson in old} == {-0.5}
    assert {lesson.advantage for lesson in old} == {(0.5,), (-0.5,)}
    assert replay.metrics()["replay/groups"] == replayed
    assert replay.metrics()["replay/waiting"] == 20
    assert 1 <= replay.metrics()["replay/age"] <= 4


def test_rr_fifo_rejects_groups_whose_mean_is_0_or_1() -> None:
    replay = REPLAYS["rr_fifo"]()
    replay.compose(lessons(0, [1.0, 1.0], [0.0, 0.0], MIXED, [0.0]), 0)
    assert replay.metrics()["replay/waiting"] == 1
    (batch,) = replay.compose(lessons(1, MIXED, MIXED), 1)
    again = {each.rollout.prompt.id for each in batch if each.rollout.source == "replay"}
    assert again == {"0/2"}


@pytest.mark.parametrize(("rewards", "learn"), [([0.5, 0.5], True), (MIXED, False)])
def test_rr_fifo_rejects_groups_that_teach_nothing(rewards: list[float], learn: bool) -> None:
    replay = REPLAYS["rr_fifo"]()
    replay.compose([lesson._replace(learn=learn) for lesson in lessons(0, rewards)], 0)
    assert replay.state() == []


def test_rr_fifo_draws_others_in_another_step_and_by_another_seed() -> None:
    def drawn(step: int, seed: int) -> set[str]:
        replay = REPLAYS["rr_fifo"](seed=seed)
        replay.compose(lessons(0, *[MIXED] * 64), 0)
        (batch,) = replay.compose(lessons(step, *[MIXED] * 8), step)
        return {each.rollout.prompt.id for each in batch if each.rollout.source == "replay"}

    assert drawn(1, seed=0) == drawn(1, seed=0)
    assert drawn(1, seed=0) != drawn(2, seed=0)
    assert drawn(1, seed=0) != drawn(1, seed=1)


def test_rr_fifo_forgets_the_oldest() -> None:
    replay = REPLAYS["rr_fifo"](capacity=3)
    for step in range(5):
        replay.compose(lessons(step, MIXED), step)
    assert [group[0][0]["versions"][0] for group in replay.state()] == [2, 3, 4]


def test_rr_fifo_leaves_another_writer_his_name() -> None:
    replay = REPLAYS["rr_fifo"]()
    replay.compose(lessons(0, MIXED, source="external"), 0)
    (batch,) = replay.compose(lessons(1, MIXED), 1)
    assert {each.rollout.source for each in batch} == {"fresh", "external"}


def test_rr_fifo_spreads_the_old_groups_over_the_batch() -> None:
    replay = REPLAYS["rr_fifo"]()
    replay.compose(lessons(0, *[MIXED] * 16), 0)
    (batch,) = replay.compose(lessons(1, *[MIXED] * 16), 1)
    first = [each.rollout.source for each in batch[: len(batch) // 2]]
    assert 8 <= first.count("replay") <= 24


@pytest.mark.parametrize("options", [{"fresh": 0.0}, {"fresh": 1.5}, {"capacity": 0}])
def test_bad_options_of_rr_fifo_are_told(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build(REPLAYS, Plugin(name="rr_fifo", options=options))

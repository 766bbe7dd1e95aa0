"""`mjxgym.gymnasium` against Gymnasium's own checks, and against the pure env rolled by hand. Axes: B envs, T steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from jax import Array
from probes import Hidden, walk

import mjxgym
from mjxgym.env import State
from mjxgym.gymnasium import GymEnv, GymVectorEnv, gym_id

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
every_mode = pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED], ids=lambda mode: mode.value)
B, T, SEED, LIMIT = 4, 20, 5, 7  # each env ends some episodes, at other steps than its neighbours


@functools.cache
def cartpole() -> Any:
    return mjxgym.make("cartpole", "c", episode_length=LIMIT)


@functools.cache
def vector(mode: AutoresetMode = NEXT_STEP, num_envs: int = B) -> GymVectorEnv:
    """Compiled once for all tests; each resets all its envs with seeds."""
    return GymVectorEnv(cartpole(), num_envs, mode)


@functools.cache
def pure() -> tuple[Any, Any]:
    """(start of a seed and a number, step) of one world, jitted."""

    def start(seed: Array, number: Array) -> State:
        return cartpole().reset(jax.random.fold_in(jax.random.key(seed), number))

    return jax.jit(start), jax.jit(cartpole().step)


def actions(seed: int = 1) -> np.ndarray:
    """[T, B, 1]. Half of the envs rest until the clock runs out, the others are pushed until the pole falls."""
    pushes = np.random.default_rng(seed).uniform(-1.0, 1.0, (T, B, 1)) + 0.5
    return (pushes * np.array([0.0, 1.0, 0.0, 1.0])[:, None]).astype(np.float32)


class Step(NamedTuple):
    """One step of one env."""

    after: State  # what it led to
    goes_on: State  # what the next step starts from
    acted: bool  # the action was used


@functools.cache
def by_hand(mode: AutoresetMode, row: int) -> list[Step]:
    """What env `row` goes through under `actions`, as the docstrings say it."""
    (start, step), state, number, steps = pure(), pure()[0](SEED + row, 0), 1, []
    for action in actions()[:, row]:
        acted = mode is not NEXT_STEP or not state.done
        if acted:
            state = step(state, action)
        else:
            state, number = start(SEED + row, number), number + 1
        after = state
        if mode is not NEXT_STEP and state.done:
            state, number = start(SEED + row, number), number + 1
        steps.append(Step(after, state, acted))
    return steps


def expected(mode: AutoresetMode, when: int) -> tuple[State, State, np.ndarray]:
    """(what step `when` led to, what goes on, where actions were used), [B, ...]."""
    rows = [by_hand(mode, row)[when] for row in range(B)]
    after, goes_on = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        for states in ([row.after for row in rows], [row.goes_on for row in rows])
    )
    return after, goes_on, np.array([row.acted for row in rows])


def close(left: Any, right: Any) -> None:
    """Equal but for the rounding of another compilation."""
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def told(infos: dict[str, Any], after: State, mask: np.ndarray) -> None:
    """`infos` hold what is known of `after` where `mask`, and zeros elsewhere."""
    np.testing.assert_array_equal(infos["_valid"], mask)
    np.testing.assert_array_equal(infos["_reward_terms"], mask)
    np.testing.assert_array_equal(infos["valid"], mask)  # nothing breaks here
    for name, term in after.metrics._asdict().items():
        close(infos["reward_terms"][name], np.where(mask, term, 0.0))
        np.testing.assert_array_equal(infos["reward_terms"][f"_{name}"], mask)


@pytest.mark.filterwarnings("ignore:.*infinity")  # observations are raw: they have no bounds
@pytest.mark.parametrize("task", mjxgym.list_envs())
def test_gymnasiums_checks_pass(task: str):
    env = gymnasium.make(gym_id(task), engine="c")
    assert isinstance(env.unwrapped, GymEnv)
    check_env(env.unwrapped)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=lambda mode: mode.value)
def test_it_does_what_gymnasiums_own_vector_env_does(mode: AutoresetMode):
    settings = {"num_envs": B, "engine": "c", "episode_length": LIMIT}
    ours = gymnasium.make_vec("mjxgym/Cartpole-v0", autoreset_mode=mode, **settings)
    assert isinstance(ours, GymVectorEnv)
    theirs = gymnasium.make_vec(
        "mjxgym/Cartpole-v0", vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **settings
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert data_equivalence(ours.reset(seed=SEED), theirs.reset(seed=SEED))
    seen = set()
    for now in actions():
        (*left, left_infos), (*right, right_infos) = ours.step(now), theirs.step(now)
        assert data_equivalence(left, right)
        assert data_equivalence(plain(left_infos), plain(right_infos))
        assert left[0] in ours.observation_space
        seen |= left_infos.keys()
    assert ("final_obs" in seen) == (mode is SAME_STEP)


def plain(infos: Any) -> Any:
    """Floats as float64, which Gymnasium makes of Python's; without what is said of no env, which it leaves out."""
    if isinstance(infos, dict):
        return {
            name: plain(value) for name, value in infos.items() if np.any(infos[name if name[0] == "_" else f"_{name}"])
        }
    return infos.astype(np.float64) if infos.dtype == np.float32 else infos


@every_mode
def test_every_env_plays_the_pure_env(mode: AutoresetMode):
    envs, ends = vector(mode), 0
    obs, infos = envs.reset(seed=SEED)
    close(obs, [pure()[0](SEED + row, 0).obs for row in range(B)])
    assert infos == {}
    for when, now in enumerate(actions()):
        after, goes_on, acted = expected(mode, when)
        obs, reward, terminated, truncated, infos = envs.step(now)
        close(obs, goes_on.obs if mode is SAME_STEP else after.obs)
        close(reward, after.reward)
        np.testing.assert_array_equal(terminated, after.terminated)
        np.testing.assert_array_equal(truncated, after.truncated)
        ended = terminated | truncated
        ends += ended
        told(infos, after, ~ended if mode is SAME_STEP else acted)
        assert ("final_obs" in infos) == ("final_info" in infos) == (mode is SAME_STEP and bool(ended.any()))
        if "final_obs" in infos:
            told(infos["final_info"], after, ended)
            for row in range(B):
                assert (infos["final_obs"][row] is None) == (not ended[row])
                if ended[row]:
                    close(infos["final_obs"][row], after.obs[row])
        if mode is DISABLED and ended.any():
            obs, infos = envs.reset(options={"reset_mask": ended})
            close(obs, goes_on.obs)
            assert infos == {}
    assert np.all(ends >= 2)
    both = [getattr(expected(mode, when)[0], end).any() for end in ("terminated", "truncated") for when in range(T)]
    assert any(both[:T])
    assert any(both[T:])


def test_the_step_that_begins_an_episode_ignores_the_action_and_earns_nothing():
    envs = vector()
    results = []
    for last in (-1.0, 1.0):
        envs.reset(seed=SEED)
        for _ in range(LIMIT):
            _, _, _, truncated, _ = envs.step(np.zeros((B, 1)))
        assert truncated.all()
        obs, reward, terminated, truncated, infos = envs.step(np.full((B, 1), last))
        results.append(obs)
        assert not reward.any()
        assert not (terminated | truncated | infos["_valid"] | infos["_reward_terms"]).any()
    np.testing.assert_array_equal(*results)


def test_a_seed_gives_the_same_episodes_whatever_the_neighbours_do():
    def first_env(envs: GymVectorEnv, seed: Any, others: np.ndarray) -> list[np.ndarray]:
        seen = [envs.reset(seed=seed)[0][0]]
        for now, other in zip(actions()[:, 1], others, strict=True):
            seen.append(envs.step(np.concatenate([now[None], other[: envs.num_envs - 1]]))[0][0])
        return seen

    resting, pushed = np.zeros((T, B, 1)), np.ones((T, B, 1))
    one = first_env(vector(), SEED, resting)
    np.testing.assert_array_equal(one, first_env(vector(), SEED, pushed))
    np.testing.assert_array_equal(one, first_env(vector(), [SEED, 1, 1, 2], pushed))
    close(one, first_env(vector(num_envs=2), SEED, resting))
    assert not np.allclose(one, first_env(vector(), SEED + 1, resting))


def test_an_env_without_a_seed_goes_on_with_the_one_it_has():
    envs, start = vector(), pure()[0]
    envs.reset(seed=SEED)
    close(envs.reset()[0], [start(SEED + row, 1).obs for row in range(B)])
    close(
        envs.reset(seed=[30, None, 0, None])[0],
        [start(30, 0).obs, start(SEED + 1, 2).obs, start(0, 0).obs, start(SEED + 3, 2).obs],
    )


def test_an_env_that_never_had_a_seed_gets_a_random_one():
    made = [GymVectorEnv(cartpole(), B).reset()[0] for _ in range(2)]
    assert len(np.unique(np.concatenate(made)[:, 0])) == 2 * B
    partly = GymVectorEnv(cartpole(), 2).reset(seed=[SEED, None])[0]
    close(partly[0], pure()[0](SEED, 0).obs)


def test_a_mask_restarts_its_envs_and_leaves_the_others():
    envs, (start, step) = vector(), pure()
    mask = np.array([True, False, True, False])
    envs.reset(seed=SEED)
    before = envs.step(np.zeros((B, 1)))[0]
    obs, _ = envs.reset(seed=[30, 31, None, None], options={"reset_mask": mask})
    np.testing.assert_array_equal(obs[~mask], before[~mask])
    close(obs[mask], [start(30, 0).obs, start(SEED + 2, 1).obs])
    after = envs.step(np.full((B, 1), 0.1))[0]
    close(after[0], step(start(30, 0), jnp.full(1, 0.1)).obs)
    close(after[1], step(step(start(SEED + 1, 0), jnp.zeros(1)), jnp.full(1, 0.1)).obs)
    close(envs.reset()[0][1], start(SEED + 1, 1).obs)  # its seed was not replaced by 31


def test_the_first_reset_starts_all_whatever_the_mask():
    obs, _ = GymVectorEnv(cartpole(), 2).reset(seed=SEED, options={"reset_mask": np.array([True, False])})
    close(obs, [pure()[0](SEED, 0).obs, pure()[0](SEED + 1, 0).obs])


def test_a_reset_within_an_episode_counts_as_a_start():
    envs = vector(SAME_STEP)
    envs.reset(seed=SEED)
    envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    for _ in range(LIMIT):
        obs = envs.step(np.zeros((B, 1)))[0]
    close(obs, [pure()[0](SEED + row, 2 if row == 0 else 1).obs for row in range(B)])


def test_a_new_seed_discards_the_start_that_was_drawn_ahead():
    envs = vector()
    envs.reset(seed=SEED)
    envs.reset(options={"reset_mask": np.array([True, False, False, False])})  # draws one for each
    obs, _ = envs.reset(seed=[None, 30, None, None], options={"reset_mask": np.array([False, True, True, False])})
    close(obs[1:3], [pure()[0](30, 0).obs, pure()[0](SEED + 2, 1).obs])


def test_without_autoreset_an_ended_env_waits_for_its_reset():
    envs = vector(DISABLED)
    envs.reset(seed=SEED)
    envs.reset(options={"reset_mask": np.array([False, True, False, False])})
    for _ in range(LIMIT):
        envs.step(np.zeros((B, 1)))
    with pytest.raises(ResetNeeded, match=r"envs \[0, 1, 2, 3\] have ended: reset"):
        envs.step(np.zeros((B, 1)))
    envs.reset(options={"reset_mask": np.array([True, True, False, True])})
    with pytest.raises(ResetNeeded, match=r"envs \[2\] have ended"):
        envs.step(np.zeros((B, 1)))
    envs.reset(options={"reset_mask": np.array([False, False, True, False])})
    assert not envs.step(np.zeros((B, 1)))[3].any()


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=lambda mode: mode.value)
def test_a_quarantined_world_says_so(mode: AutoresetMode):
    envs = GymVectorEnv(walk(breaks_at=3, fragile=True), 2, mode)
    last, _ = envs.reset(seed=0)
    for count in (1, 2, 3):
        obs, reward, terminated, _, infos = envs.step(np.zeros((2, 1)))
        healthy = count < 3
        np.testing.assert_array_equal(terminated, not healthy)
        final = infos if healthy or mode is NEXT_STEP else infos["final_info"]
        np.testing.assert_array_equal(final["valid"], healthy)
        assert final["_valid"].all()
        assert np.all((reward != 0.0) == healthy)
        last, before = (obs if mode is NEXT_STEP or healthy else np.stack(infos["final_obs"])), last
    np.testing.assert_array_equal(last, before)  # the last that made sense
    assert first_step(walk(breaks_at=1, fragile=True))[-1]["valid"] is False


def first_step(env: Any) -> tuple[Any, ...]:
    """(start, obs, reward, terminated, truncated, info) of an env on its own."""
    single = GymEnv(env)
    start, _ = single.reset(seed=SEED)
    return start, *single.step(single.action_space.sample())


def test_observations_with_parts_become_dicts():
    envs = GymVectorEnv(Hidden(), 3, SAME_STEP)  # episodes of one step
    assert {name: part.shape for name, part in envs.single_observation_space.items()} == {
        "policy": (2,),
        "critic": (1,),
    }
    obs, _ = envs.reset(seed=0)
    assert obs in envs.observation_space
    after, _, terminated, _, infos = envs.step(np.zeros((3, 1)))
    assert terminated.all()
    assert after in envs.observation_space
    for row in range(3):
        assert infos["final_obs"][row] in envs.single_observation_space
        np.testing.assert_array_equal(infos["final_obs"][row]["critic"], obs["critic"][row])
    assert first_step(Hidden())[1] in envs.single_observation_space


def test_a_single_env_gives_plain_numbers():
    expected = pure()[0](SEED, 0)
    start, _, *numbers, info = first_step(cartpole())
    close(start, expected.obs)
    assert [type(value) for value in numbers] == [float, bool, bool]
    assert info["valid"] is True
    assert info["reward_terms"].keys() == set(expected.metrics._fields)
    assert {type(term) for term in info["reward_terms"].values()} == {float}


def arrays(tree: Any) -> list[np.ndarray]:
    """Those of numbers: of `final_obs`, its rows."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, np.ndarray)]
    return [one for leaf in leaves for one in (leaf if leaf.dtype == object else [leaf]) if one is not None]


@every_mode
def test_what_is_returned_belongs_to_the_caller(mode: AutoresetMode):
    envs = vector(mode)

    def play(spoils: bool) -> list[np.ndarray]:
        kept = [envs.reset(seed=SEED)]
        for _ in range(LIMIT):
            kept.append(envs.step(np.zeros((B, 1))))
        found = [one.copy() for one in arrays(kept)]
        for one in arrays(kept) if spoils else []:
            assert one.flags.writeable
            one[:] = np.ones((), one.dtype)
        return found + [one.copy() for one in arrays(envs.reset(options={"reset_mask": np.ones(B, bool)}))]

    for left, right in zip(play(True), play(False), strict=True):
        np.testing.assert_array_equal(left, right)


def test_steps_share_no_memory():
    envs = vector(SAME_STEP)
    steps = [arrays(envs.reset(seed=SEED)), *(arrays(envs.step(np.zeros((B, 1)))) for _ in range(LIMIT))]
    every = [one for step in steps for one in step]
    for index, one in enumerate(every):
        assert not any(np.shares_memory(one, other) for other in every[:index])


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, np.ndarray.tolist])
def test_actions_may_be_numpys_jaxs_or_lists(kind: Any):
    envs, now = vector(), actions()[0]
    envs.reset(seed=SEED)
    close(envs.step(kind(now))[0], [by_hand(NEXT_STEP, row)[0].after.obs for row in range(B)])


@every_mode
def test_gymnasiums_statistics_are_of_whole_episodes(mode: AutoresetMode):
    envs, found, total, length = RecordEpisodeStatistics(vector(mode)), 0, np.zeros(B), np.zeros(B, int)
    envs.reset(seed=SEED)
    for when, now in enumerate(actions()):
        after, _, acted = expected(mode, when)
        total, length = total + np.asarray(after.reward), length + acted
        ended = np.asarray(after.done)
        infos = envs.step(now)[4]
        assert ("episode" in infos) == ended.any()
        if ended.any():
            np.testing.assert_array_equal(infos["_episode"], ended)
            np.testing.assert_allclose(infos["episode"]["r"], np.where(ended, total, 0.0), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(infos["episode"]["l"], np.where(ended, length, 0))
            found += ended.sum()
            total, length = np.where(ended, 0.0, total), np.where(ended, 0, length)
            if mode is DISABLED:
                envs.reset(options={"reset_mask": ended})
    assert envs.episode_count == found >= 2 * B


def test_ids_are_words_in_capitals():
    assert gym_id("cartpole") == "mjxgym/Cartpole-v0"
    assert gym_id("walk_far") == "mjxgym/WalkFar-v0"
    assert {gym_id(task) for task in mjxgym.list_envs()} <= gymnasium.registry.keys()


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda _: GymVectorEnv(cartpole(), 0), ValueError, "num_envs is 0; it must be at least 1"),
        (lambda _: GymVectorEnv(cartpole(), 2, "sometimes"), ValueError, "'sometimes' is not a valid AutoresetMode"),
        (lambda envs: envs.reset(seed=[1, 2]), ValueError, "seed has 2 items; it must have one for each of the 4 envs"),
        (lambda envs: envs.reset(seed=2**32 - 3), ValueError, r"`seed \+ i`, must lie in 0 .. 2\*\*32 - 1"),
        (lambda envs: envs.reset(seed=[1, 2, 3, -1]), ValueError, r"seed is \[1, 2, 3, -1\]"),
        (lambda envs: envs.step(np.zeros((3, 1))), ValueError, r"shape \(3, 1\); it must be \(4, 1\)"),
        (lambda envs: envs.step(np.zeros(4)), ValueError, r"shape \(4,\); it must be \(4, 1\)"),
        (lambda envs: envs.reset(options={"reset_mask": np.ones(3, bool)}), ValueError, r"it must be \[4\] bool"),
        (lambda envs: envs.reset(options={"reset_mask": np.ones(4, int)}), ValueError, r"it must be \[4\] bool"),
        (lambda envs: envs.reset(options={"reset_mask": np.zeros(4, bool)}), ValueError, "not all False"),
        (lambda _: GymVectorEnv(cartpole(), 2).step(np.zeros((2, 1))), ResetNeeded, "called before reset"),
        (lambda _: GymEnv(cartpole()).step(np.zeros(1)), ResetNeeded, "called before reset"),
        (lambda _: gymnasium.make("mjxgym/Ant-v0", engine="c", episode_lenth=5), ValueError, "episode_length"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(call: Any, error: type[Exception], part: str):
    envs = vector()
    envs.reset(seed=SEED)
    with pytest.raises(error, match=part):
        call(envs)
    close(envs.step(actions()[0])[0], [by_hand(NEXT_STEP, row)[0].after.obs for row in range(B)])


def test_a_closed_env_needs_a_reset():
    envs = GymVectorEnv(cartpole(), 2)
    envs.reset(seed=SEED)
    envs.close()
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros((2, 1)))

"""mjxgym's tasks in your own code: somebody else's learner, a rollout, a derivative. Cells for an editor or a notebook.

    pip install -e . evosax
    python examples/library_use.py

A task is two pure functions, `env.reset(key) -> State` and `env.step(state, action) -> State`; `mjxgym/env.py` says
what a `State` holds. Axes: P candidates, B worlds, T control steps.
"""

# %%
import jax
import jax.numpy as jnp
from evosax.algorithms import CMA_ES
from flax import linen as nn

import mjxgym

print(mjxgym.list_envs())

# %% [markdown]
# ## A learner from elsewhere
# CMA-ES, from evosax, only wants to know what each candidate is worth: here, its mean return over some episodes.

# %%
env = mjxgym.make("cartpole", episode_length=200)  # any field of the task's Config; 200 control steps are 3.3 s
policy = nn.Dense(env.action_size)


def episode_return(params, key):
    """The sum of rewards up to the end of one episode."""

    def step(carry, _):
        state, total, going = carry
        state = env.step(state, policy.apply(params, state.obs))
        return (state, total + going * state.reward, going & ~state.done), None

    start = (env.reset(key), 0.0, jnp.array(True))
    (_, total, _), _ = jax.lax.scan(step, start, None, env.episode_length)
    return total


def mean_return(params, keys):
    """Over one episode for each of `keys` [B]."""
    return jnp.mean(jax.vmap(episode_return, in_axes=(None, 0))(params, keys))


untrained = policy.init(jax.random.key(0), env.reset(jax.random.key(0)).obs)
learner = CMA_ES(population_size=32, solution=untrained)
settings = learner.default_params


@jax.jit
def generation(learned, key):
    """32 candidates, 4 episodes each: the same starts for all of them."""
    ask_key, reset_key, tell_key = jax.random.split(key, 3)
    candidates, learned = learner.ask(ask_key, learned, settings)
    returns = jax.vmap(mean_return, in_axes=(0, None))(candidates, jax.random.split(reset_key, 4))  # [P]
    learned, _ = learner.tell(tell_key, candidates, -returns, learned, settings)  # evosax minimises
    return learned, jnp.mean(returns)


learned = learner.init(jax.random.key(1), untrained, settings)
for number, key in enumerate(jax.random.split(jax.random.key(2), 30)):
    learned, population_return = generation(learned, key)
    if number % 5 == 4:
        print(f"generation {number + 1}: mean return {population_return:.0f} of at most {env.episode_length}")

keys = jax.random.split(jax.random.key(3), 64)
before, after = (jax.jit(mean_return)(params, keys) for params in (untrained, learner.get_mean(learned)))
print(f"return over 64 episodes: untrained {before:.0f}, trained {after:.0f}")

# %% [markdown]
# ## A rollout
# `step` never resets. `reset_done` does, in plain sight: where an episode has ended, the whole state is a fresh one's.

# %%
num_envs, num_steps = 16, 300
vec = mjxgym.vectorise(env)  # jax.vmap of both functions


@jax.jit
def rollout(key):
    """Random actions; reward, terminated and truncated [T, B]."""
    reset_key, action_key = jax.random.split(key)

    def step(states, keys):
        action = jax.random.uniform(keys[0], (num_envs, env.action_size), minval=-0.1, maxval=0.1)
        after = vec.step(states, action)  # what is learned from, with the true last observation
        fresh = vec.reset(jax.random.split(keys[1], num_envs))
        return mjxgym.reset_done(after, fresh), (after.reward, after.terminated, after.truncated)

    states = vec.reset(jax.random.split(reset_key, num_envs))
    return jax.lax.scan(step, states, jax.random.split(action_key, (num_steps, 2)))[1]


reward, terminated, truncated = rollout(jax.random.key(4))
print(f"{num_envs} worlds, {num_steps} steps: {terminated.sum()} falls, {truncated.sum()} at the time limit")

# %% [markdown]
# ## A derivative
# Engine `jax` has derivatives: in forward mode always, in reverse mode where the model's constraint solver has one
# iteration, or no constraints to solve. Other engines, and reverse mode elsewhere, say so; nothing is silently zero.

# %%
smooth = mjxgym.make("cartpole", engine="jax")
start = jax.jit(smooth.reset)(jax.random.key(5))


def cost(action):
    """Of one control step: the squared speed of the pole after it, rad^2/s^2."""
    return jnp.square(smooth.step(start, action).obs[3])


action = jnp.array([0.1])
slope = jax.jit(jax.jacfwd(cost))(action)[0]
shifted = jax.jit(jax.vmap(cost))(action + jnp.array([[0.01], [-0.01]]))
differences = (shifted[0] - shifted[1]) / 0.02
print(f"d cost / d action: {slope:.4f} by jax.jacfwd, {differences:.4f} by finite differences")

# %%
refusals = []
for other in (smooth, env):  # reverse mode over the cart-pole's 4 iterations; an engine without derivatives

    def next_reward(action, other=other):
        return other.step(other.reset(jax.random.key(5)), action).reward

    try:
        jax.jit(jax.grad(next_reward))(action)
    except NotImplementedError as error:
        refusals.append(str(error))
        print(error)

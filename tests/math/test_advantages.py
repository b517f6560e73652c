import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.math.advantages import generalized_advantages

GAMMA, LAMBDA = 0.97, 0.9
ARGUMENTS = ("reward", "value", "last_value", "bootstrap_value", "terminated", "truncated", "valid")
OVER_TRAJECTORIES = jax.jit(jax.vmap(generalized_advantages, in_axes=(0,) * 7 + (None, None)))


def from_the_definition(reward, value, last_value, bootstrap_value, terminated, truncated, valid):
    """``A_t = Σ_k (γλ)^k δ_{t+k}`` up to the end of the episode, summed anew for every t: O(T²)."""
    steps = len(reward)
    advantage = np.zeros(steps)
    for t in range(steps):
        for k in range(t, steps):
            if not valid[k]:
                break
            after = value[k + 1] if k + 1 < steps else last_value
            if truncated[k]:
                after = bootstrap_value[k]
            if terminated[k]:
                after = 0.0
            advantage[t] += (GAMMA * LAMBDA) ** (k - t) * (reward[k] + GAMMA * after - value[k])
            if terminated[k] or truncated[k]:
                break
    return advantage


def trajectories(steps, count, padding):
    """Random arguments. With ``padding``, an invalid step of garbage follows each end (next-step autoreset)."""
    rng = np.random.default_rng(0)
    reward, value, at_random = rng.normal(size=(3, count, steps))
    terminated, truncated = rng.random((2, count, steps)) < 0.15
    last_value, valid = rng.normal(size=count), np.ones((count, steps), bool)
    for t in range(1, steps if padding else 0):
        valid[:, t] = ~((terminated | truncated)[:, t - 1] & valid[:, t - 1])
        reward[~valid[:, t], t] = 1e6
    after = np.append(value[:, 1:], last_value[:, None], axis=1)
    bootstrap_value = np.where(truncated, after if padding else at_random, 0.0)
    return dict(zip(ARGUMENTS, (reward, value, last_value, bootstrap_value, terminated, truncated, valid), strict=True))


def worst_error(rows, **mutated):
    given = [jnp.asarray(x, jnp.float32 if x.dtype == float else bool) for x in {**rows, **mutated}.values()]
    got = OVER_TRAJECTORIES(*given, jnp.float32(GAMMA), jnp.float32(LAMBDA))
    expected = [from_the_definition(*(x[n] for x in rows.values())) for n in range(len(got))]
    return np.abs(np.asarray(got) - np.stack(expected)).max()


@pytest.mark.parametrize("padding", [False, True])
def test_advantages_equal_the_sum_over_the_rest_of_the_episode(padding):
    assert worst_error(trajectories(1, 5, padding)) < 1e-5
    rows = trajectories(40, 20, padding)
    assert worst_error(rows) < 1e-5
    ends = {name: rows[name] for name in ("terminated", "truncated")}
    mutations = {
        "truncation as termination": {"terminated": rows["terminated"] | rows["truncated"]},
        "done shifted by one": {name: np.roll(x, 1, 1) for name, x in ends.items()},
        "no bootstrap": {"bootstrap_value": np.zeros_like(rows["bootstrap_value"])},
        "ends forgotten": {name: np.zeros_like(x) for name, x in ends.items()},
    }
    if padding:
        mutations["padding as data"] = {"valid": np.ones_like(rows["valid"])}
    for name, mutation in mutations.items():
        assert worst_error(rows, **mutation) > 0.01, name


MIDDLE = (False, True, False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1.0625, 2.25, 3.0]),  # δ = 0.5, 1.5, 3.0 and γλ = 0.25
        ({"truncated": MIDDLE, "bootstrap_value": (0.0, 4.0, 0.0)}, [1.25, 3.0, 3.0]),
        ({"terminated": MIDDLE}, [0.75, 1.0, 3.0]),
        ({"terminated": MIDDLE, "truncated": MIDDLE, "bootstrap_value": (0.0, 4.0, 0.0)}, [0.75, 1.0, 3.0]),
        ({"truncated": (True, False, False), "bootstrap_value": (1.0, 0.0, 0.0), "valid": (True, False, True)}, [0.5, 0.0, 3.0]),
    ],
    ids=["unbroken", "truncated", "terminated", "both", "padding"],
)
def test_advantages_by_hand(given, expected):
    never, defaults = (False,) * 3, {"reward": (1.0, 2.0, 3.0), "value": (1.0,) * 3, "last_value": 2.0}
    defaults |= {"bootstrap_value": (0.0,) * 3, "terminated": never, "truncated": never, "valid": (True,) * 3}
    arguments = [jnp.array(x) for x in {**defaults, **given, "gamma": 0.5, "gae_lambda": 0.5}.values()]
    assert jax.jit(generalized_advantages)(*arguments).tolist() == expected

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.math.advantages import generalized_advantages

GAMMA, LAMBDA = 0.97, 0.9


def from_the_definition(reward, value, last_value, bootstrap_value, terminated, truncated, valid, gamma, lam):
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
            advantage[t] += (gamma * lam) ** (k - t) * (reward[k] + gamma * after - value[k])
            if terminated[k] or truncated[k]:
                break
    return advantage


def random_rows(seed, steps, padding):
    """One trajectory. With ``padding``, an invalid step of garbage follows each end (next-step autoreset)."""
    rng = np.random.default_rng(seed)
    rows = {
        "reward": rng.normal(size=steps),
        "value": rng.normal(size=steps),
        "last_value": rng.normal(),
        "terminated": rng.random(steps) < 0.15,
        "truncated": rng.random(steps) < 0.15,
        "valid": np.ones(steps, bool),
    }
    if padding:
        for t in range(1, steps):
            ended = (rows["terminated"] | rows["truncated"])[t - 1] and rows["valid"][t - 1]
            rows["valid"][t] = not ended
            if ended:
                rows["reward"][t] = 1e6
    values_after = np.append(rows["value"][1:], rows["last_value"])
    at_random = rng.normal(size=steps)
    rows["bootstrap_value"] = np.where(rows["truncated"], values_after if padding else at_random, 0.0)
    return rows


ARGUMENTS = ("reward", "value", "last_value", "bootstrap_value", "terminated", "truncated", "valid")


OVER_TRAJECTORIES = jax.jit(jax.vmap(generalized_advantages, in_axes=(0,) * 7 + (None, None)))


def worst_error(rows, **mutated):
    given = {**rows, **mutated}
    got = OVER_TRAJECTORIES(
        *(jnp.asarray(given[name], jnp.float32 if given[name].dtype == float else bool) for name in ARGUMENTS),
        jnp.float32(GAMMA),
        jnp.float32(LAMBDA),
    )
    expected = [from_the_definition(*(rows[name][n] for name in ARGUMENTS), GAMMA, LAMBDA) for n in range(len(got))]
    return np.abs(np.asarray(got) - np.stack(expected)).max()


def many(steps, count, padding):
    each = [random_rows(seed, steps, padding) for seed in range(count)]
    return {name: np.stack([np.asarray(rows[name]) for rows in each]) for name in ARGUMENTS}


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize(("steps", "count"), [(1, 5), (40, 20)])
def test_advantages_equal_the_sum_over_the_rest_of_the_episode(steps, count, padding):
    assert worst_error(many(steps, count, padding)) < 1e-5


@pytest.mark.parametrize("padding", [False, True])
def test_reference_detects_wrong_episode_ends(padding):
    rows = many(40, 20, padding)
    mutations = {
        "truncation as termination": {"terminated": rows["terminated"] | rows["truncated"]},
        "done shifted by one": {
            "terminated": np.roll(rows["terminated"], 1, 1),
            "truncated": np.roll(rows["truncated"], 1, 1),
        },
        "no bootstrap": {"bootstrap_value": np.zeros_like(rows["bootstrap_value"])},
        "ends forgotten": {
            "terminated": np.zeros_like(rows["terminated"]),
            "truncated": np.zeros_like(rows["truncated"]),
        },
    }
    if padding:
        mutations["padding as data"] = {"valid": np.ones_like(rows["valid"])}
    for name, mutation in mutations.items():
        assert worst_error(rows, **mutation) > 0.01, name


def by_hand(terminated=(False,) * 3, truncated=(False,) * 3, bootstrap_value=(0.0,) * 3, valid=(True,) * 3):
    return jax.jit(generalized_advantages)(
        jnp.array([1.0, 2.0, 3.0]), jnp.ones(3), jnp.array(2.0), jnp.array(bootstrap_value), jnp.array(terminated),
        jnp.array(truncated), jnp.array(valid), jnp.array(0.5), jnp.array(0.5),
    ).tolist()  # fmt: skip


MIDDLE = (False, True, False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1.0625, 2.25, 3.0]),  # δ = 0.5, 1.5, 3.0 and γλ = 0.25
        ({"truncated": MIDDLE, "bootstrap_value": (0.0, 4.0, 0.0)}, [1.25, 3.0, 3.0]),
        ({"terminated": MIDDLE}, [0.75, 1.0, 3.0]),
        ({"terminated": MIDDLE, "truncated": MIDDLE, "bootstrap_value": (0.0, 4.0, 0.0)}, [0.75, 1.0, 3.0]),
        (
            {"truncated": (True, False, False), "bootstrap_value": (1.0, 0.0, 0.0), "valid": (True, False, True)},
            [0.5, 0.0, 3.0],
        ),
    ],
    ids=["unbroken", "truncated", "terminated", "both", "padding"],
)
def test_advantages_by_hand(given, expected):
    assert by_hand(**given) == expected

import jax
import jax.numpy as jnp
import pytest

from proximo.config import PPOConfig
from proximo.config.coercion import ScheduleText
from proximo.ppo import make_hyperparameters


def schedule(text):
    return make_hyperparameters(PPOConfig(learning_rate=ScheduleText(text))).learning_rate


@pytest.mark.parametrize(
    ("text", "progress", "expected"),
    [
        ("3e-4", 1.0, 3e-4),
        ("linear(1e-3, 0)", -0.5, 1e-3),
        ("linear(1e-3, 0)", 0.25, 7.5e-4),
        ("linear(1e-3, 0)", 1.5, 0.0),
        ("linear(1e-3, 2e-3)", 0.5, 1.5e-3),
        ("linear(1, 0, 0.5)", 0.25, 0.5),
        ("linear(1, 0, 0.5)", 0.75, 0.0),
        ("polynomial(1, 0, 2)", 0.5, 0.25),
        ("polynomial(1e-3, 1e-5, 2, 0.5)", 0.25, 2.575e-4),
        ("polynomial(1, 0, 0.5)", 0.75, 0.5),
        ("exponential(1e-5, 1e-1)", 0.25, 1e-4),
        ("exponential(1e-2, 1e-4, 0.5)", 0.25, 1e-3),
        ("exponential(1e-2, 1e-4, 0.5)", 0.75, 1e-4),
    ],
)
def test_schedule_by_hand(text, progress, expected):
    assert float(schedule(text)(jnp.float32(progress))) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_schedules_of_every_form_can_be_vmapped_over_together():
    texts = ["2e-3", "linear(1e-3, 0)", "polynomial(1e-3, 0, 2)", "exponential(1e-4, 1e-2)"]
    together = jax.tree.map(lambda *x: jnp.stack(x), *map(schedule, texts))
    found = jax.vmap(lambda schedule: schedule(jnp.float32(0.5)))(together)
    assert found.tolist() == pytest.approx([2e-3, 5e-4, 2.5e-4, 1e-3], rel=1e-5)

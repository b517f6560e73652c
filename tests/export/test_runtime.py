"""``ExportedPolicy`` by itself: its arguments."""

import numpy as np
import onnx
import pytest

from proximo.export.runtime import ExportedPolicy, PolicyError
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from exports import exported, made

N = 3
START = [True] * N
MASKED = Dict((("action_mask", MultiBinary((6,))), ("observation", Box((2,)))))


@pytest.fixture(scope="module")
def policy():
    return exported(made(toys.PARTS, Discrete(3), memory="gru", observe_reward=True), deterministic=False)


@pytest.fixture(scope="module")
def masked():
    return exported(made(MASKED, MultiDiscrete((3, 3))))


def observation(**parts):
    body = (np.zeros((N, 3)), np.ones((N, 3), int), np.ones((N, 2, 2), bool))
    return {"camera": np.zeros((N, 2, 36, 37), np.uint8), "body": body, "level": np.full(N, 3), **parts}


def test_memory_is_passed_on_and_reset(policy):
    assert policy.has_memory
    action, memory = policy.predict(observation(), policy.init_memory(N), START)
    assert (action.shape, action.dtype) == ((N,), np.int32)
    _, again = policy.predict(observation(), memory, reward=np.ones(N))
    assert (again["memory.0"] != memory["memory.0"]).all()
    _, reset = policy.predict(observation(), memory, [True, False, True], reward=0.0)
    np.testing.assert_allclose(reset["memory.0"][::2], memory["memory.0"][::2], rtol=1e-6)
    assert (reset["memory.0"][1] != memory["memory.0"][1]).any()
    with pytest.raises(PolicyError, match=r"^reward was not given, but this policy observes it: pass the last reward\.$"):
        policy.predict(observation(), memory)


def test_memory_kept_across_episodes_needs_the_last_reward():
    policy = exported(made(memory="gru", observe_reward=True, reset_memory=False))
    x = np.zeros((N, 3), np.float32)
    _, memory = policy.predict(x, policy.init_memory(N), START)
    unpaid, paid = (policy.predict(x, memory, START, reward=np.full(N, reward))[0] for reward in (0.0, 1.0))
    assert np.abs(paid - unpaid).max() > 1e-2
    for given, lacking in ((memory, "reward"), (None, "memory")):
        with pytest.raises(PolicyError, match=f"^{lacking} was not given"):
            policy.predict(x, given, START)


@pytest.mark.parametrize("given", [np.ones(2), {"observation": np.ones(2)}, {"observation": [1, 1]}])
@pytest.mark.parametrize("mask", [[0, 0, 1, 1, 0, 0], ([0, 0, 1], [1, 0, 0]), np.eye(3)[[2, 0]]], ids=["flat", "tuple", "axis"])
def test_an_action_mask_has_several_forms(masked, given, mask):
    assert masked.predict(given, action_mask=mask)[0].tolist() == [2, 0]
    assert masked.predict({"observation": np.ones(2), "action_mask": np.ravel(mask)})[0].tolist() == [2, 0]


def test_stacked_action_masks_are_of_stacked_observations(masked):
    masks = np.stack([np.eye(3)[[2, 0]], np.eye(3)[[1, 1]]])
    assert not masked.has_memory
    for given in (masks, (masks[:, 0], masks[:, 1])):
        assert masked.predict(np.ones((2, 2)), action_mask=given)[0].tolist() == [[2, 0], [1, 1]]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_actions_have_the_type_of_the_action_space(dtype):
    policy = made(None, Box((2,), -1.0, 1.0, dtype))
    action, memory = exported(policy).predict(np.ones(3))
    assert (action.dtype, memory) == (dtype, {})
    assert action.dtype == policy.predict(np.ones(3))[0].dtype


HALVES = observation(camera=np.full((N, 2, 36, 37), 0.5))
INFINITE = observation(body=(np.full((N, 3), np.inf), *observation()["body"][1:]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"episode_start": [True, False, True]}, "memory was not given, but this policy has a memory: pass policy.init_memory"),
        ({"episode_start": None}, "memory was not given"),
        (
            {"observation": {"level": np.full(N, 3)}},
            "The observation lacks observation.body.0: expected all that the environment",
        ),
        ({"observation": HALVES}, "observation.camera has 0.5: expected a finite uint8."),
        ({"observation": observation(level=np.array([3, np.nan, 3]))}, "observation.level has nan: expected a finite int32"),
        ({"observation": INFINITE}, "observation.body.0 has inf: expected a finite float32"),
        ({"action_mask": [1, 1]}, "action_mask was given, but this policy was trained without action masks: remove it."),
        ({"key": 0}, "key = 0 with deterministic = True: pass a key to sample, and only then."),
        ({"deterministic": False}, "key = None with deterministic = False: pass a key to sample, and only then."),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_wrong_arguments_raise_one_sentence(policy, given, sentence):
    with pytest.raises(PolicyError) as error:
        policy.predict(**{"observation": observation(), "episode_start": START, **given})
    assert str(error.value).startswith(sentence)


def test_masked_policy_needs_a_mask_and_cannot_sample(masked):
    with pytest.raises(PolicyError, match=r"^The observation lacks action_mask"):
        masked.predict(np.ones(2))
    with pytest.raises(PolicyError, match=r"^This policy cannot sample: export it with --stochastic"):
        masked.predict(np.ones(2), action_mask=np.ones(6), deterministic=False, key=0)


def test_another_model_is_refused():
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    sentence = r"^The model is not a policy of proximo: expected a policy\.onnx that `proximo export`"
    with pytest.raises(PolicyError, match=sentence):
        ExportedPolicy(model.SerializeToString())

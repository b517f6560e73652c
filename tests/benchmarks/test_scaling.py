"""``benchmarks/devices.py`` and ``scaling.py``: what an update communicates, and the prediction from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import scaling

PROGRAM = """HloModule jit_update, entry_computation_layout={(f32[3]{0})->f32[3]{0}}

%sum (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}

%body (carry: (s32[], f32[3])) -> (s32[], f32[3]) {
  %both = (f32[3,2]{1,0}, f32[], /*index=2*/s32[]) all-reduce(%x, %y, /*index=2*/%z), channel_id=1, to_apply=%sum
  ROOT %next = (s32[], f32[3]{0}) tuple(%i, %x)
}

%quiet (x: f32[]) -> f32[] {
  ROOT %y = f32[] negate(%x)
}

%epoch (carry: (s32[], f32[3])) -> (s32[], f32[3]) {
  ROOT %inner = (s32[], f32[3]{0}) while(%carry), condition=%more, body=%body, backend_config={"known_trip_count":{"n":"4"}}
}

%loud (x: f32[]) -> f32[] {
  ROOT %flag = pred[] all-reduce(%x), channel_id=1, to_apply=%sum
}

ENTRY %main (x: f32[3]) -> f32[3] {
  %maybe = f32[] conditional(%i, %x, %x), branch_computations={%quiet, %loud}
  %called = f32[] call(%x), to_apply=%quiet
  %endless = (s32[], f32[]) while(%carry), condition=%more, body=%quiet
  ROOT %outer = (s32[], f32[3]{0}) while(%carry), condition=%more, body=%epoch, backend_config={"known_trip_count":{"n":"3"}}
}
"""


def test_all_reduces_are_counted_with_the_iterations_of_their_loops_and_other_operations_are_refused():
    assert scaling.all_reduces(PROGRAM) == [(1, 1), (12, 32)]
    with pytest.raises(ValueError, match="unknown number of iterations"):
        scaling.all_reduces(PROGRAM.replace('"known_trip_count":{"n":"3"}', ""))
    with pytest.raises(ValueError, match="all-gather"):
        scaling.all_reduces(PROGRAM.replace("pred[] all-reduce", "pred[] all-gather"))


@pytest.mark.slow  # test_devices.py counts what the program says, without a process
def test_an_update_communicates_its_gradients_and_five_scalars_a_step():
    """The formula of docs/scaling.md."""
    program = Path(scaling.__file__).with_name("devices.py")
    command = [sys.executable, str(program), "bytes", "--cases", "mlp", "--json"]
    done = subprocess.run(command, env={**os.environ, "JAX_NUM_CPU_DEVICES": "2", "NPROC": "4"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)["mlp"]
    gradient_steps = 4 * 4
    assert found["parameters"] == 2 * (4 * 64 + 64 + 64 * 64 + 64) + (64 * 2 + 2) + (64 + 1)
    assert found["gradient_steps"] == gradient_steps
    assert found["step_scalars"] == 5
    assert found["other_numbers"] < 5 * gradient_steps + 50  # five sums for the advantages of a minibatch
    assert found["bytes"] == 4 * (gradient_steps * (found["parameters"] + 5) + found["other_numbers"])


def test_prediction_has_the_time_of_a_ring():
    link = scaling.Link(10.0, (1e9, 2.0))  # the second protocol only
    assert scaling.all_reduce_seconds(10**7, 4, link) == pytest.approx((8.4 + 6 * 2) * 1e-6 + 1.5 * 1e-3)
    assert scaling.communication_seconds([(5, 10**7), (1, 0)], 4, link) == pytest.approx(6 * 20.4e-6 + 5 * 1.5e-3)
    assert scaling.efficiency(0.010, 0.002, 0.01, 3) == pytest.approx(10 / 12.2)

"""What brax and MuJoCo Playground have in common."""

from proximo.envs.jax.physics import without_warp_notice


def test_only_the_notice_about_warp_is_dropped(capsys):
    with without_warp_notice():
        print("Failed to import warp: No module named 'warp'")
        print("Failed to import mujoco_warp: No module named 'warp'")
        print("Failed to import torch: No module named 'torch'")
    assert capsys.readouterr().out == "Failed to import torch: No module named 'torch'\n"

"""The mathematics of PPO: pure functions on arrays."""

"""The trained policy, and whole episodes that measure it."""

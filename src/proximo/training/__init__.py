"""Training: the loop, seeds, callbacks, interrupts; ``PPO`` and ``train``."""

"""Gymnasium environments: how they are made, and stepped into rollout buffers that the learner reads."""

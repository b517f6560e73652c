"""Gymnasium environments: how they are made, and stepped into a rollout buffer that the learner reads."""

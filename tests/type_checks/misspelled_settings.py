"""Pyright checks the names and values of settings. It reports an error here if a line with a mistake is accepted."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

import proximo

proximo.PPO("CartPole-v1", num_envs=16, learning_rate="linear(3e-4, 0)", hidden_sizes=(64, 64), memory="gru", seed=3)
proximo.PPO("CartPole-v1", num_env=16)  # pyright: ignore[reportCallIssue]
proximo.PPO("CartPole-v1", num_envs="many")  # pyright: ignore[reportArgumentType]
proximo.PPO("CartPole-v1", activation="tanhh")  # pyright: ignore[reportArgumentType]
proximo.PPO("CartPole-v1", keep_checkpoints=3)  # pyright: ignore[reportCallIssue]
proximo.train("CartPole-v1", total_steps=100_000, encoder=object(), keep_checkpoints=3)
proximo.train("CartPole-v1", total_step=100_000)  # pyright: ignore[reportCallIssue]
proximo.make_config("CartPole-v1", {"gamma": 0.9}, gae_lambda=0.9)
proximo.make_config("CartPole-v1", gama=0.9)  # pyright: ignore[reportCallIssue]
proximo.tune("CartPole-v1", trials=3, num_step=128)  # pyright: ignore[reportCallIssue]

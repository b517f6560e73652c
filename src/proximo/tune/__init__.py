"""Search for settings: Optuna over a declared space, many trials in one compiled program."""

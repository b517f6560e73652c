"""Settings: their schema, their sources (presets, files, flags), and the checks of their values."""

from proximo.config.coercion import text_of
from proximo.config.loading import (
    check_names,
    custom_settings,
    from_mapping,
    learner_code,
    may_replace,
    override,
    to_flat,
    to_mapping,
    unknown,
)
from proximo.config.schema import (
    BY_NAME,
    ENTRIES,
    GROUPS,
    GYMNASIUM_ONLY,
    LEAVES,
    MAX_SEED,
    WORKER_SETTINGS,
    Config,
    NetworkConfig,
    PPOConfig,
)

__all__ = [
    "BY_NAME", "ENTRIES", "GROUPS", "GYMNASIUM_ONLY", "LEAVES", "MAX_SEED", "WORKER_SETTINGS", "Config", "NetworkConfig", "PPOConfig", "check_names",
    "custom_settings", "from_mapping", "learner_code", "may_replace", "override", "text_of", "to_flat", "to_mapping", "unknown",
]  # fmt: skip

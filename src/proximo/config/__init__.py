"""Settings: their schema, their sources (presets, files, flags), and the checks of their values."""

from proximo.config.schema import (
    GROUPS,
    GYMNASIUM_ONLY,
    LEAVES,
    MAX_SEED,
    Config,
    EnvConfig,
    NetworkConfig,
    PPOConfig,
    RunConfig,
    custom_settings,
    from_mapping,
    leaves,
    may_replace,
    override,
    to_mapping,
    unknown,
)

__all__ = [
    "GROUPS",
    "GYMNASIUM_ONLY",
    "LEAVES",
    "MAX_SEED",
    "Config",
    "EnvConfig",
    "NetworkConfig",
    "PPOConfig",
    "RunConfig",
    "custom_settings",
    "from_mapping",
    "leaves",
    "may_replace",
    "override",
    "to_mapping",
    "unknown",
]

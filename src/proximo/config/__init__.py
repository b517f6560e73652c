"""Settings: their schema, their sources (presets, files, flags), and the checks of their values."""

from proximo.config.mapping import ENTRIES as ENTRIES
from proximo.config.mapping import GROUPS as GROUPS
from proximo.config.mapping import LEAVES as LEAVES
from proximo.config.mapping import check_names as check_names
from proximo.config.mapping import custom_settings as custom_settings
from proximo.config.mapping import from_mapping as from_mapping
from proximo.config.mapping import may_replace as may_replace
from proximo.config.mapping import override as override
from proximo.config.mapping import text_of as text_of
from proximo.config.mapping import to_mapping as to_mapping
from proximo.config.mapping import unknown as unknown
from proximo.config.schema import GYMNASIUM_ONLY as GYMNASIUM_ONLY
from proximo.config.schema import MAX_SEED as MAX_SEED
from proximo.config.schema import WORKER_SETTINGS as WORKER_SETTINGS
from proximo.config.schema import Config as Config
from proximo.config.schema import EnvConfig as EnvConfig
from proximo.config.schema import NetworkConfig as NetworkConfig
from proximo.config.schema import PPOConfig as PPOConfig
from proximo.config.schema import RunConfig as RunConfig

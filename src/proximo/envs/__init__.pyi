from proximo.envs.gymnasium.environment import GymnasiumEnvironment as GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing as Preprocessing
from proximo.envs.protocol import Environment as Environment
from proximo.envs.protocol import JaxEnvironment as JaxEnvironment
from proximo.envs.registry import listing as listing
from proximo.envs.registry import make_env as make_env

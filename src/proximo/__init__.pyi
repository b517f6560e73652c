from proximo import callbacks as callbacks
from proximo.collect import JaxCollector as JaxCollector
from proximo.collect import make_functions as make_functions
from proximo.collect import make_train as make_train
from proximo.config import Config as Config
from proximo.config.loading import make_config as make_config
from proximo.envs import JaxEnvironment as JaxEnvironment
from proximo.envs import make_env as make_env
from proximo.errors import CheckpointError as CheckpointError
from proximo.errors import ConfigError as ConfigError
from proximo.errors import EnvError as EnvError
from proximo.errors import ProximoError as ProximoError
from proximo.errors import RunDirectoryError as RunDirectoryError
from proximo.errors import TrainingError as TrainingError
from proximo.evaluation.evaluate import evaluate as evaluate
from proximo.evaluation.policy import Policy as Policy
from proximo.evaluation.policy import load_policy as load_policy
from proximo.networks import ActorCritic as ActorCritic
from proximo.ppo import Minibatch as Minibatch
from proximo.pretraining import pretrain as pretrain
from proximo.training.agent import PPO as PPO
from proximo.training.agent import load as load
from proximo.training.api import resume as resume
from proximo.training.api import train as train
from proximo.training.seed_run import Result as Result

__version__: str

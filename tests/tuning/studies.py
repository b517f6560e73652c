"""Small studies for the tests: seconds each, on a task where the best action is known."""

import numpy as np

from proximo.settings import make_config
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import Interrupts
from proximo.tuning.batch import StoppedError
from proximo.tuning.plan import StudyPlan, make_plan
from proximo.tuning.study import Study

SETTINGS = {
    "num_envs": 8, "num_steps": 16, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": 8, "towers": "shared",
    "total_steps": 1024, "eval_episodes": 64, "learning_rate": 0,
}  # fmt: skip
ENV = "toys:Forbidden"


def config(**settings):
    """Eight updates on a task of one step that pays 0 … 3, more for a later action; some are forbidden."""
    return make_config(ENV, {**SETTINGS, **settings}, preset=False)


def plan(tmp_path, space, base=None, fixed=(), **search) -> StudyPlan:
    """A study around ``config()``."""
    path = tmp_path / "space.yaml"
    path.write_text(space)
    search = {"together": 3, "trials": 6, "seeds": 1, "evaluations": 2, "finalists": 0, "pruner": "none", **search}
    return make_plan(base or config(), fixed, path, Reporter(), **search)


class Watching(Interrupts):
    """Counts the calls, and stops at one of them as Ctrl-C does."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.calls, self.stop_at = 0, stop_at

    def call(self, function, *arguments, **_):
        self.calls += 1
        if self.calls == self.stop_at:
            raise StoppedError
        return function(*arguments)


class Scripted:
    """Takes the place of ``Batch``: a return is a random number that the gamma of the trial and the seed determine."""

    full_seconds = 0.0

    def __init__(self, configs, seeds, width, interrupts):
        self.configs, self.seeds, self.width = configs, list(seeds), width
        self.live = set(range(len(configs)))

    def returns(self, place):
        gamma = self.configs[place].ppo.gamma
        return [float(np.random.default_rng([round(gamma * 10**6), seed]).normal()) for seed in self.seeds]

    def train(self, evaluations):
        for number in range(1, evaluations + 1):
            yield (number - 0.5) / evaluations, number, {}
            yield number / evaluations, number, {place: self.returns(place) for place in sorted(self.live)}
            if not self.live:
                return


class Recording(Reporter):
    """Keeps the warnings."""

    def __init__(self):
        self.warnings = []
        self.warned = self.warnings.append


def searched(folder, plan, stop_at=None, reporter=None, **options):
    """The study, searched until its end or until the call that is interrupted."""
    folder.mkdir(exist_ok=True)
    study = Study(folder, plan, Watching(stop_at), reporter or Reporter(), **options)
    try:
        study.search()
        study.final_round()
    except StoppedError:
        assert stop_at is not None
    return study

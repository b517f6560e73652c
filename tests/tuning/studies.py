"""Small studies for the tests: seconds each, on a task where the best action is known."""

from proximo.settings import make_config
from proximo.training.interrupts import Interrupts
from proximo.tuning.plan import StudyPlan
from proximo.tuning.planning import make_plan
from proximo.tuning.trial import StoppedError, Watch

SETTINGS = {
    "num_envs": 8, "num_steps": 16, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": 8, "towers": "shared",
    "total_steps": 1024, "eval_episodes": 64, "learning_rate": 0,
}  # fmt: skip
ENV = "toys:Forbidden"


def config(**settings):
    """Eight updates on a task of one step that pays 0 … 3, more for a later action, of which some are forbidden each time."""
    return make_config(ENV, {**SETTINGS, **settings}, preset=False)


def plan(tmp_path, space, base=None, **search) -> StudyPlan:
    """A study around ``config()``."""
    path = tmp_path / "space.yaml"
    path.write_text(space)
    search = {"together": 3, "trials": 6, "seeds": 1, "evaluations": 2, "finalists": 0, "pruner": "none", **search}
    return make_plan(base or config(), (), path, **search)


class Watching(Watch):
    """Counts the calls, and stops at one of them as Ctrl-C does."""

    def __init__(self, stop_at=None):
        super().__init__(Interrupts())
        self.calls, self.stop_at = 0, stop_at

    def call(self, function, *arguments, is_computing=lambda: True):
        self.calls += 1
        if self.calls == self.stop_at:
            raise StoppedError
        return function(*arguments)

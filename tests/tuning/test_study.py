"""A study: the base first, batches that share what is compiled, and nothing lost or repeated by an interruption."""

import math
import time

import pytest

from proximo.collect.environment import environment
from proximo.errors import ConfigError
from proximo.tuning import study as module
from proximo.tuning.plan import read_plan
from proximo.tuning.progress import Reporter
from proximo.tuning.record import best_of, finalists
from proximo.tuning.study import Study, shaping
from proximo.tuning.trial import StoppedError, TrialResult

from studies import Watching, config, plan

pytestmark = pytest.mark.slow  # the gate has its limit of time: run by hand

TRACED = "learning_rate: {low: 1e-6, high: 1e-1, log: true, zero: true}\ngamma: {low: 0.5, high: 0.99, one_minus: true}\n"
MIXED = TRACED + "num_epochs: [1, 2]\n"
WIDE = (
    TRACED
    + "target_kl: [0, 0.01]\nclip_value_eps: {low: 0.1, high: 0.3}\nent_coef: {low: 1e-3, high: 0.1, log: true, zero: true}\n"
)


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


def told(study):
    """What is known of every trial, without its seconds."""
    return [(t.number, t.state, t.settings, t.score, t.evaluations, t.final, t.test) for t in study.trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Seven trials in three batches, two of their settings compiled for, and a final round."""
    folder = tmp_path_factory.mktemp("study")
    p = plan(folder, MIXED, trials=7, finalists=2)
    return searched(folder / "s", p), p


def test_the_base_is_trial_0_with_its_own_settings(whole):
    study, p = whole
    first = study.trials[0]
    assert (first.number, first.state) == (0, "done")
    assert first.settings == {"learning_rate": 0, "gamma": 0.99, "num_epochs": 2}
    assert p.config(0, {"learning_rate": 1e-3}) == p.base


def test_all_trials_train_and_batches_share_their_static_settings(whole):
    study, _ = whole
    trials = study.trials
    assert [t.number for t in trials] == list(range(7))
    assert {t.state for t in trials} == {"done"}
    assert study.shaping == {"num_epochs"}
    for start in (0, 3, 6):
        batch = trials[start : start + 3]
        assert len({t.settings["num_epochs"] for t in batch}) == 1
        assert len({tuple(t.settings.values()) for t in batch}) == len(batch), "and nothing else"


def test_the_final_round_is_on_other_seeds_for_the_best(whole):
    study, p = whole
    trials = study.trials
    assert not set(p.trial_seeds) & set(p.final_seeds)
    assert len(p.final_seeds) == len(p.test_seeds) == p.seeds * p.together
    assert [len(t.test or []) for t in trials] == [3 if t.number == best_of(trials).number else 0 for t in trials]
    in_it = {t.number for t in trials if t.final}
    assert in_it == {t.number for t in finalists(trials, 2)}
    assert len(in_it) == 2
    assert 0 not in in_it, "the base learns nothing"
    assert all(len(t.final) == 3 for t in trials if t.final)
    assert best_of(trials).final_score == max(t.final_score for t in trials if t.final)


def test_possibly_best_base_enters_the_final_round(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Batch", Scripted)
    monkeypatch.setattr(Scripted, "order", -1)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, trials=6, finalists=2)).trials
    assert [t.number for t in trials if t.final] == [0, 1, 3]


def test_search_finds_settings_that_learn(whole):
    study, _ = whole
    trials = study.trials
    assert best_of(trials).score > trials[0].score + 1


@pytest.mark.parametrize("stop_at", [2, 7, 14, 22])
def test_resumed_study_equals_the_uninterrupted_one(whole, tmp_path, stop_at):
    study, p = whole
    broken = searched(tmp_path / "s", p, stop_at)
    states = [t.state for t in broken.trials]
    assert "running" in states or any(t.final for t in broken.trials)
    assert len(told(broken)) <= 7
    assert told(searched(tmp_path / "s", p)) == told(study)


def test_study_killed_while_sampling_resumes_to_the_same_result(whole, tmp_path, monkeypatch):
    study, p = whole
    asked = Study._ask

    def killed(self, number, begun, shared):
        trial = asked(self, number, begun, shared)
        if number == 4:
            raise KeyboardInterrupt
        return trial

    monkeypatch.setattr(Study, "_ask", killed)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "s", p)
    monkeypatch.undo()
    journal = tmp_path / "s" / "journal.log"
    journal.write_bytes(journal.read_bytes()[:-10])  # the write was torn too
    (tmp_path / "s" / "journal.log.lock").symlink_to("journal.log")
    assert told(searched(tmp_path / "s", p)) == told(study)


def test_another_seed_of_the_study_draws_other_settings(whole, tmp_path):
    from dataclasses import replace

    _, p = whole
    other = replace(p, base=replace(p.base, run=replace(p.base.run, seed=200)), trials=3, finalists=0)
    assert [t[2] for t in told(searched(tmp_path / "s", other))[1:]] != [t[2] for t in told(whole[0])[1:3]]


def test_resumed_study_may_have_more_trials(tmp_path):
    p = plan(tmp_path, TRACED, trials=2)
    searched(tmp_path / "s", p)
    from dataclasses import replace

    more = searched(tmp_path / "s", replace(p, trials=5)).trials
    assert [t.state for t in more] == ["done"] * 5


def test_base_outside_the_space_is_still_trial_0(tmp_path, monkeypatch):
    widths = []

    def scripted(configs, seeds, width, watch):
        widths.append((len(configs), width))
        return Scripted(configs)

    monkeypatch.setattr(module, "Batch", scripted)
    p = plan(tmp_path, "learning_rate: {low: 1e-3, high: 1e-1, log: true}\n", trials=4)
    study = searched(tmp_path / "s", p)
    trials = study.trials
    assert study.base_parameters is None
    assert [t.state for t in trials] == ["done"] * 4
    assert trials[0].settings == {"learning_rate": 0}
    assert trials[0].score is not None
    assert all(1e-3 <= t.settings["learning_rate"] <= 1e-1 for t in trials[1:])
    assert widths == [(1, 1), (3, 3)], "others may need another program"


def test_failed_trial_is_reported_and_the_study_continues(tmp_path):
    p = plan(tmp_path, "learning_rate: [0, 1e38]\ngamma: [0.9, 0.99]\n", trials=6)
    trials = searched(tmp_path / "s", p).trials
    broken = [t for t in trials if t.settings["learning_rate"] == 1e38]
    assert broken
    assert {t.state for t in broken} == {"failed"}
    assert all("NaN or infinity" in t.reason and t.score is None for t in broken)
    assert {t.state for t in trials if t not in broken} == {"done"}


def test_out_of_memory_fails_only_its_batch(tmp_path, monkeypatch):
    p = plan(tmp_path, TRACED, trials=6)

    class Trainer:
        width, full_seconds, asked = 3, 0.0, 0

        def train(self, evaluations, select):
            Trainer.asked += 1
            if Trainer.asked == 1:
                raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
            select(2, {i: TrialResult((1.0 + i,), final=True) for i in range(3)})

    monkeypatch.setattr(module, "Batch", lambda *_: Trainer())
    trials = searched(tmp_path / "s", p).trials
    assert [(t.state, t.reason) for t in trials[:3]] == [("failed", "there was not enough memory")] * 3
    assert [(t.state, t.score) for t in trials[3:]] == [("done", 1.0), ("done", 2.0), ("done", 3.0)]


def test_batch_that_cannot_be_made_fails_alone(tmp_path, monkeypatch):
    class Unmade(Scripted):
        def __init__(self, configs, *_):
            super().__init__(configs)
            if configs[0].ppo.num_epochs == 2:
                raise ConfigError("two epochs are too many")

    monkeypatch.setattr(module, "Batch", Unmade)
    trials = searched(
        tmp_path / "s", plan(tmp_path, TRACED + "num_epochs: [1, 2]\n", base=config(num_epochs=1), trials=12)
    ).trials
    failed = [t for t in trials if t.settings["num_epochs"] == 2]
    assert failed
    assert {(t.state, t.reason) for t in failed} == {("failed", "two epochs are too many")}
    assert {t.state for t in trials if t not in failed} == {"done"}


def test_unexpected_error_is_raised(tmp_path, monkeypatch):
    class Trainer:
        def train(self, evaluations, select):
            raise RuntimeError("a bug")

    monkeypatch.setattr(module, "Batch", lambda *_: Trainer())
    with pytest.raises(RuntimeError, match="a bug"):
        searched(tmp_path / "s", plan(tmp_path, TRACED))


class Scripted:
    """A trainer whose trials reach their number, or less; ``evaluations`` of them."""

    width, full_seconds, order = 3, 10.0, 1

    def __init__(self, configs, *_):
        self.count = len(configs)

    def train(self, evaluations, select):
        live = range(self.count)
        for number in range(1, evaluations + 1):
            live = select(number, {i: TrialResult((float(self.order * i),), final=number == evaluations) for i in live})


class Reporting(Scripted):
    """Can report how far it is, to its ``watch``."""

    def __init__(self, configs, seeds, width, watch):
        super().__init__(configs)
        self.watch = watch


@pytest.mark.parametrize(("pruner", "pruned"), [("median", True), ("halving", True), ("none", False)])
def test_bad_trials_are_pruned_but_never_the_base(tmp_path, monkeypatch, pruner, pruned):
    monkeypatch.setattr(module, "Batch", Scripted)
    monkeypatch.setattr(Scripted, "order", -1)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, trials=30, together=10, pruner=pruner, evaluations=4)).trials
    states = [t.state for t in trials]
    assert ("pruned" in states) == pruned
    assert trials[0].state == "done"
    assert all(len(t.evaluations) < 4 and t.score is not None for t in trials if t.state == "pruned")
    assert best_of(trials).score == 0


def test_search_deadline_reserves_time_for_the_final_round(tmp_path, monkeypatch):
    """A final round of the base and two others, and the winner's test, take 40 seconds of the scripted trainer."""
    monkeypatch.setattr(module, "Batch", Scripted)
    monkeypatch.setattr(Scripted, "order", -1)
    p = plan(tmp_path, TRACED, trials=30, finalists=2)
    (tmp_path / "s").mkdir()
    study = Study(tmp_path / "s", p, Watching(None), Reporter(), deadline=time.monotonic() + 41)
    study.search()
    assert study.search_deadline == pytest.approx(study.deadline - 40)
    study.final_round()
    assert study.search_deadline == study.deadline, "nothing is left to keep time for"
    assert sum(bool(t.final) for t in study.trials) == 3
    late = searched(tmp_path / "t", p, deadline=time.monotonic() - 1)
    assert [t.state for t in late.trials] == ["done", "pruned", "pruned"], "the base is always trained to its end"
    assert {t.reason for t in late.trials} == {"", "time was up"}
    assert not any(t.final for t in late.trials), "what cannot end in time is not begun"


class Warned(Reporter):
    """Keeps the warnings."""

    def __init__(self):
        self.found = []

    def warned(self, message):
        self.found.append(message)


def test_skipped_final_round_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Batch", Scripted)

    def said(name, seconds, **search):
        reporter = Warned()
        searched(tmp_path / name, plan(tmp_path, TRACED, **search), reporter=reporter, deadline=time.monotonic() + seconds)
        return reporter.found

    assert said("whole", 1000, trials=6, finalists=2) == said("unasked", 1000, trials=1) == []
    none = ["there was no final round: no trial besides the base was trained to its end."]
    assert said("base", 1000, trials=1, finalists=2) == said("base", -1, trials=6, finalists=2) == none
    late = "time ran out before the final round of"
    monkeypatch.setattr(Scripted, "full_seconds", 10**6)
    assert said("late", 1000, trials=1) == []
    assert said("s", math.inf, trials=3) == []
    [sentence] = said("s", 1000, trials=3, finalists=2)
    assert sentence.startswith(f"{late} trial ")
    assert sentence.endswith(f". Go on with: proximo tune --resume {tmp_path}/s")


def test_batch_that_would_miss_the_deadline_is_stopped_early(tmp_path, monkeypatch):
    shares = []

    class Slow(Reporting):
        """A hundred seconds of training, of which nobody waits for one."""

        full_seconds = 100.0

        def train(self, evaluations, select):
            for share in (0.01, 0.05, 0.5, 1.0):
                shares.append(share)
                self.watch.advanced(share)
            super().train(evaluations, select)

    monkeypatch.setattr(module, "Batch", Slow)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, trials=6), deadline=time.monotonic() + 60).trials
    assert shares == [0.01, 0.05, 0.5, 1.0, 0.01, 0.05], "the base's batch is, and the next one is ended when its speed is known"
    assert [(t.state, t.reason) for t in trials[3:]] == [("pruned", "time was up")] * 3
    assert all(t.score is None for t in trials[3:]), "they were not evaluated"


def test_trial_that_runs_out_of_time_keeps_its_last_score(tmp_path, monkeypatch):
    class SlowSecondHalf(Reporting):
        """Would take a hundred seconds after the first evaluation."""

        full_seconds = 100.0

        def train(self, evaluations, select):
            select(1, {index: TrialResult((float(index),)) for index in range(self.count)})
            self.watch.advanced(0.5)
            super().train(evaluations, select)

    monkeypatch.setattr(module, "Batch", SlowSecondHalf)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, trials=6), deadline=time.monotonic() + 40).trials
    assert [(t.state, t.score) for t in trials[3:]] == [("pruned", score) for score in (0.0, 1.0, 2.0)]


def test_final_round_continues_after_the_search_deadline(tmp_path, monkeypatch):
    class Telling(Reporting):
        def train(self, evaluations, select):
            self.watch.advanced(0.5)
            super().train(evaluations, select)

    monkeypatch.setattr(module, "Batch", Telling)
    trials = searched(tmp_path / "s", plan(tmp_path, TRACED, trials=12, finalists=2), deadline=time.monotonic() + 34).trials
    assert len(trials) == 12, "others may be faster"
    assert {t.reason for t in trials[3:]} == {"time was up"}
    assert [t.number for t in trials if t.final] == [0, 1, 2], "on other seeds the two are no better than the base"


def test_settings_that_shape_the_program_are_found_by_key(tmp_path):
    p = plan(tmp_path, WIDE)
    assert shaping(p, environment(p.base)) == {"target_kl"}


@pytest.mark.parametrize(
    ("space", "base"),
    [
        ("num_steps: [16, 32]\nsequence_length: [0, 16]\n", {"memory": "gru", "memory_size": 4}),
        ("memory: [none, gru]\nsequence_length: [0, 8]\n", {}),
    ],
)
def test_batches_share_a_setting_that_changes_nothing_in_the_base(tmp_path, monkeypatch, space, base):
    monkeypatch.setattr(module, "Batch", Scripted)
    p = plan(tmp_path, space + TRACED, config(**base), trials=30)
    study = searched(tmp_path / "s", p)
    assert study.shaping == {d.name for d in p.space.dimensions} - {"learning_rate", "gamma"}
    lengths = {}
    for trial in study.study.get_trials():
        lengths.setdefault(trial.user_attrs["batch"], set()).add(trial.user_attrs["settings"]["sequence_length"])
    assert {len(values) for values in lengths.values()} == {1}
    assert {t.state for t in study.trials} == {"done"}


def test_settings_that_do_not_fit_together_are_never_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Batch", Scripted)
    p = plan(tmp_path, "num_envs: [2, 8]\nnum_minibatches: [2, 64]\n" + TRACED, trials=30)
    trials = searched(tmp_path / "s", p).trials
    drawn = {(t.settings["num_envs"], t.settings["num_minibatches"]) for t in trials}
    assert drawn == {(2, 2), (8, 2), (8, 64)}
    assert {t.state for t in trials} == {"done"}


def test_networks_that_do_not_fit_are_never_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Batch", Scripted)
    space = "layer_norm: [true, false]\nhidden_sizes: [none, 8]\n" + TRACED
    trials = searched(tmp_path / "s", plan(tmp_path, space, trials=30)).trials
    drawn = {(t.settings["layer_norm"], t.settings["hidden_sizes"]) for t in trials}
    assert drawn == {(False, ""), (False, "8"), (True, "8")}
    assert {t.state for t in trials} == {"done"}


def test_serial_trials_are_drawn_whole_and_always_valid(tmp_path, monkeypatch):
    """Where a batch shares what is compiled, a number that does not fit beside it fails its trial alone."""
    monkeypatch.setattr(module, "Batch", Scripted)
    space = "optimizer: [adam, adamw]\nweight_decay: [0, 0.01]\n" + TRACED
    alone = searched(tmp_path / "a", plan(tmp_path, space, trials=16, together=1)).trials
    drawn = {(t.settings["optimizer"], t.settings["weight_decay"]) for t in alone}
    assert drawn == {("adam", 0.0), ("adamw", 0.0), ("adamw", 0.01)}
    assert {t.state for t in alone} == {"done"}
    batches = searched(tmp_path / "b", plan(tmp_path, space, trials=30)).trials
    unfit = [t for t in batches if (t.settings["optimizer"], t.settings["weight_decay"]) == ("adam", 0.01)]
    assert unfit
    assert {(t.state, t.reason) for t in unfit} == {("failed", "its settings do not fit together")}
    assert {t.state for t in batches if t not in unfit} == {"done"}


def test_the_plan_is_read_as_it_was_written(whole, tmp_path):
    _, p = whole
    p.write(tmp_path)
    assert read_plan(tmp_path) == p
    assert read_plan(tmp_path).base == config().__class__(**vars(p.base))

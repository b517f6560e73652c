"""Every command line of every page is one that the command line takes."""

import importlib
import re

import pytest

from proximo import make_config
from proximo.cli import VERBS, UsageError
from proximo.config import Config, override
from proximo.errors import ProximoError

from pages import DOCS, PAGES, commands, name_of

OTHERS = {"--no-deps", "--strict", "--help", "--help-all", "--version"}


def _read(verb, words):
    """Parse; of a training its values too."""
    options = importlib.import_module(f"proximo.cli.{verb}").make_parser().parse_args(words)
    override(Config(), getattr(options, "settings", {}))
    return options


@pytest.mark.parametrize("command", commands(), ids=lambda c: f"{c.page}: {c.verb} {' '.join(c.words)}")
def test_a_command_line_is_read(command):
    assert command.verb in VERBS
    _read(command.verb, [word for word in command.words if "…" not in word])


def test_both_commands_for_pytorch_ppo_have_its_settings():
    found = [c for c in commands() if (c.page, c.verb) == ("docs/from-pytorch-ppo.md", "train") and "--config" not in c.words]
    options = [_read("train", c.words) for c in found[:2]]
    plain, pong = (make_config(o.env, o.settings, preset=not o.no_preset) for o in options)
    assert pong.env.num_envs == plain.env.num_envs
    theirs = (
        "num_steps", "num_epochs", "num_minibatches", "learning_rate", "clip_eps", "gamma", "gae_lambda", "vf_coef", "ent_coef",
        "normalize_advantage",
    )  # fmt: skip
    assert [getattr(pong.ppo, name) for name in theirs] == [getattr(plain.ppo, name) for name in theirs]


def test_command_lines_are_found_and_invalid_ones_raise():
    found = commands()
    assert len(found) > 60
    assert len({command.page for command in found}) > 10
    for wrong in (["CartPole-v1", "--lerning-rate", "1"], ["CartPole-v1", "--num-envs", "many"]):
        with pytest.raises(ProximoError):
            _read("train", wrong)
    with pytest.raises(UsageError):
        _read("eval", ["last", "--episode-number", "3"])


def test_every_flag_that_a_page_names_exists():
    parsers = [importlib.import_module(f"proximo.cli.{verb}").make_parser() for verb in VERBS]
    known = OTHERS.union(flag for parser in parsers for action in parser._actions for flag in action.option_strings)
    ours = [page for page in PAGES if page.parent != DOCS / "decisions"]  # those name the flags of benchmarks
    named = {(name_of(page), flag) for page in ours for flag in re.findall(r"`(--[a-z][a-z-]+)[ `=]", page.read_text())}
    assert len(named) > 20
    assert not {(page, flag) for page, flag in named if flag not in known}


def test_readme_and_contributing_name_the_site_build_command():
    """Which test_site.py runs."""
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "mkdocs build --strict" in (DOCS.parent / page).read_text()

"""Reporters: the default one, and methods with earlier names."""

import pytest

from proximo.errors import ConfigError
from proximo.tracking.reporter import Reporter


def test_default_reporter_prints_nothing(capsys):
    reporter = Reporter()
    reporter.compiling()
    reporter.seeds_started([], 0)
    reporter.advanced(1, 1.0, None)
    reporter.evaluated(1, [])
    reporter.warned("x")
    reporter.stopping()
    reporter.stopped("x")
    reporter.finished([])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "now"), [("begun", "seeds_started"), ("left", "exiting")])
def test_reporter_with_an_earlier_method_name_raises_the_new_one(name, now):
    with pytest.raises(ConfigError, match=rf"^Mine\.{name} would never be called: the method is called {now} now\. Rename it\.$"):
        type("Mine", (Reporter,), {name: lambda self, *arguments: None})
    assert hasattr(Reporter, now)
    type("Mine", (Reporter,), {now: lambda self, *arguments: None, name: 3})

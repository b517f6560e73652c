"""The default reporter."""

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

import pytest

from proximo.config.schedule_text import ScheduleText


@pytest.mark.parametrize(
    ("text", "initial", "final", "power", "fraction"),
    [
        ("3e-4", 3e-4, 3e-4, 1.0, 1.0),
        ("linear(1e-3, 0)", 1e-3, 0.0, 1.0, 1.0),
        ("linear( 1 ,0.5, 0.25 )", 1.0, 0.5, 1.0, 0.25),
        ("polynomial(1, 0, 2)", 1.0, 0.0, 2.0, 1.0),
        ("polynomial(1, 0, 2, 0.5)", 1.0, 0.0, 2.0, 0.5),
        ("exponential(1e-5, 1e-1)", 1e-5, 1e-1, 0.0, 1.0),
        ("linear(1, 0, 1.5)", 1.0, 0.0, 1.0, 1.5),
        ("exponential(1e-2, 1e-4, 0.5)", 1e-2, 1e-4, 0.0, 0.5),
    ],
)
def test_schedules_are_read_from_text(text, initial, final, power, fraction):
    schedule = ScheduleText(text)
    assert (schedule.initial, schedule.final, schedule.power, schedule.fraction) == (initial, final, power, fraction)


@pytest.mark.parametrize(
    "text",
    ["", "x", "linear(1)", "linear(1, 0, 0)", "linear(1, 0, inf)", "linear(1, 0, 1, 1)", "polynomial(1, 0)", "polynomial(1, 0, 0)",
     "polynomial(1, 0, -1)", "exponential(1, 0)", "exponential(0, 1)", "exponential(1)", "exponential(1, 2, 0)", "exponential(-1, -2)",
     "linear(1, 0", "cosine(1, 0)", "1, 2"],
)  # fmt: skip
def test_other_text_raises(text):
    with pytest.raises(ValueError, match=r"."):
        ScheduleText(text)


def test_constant_is_a_number_in_a_file():
    assert ScheduleText("3e-4").plain() == 3e-4
    assert ScheduleText("linear(1, 0)").plain() == "linear(1, 0)"


def test_equal_constants_are_equal():
    assert ScheduleText("3e-4") == ScheduleText("0.0003")

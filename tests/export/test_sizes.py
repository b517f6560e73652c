import numpy as np
import pytest

from proximo.export.sizes import TRACED, Affine, BatchDependentError, as_json, merged, product

SMALL, LARGE = TRACED


def at(n):
    return {"rows": n, "pairs": 2 * n + 3, "none": 4}


@pytest.mark.parametrize("n", [1, 2, 9])
def test_sizes_follow_the_number_of_environments(n):
    for name, size in at(SMALL).items():
        found = merged(size, at(LARGE)[name])
        found = found if isinstance(found, int) else found.times * n + found.plus
        assert found == at(n)[name]


def test_arithmetic_of_sizes():
    n = Affine(1, 0)
    assert n * 3 + 2 - 2 == Affine(3, 0)
    assert (n + 1) - n == 1
    assert 5 - n == Affine(-1, 5)
    assert product((2, n, 3)) == Affine(6, 0)
    assert product(()) == 1
    assert (str(n), str(2 * n + 1)) == ("N", "2N+1")
    assert as_json((n, 4, [2 * n])) == [[1, 0], 4, [[2, 0]]]


def test_squares_and_halves_raise():
    n = Affine(1, 0)
    with pytest.raises(BatchDependentError, match="square"):
        product((n, n))
    with pytest.raises(BatchDependentError, match="no multiple"):
        merged(SMALL // 2, LARGE // 2 + 2)


def test_other_differences_between_traces_raise():
    assert merged((1.5, "a", True), (1.5, "a", True)) == (1.5, "a", True)
    with pytest.raises(BatchDependentError, match="a number in it"):
        merged(1.5, 2.5)
    with pytest.raises(BatchDependentError, match="a number in it"):
        merged(np.ones(2), np.zeros(2))
    with pytest.raises(BatchDependentError, match="operations"):
        merged((1,), (1, 2))

"""The ruler is checked before anything is measured with it."""

import pytest

from tests import reference as ref
from tests.spec.statistics import chi_square_p, chi_square_survival


@pytest.mark.parametrize(
    ("x", "dof", "p"),
    [(3.841459, 1, 0.05), (9.210340, 2, 0.01), (29.588298, 10, 0.001), (124.342113, 100, 0.05), (0.0, 3, 1.0)],
)
def test_survival_has_the_tabled_values(x, dof, p):
    assert chi_square_survival(x, dof) == pytest.approx(p, rel=1e-5)


def test_a_small_bias_is_seen():
    law = {"a": 0.5, "b": 0.3, "c": 0.2}
    rng = ref.Pcg32(1)
    names = list(law)
    fair = [names[ref.sample_dense([0.5, 0.3, 0.2], rng.next_f64())] for _ in range(4000)]
    bent = [names[ref.sample_dense([0.55, 0.27, 0.18], rng.next_f64())] for _ in range(4000)]
    assert chi_square_p(fair, law) > 1e-3
    assert chi_square_p(bent, law) < 1e-3

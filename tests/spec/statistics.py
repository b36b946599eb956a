"""The few statistics the tests need."""

import math
from collections import Counter


def chi_square_survival(x, dof):
    """P(X >= x) for a chi-square of `dof` degrees of freedom: one minus the series of the lower incomplete gamma."""
    a, half = dof / 2, x / 2
    if half <= 0:
        return 1.0
    term = total = 1 / a
    n = a
    while term > total * 1e-16:
        n += 1
        term *= half / n
        total += term
    return max(0.0, 1 - total * math.exp(a * math.log(half) - half - math.lgamma(a)))


def chi_square_p(observed, law):
    """The p-value of outcomes against their law; cells of fewer than five expected are taken together."""
    counts, num = Counter(observed), len(observed)
    assert counts.keys() <= {outcome for outcome, mass in law.items() if mass > 0}, "an outcome of probability 0"
    cells = [(counts[outcome], num * mass) for outcome, mass in law.items() if num * mass >= 5]
    rest = num - sum(expected for _, expected in cells)
    if rest >= 5:
        cells.append((num - sum(count for count, _ in cells), rest))
    x = sum((count - expected) ** 2 / expected for count, expected in cells)
    return chi_square_survival(x, len(cells) - 1)

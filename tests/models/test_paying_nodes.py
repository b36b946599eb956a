"""The nodes of a tree that pay: more where rows are cheap, and by the proposer's own word."""

import numpy as np
import pytest

from models import Ask, Chunk, FakeModel, FakeProposer, with_paying_nodes
from scheduler import PassCost
from spec import MAX_NODES, Dynamic, Sequoia, SpecConfig

FREE, FAIR, DEAR = (PassCost.linear(1.0, per_row).of(MAX_NODES + 1) for per_row in (0.0, 0.05, 10.0))


TARGET = FakeModel(1, 40, 2, 6.0)


def proposer(temperature=1.0):
    return FakeProposer(FakeModel(1, 40, 2, 6.0), 5, 2, 6.0, 1.0, temperature)


def nodes(shape, cost, layer_cost=0.0, asked=None):
    config = with_paying_nodes(SpecConfig("fake", shape=shape), asked or proposer(), TARGET, cost, layer_cost)
    assert not config.is_auto
    assert config.k == config.shape.nodes
    return config.shape.nodes


@pytest.mark.parametrize("shape", [Dynamic("auto", 4, 4), Sequoia((0.6, 0.2, 0.1), "auto", 4)])
def test_the_cheaper_the_rows_the_more_nodes_pay(shape):
    free, fair, dear = (nodes(shape, cost) for cost in (FREE, FAIR, DEAR))
    assert dear == 1 < fair < free


def test_layers_of_the_proposer_cost_too():
    for shape in (Dynamic("auto", 1, 8), Sequoia((0.8,), "auto", 8)):
        dear, free = (nodes(shape, FAIR, layer_cost, proposer(0.1)) for layer_cost in (2.0, 0.0))
        assert dear < free


def test_of_a_dynamic_tree_the_proposer_tells_what_its_nodes_are_worth():
    sure, unsure = (nodes(Dynamic("auto", 4, 4), FAIR, asked=proposer(temperature)) for temperature in (0.2, 20.0))
    assert unsure < sure


def test_the_best_nodes_are_counted_first():
    """One child is nearly sure and three are hopeless: a node pays that costs a third of a pass, and no more."""
    sure = proposer(0.05)
    assert nodes(Dynamic("auto", 4, 1), PassCost.linear(1.0, 0.3).of(MAX_NODES + 1), asked=sure) == 1
    assert nodes(Dynamic("auto", 4, 4), PassCost.linear(1.0, 0.01).of(MAX_NODES + 1), asked=sure) >= 4


def test_no_more_nodes_than_the_shape_has():
    assert nodes(Dynamic("auto", 2, 2), FREE) <= 6
    assert nodes(Dynamic("auto", 1, 3), FREE) <= 3


def test_a_small_vocabulary_is_enough():
    tiny = FakeProposer(FakeModel(1, 2, 1, 6.0), 5, 1, 6.0, 1.0)
    assert 1 <= nodes(Dynamic("auto", 4, 4), FAIR, asked=tiny) <= MAX_NODES


def test_the_proposer_that_is_asked_stays_as_it_is():
    asked = proposer()
    asked.bind(1, 4)
    asked.feed([Chunk([1, 2, 3], 0, [0], 0)])
    ask = Ask(0, [0], 3, [], [], [-1])
    before = asked.laws([ask])
    nodes(Dynamic("auto", 4, 4), FAIR, asked=asked)
    assert np.array_equal(asked.laws([ask]), before)


def test_a_number_stays():
    config = SpecConfig("fake", shape=Dynamic(7, 4, 4))
    assert with_paying_nodes(config, proposer(), TARGET, FREE, 0.0) == config

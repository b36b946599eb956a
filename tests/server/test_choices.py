"""The choices of one request are independent, whether `n` asks for them or several prompts do."""

import json
from itertools import combinations, pairwise

import pytest

from actors import Engine, EngineConfig
from models.toy import ToyModel, ToyTokenizer
from server.bodies import BodyReader
from server.config import ServerConfig
from server.job import JobReader

NUM_SEEDS, NUM_TOKENS = 400, 6
#   a law without memory: four tokens, each as likely as the others, whatever came before
LAW = {"logit_bias": {"10": 100, "11": 100, "12": 100, "13": 100}, "max_tokens": NUM_TOKENS, "ignore_eos": True}


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": ["Hello"] * 4},
        {"prompt": ["Hello"] * 2, "n": 2},
        {"prompt": "Hello", "n": 4},
        {"prompt": ["Hello", "Good day", [1, 2, 3], "Hello"], "speculative": {"draft": "ngram", "k": 4}},
    ],
    ids=["prompts", "prompts and n", "n", "with drafts"],
)
async def test_choices_agree_as_often_as_chance_has_it(asked):
    config = EngineConfig(num_blocks=512)
    bodies = BodyReader(ServerConfig(), print)
    reader = JobReader("fake", ToyTokenizer(), ServerConfig(), config, 1000, bodies)
    texts = []
    async with Engine(ToyModel(0, 1, 0.0), config) as engine:
        for seed in range(NUM_SEEDS):
            job = await reader.completion(json.dumps({**asked, **LAW, "seed": seed}).encode(), None)
            streams = [engine.submit(request) for request in job.requests]
            texts.append([[token.id async for token in stream] for stream in streams])
    spread = 4 * (0.25 * 0.75 / NUM_SEEDS) ** 0.5
    for one, other in combinations(range(4), 2):
        for position in range(NUM_TOKENS):
            agreement = sum(text[one][position] == text[other][position] for text in texts) / NUM_SEEDS
            assert abs(agreement - 0.25) < spread, (one, other, position)
    #   nor does one follow another a token later, or the seed after it
    shifted = [(text[0][1:], text[1][:-1]) for text in texts]
    shifted += [(text[3], after[2]) for text, after in pairwise(texts)]
    pairs = [pair for one, other in shifted for pair in zip(one, other, strict=True)]
    agreement = sum(a == b for a, b in pairs) / len(pairs)
    assert abs(agreement - 0.25) < 4 * (0.25 * 0.75 / len(pairs)) ** 0.5


def test_equal_prompts_get_texts_of_their_own(plain):
    told = plain.post({"prompt": ["Hello"] * 4, "max_tokens": 120}).json()  # of 20, two in 150 are equal by chance
    assert len({choice["text"] for choice in told["choices"]}) == 4
    seeded = {"prompt": ["Hello"] * 4, "max_tokens": 20, "seed": 3}
    assert plain.post(seeded).json()["choices"] == plain.post(seeded).json()["choices"]

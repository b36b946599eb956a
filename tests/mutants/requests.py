"""Mistakes to plant in the checks of requests and measures, and in what an engine keeps of them."""

from tests.mutants.engine import ENGINE, mutant

REQUEST, CONFIG = "scheduler/request.py", "scheduler/config.py"
REFUSED = "actors/submit::what_can_never_be_served_is_refused_by_name"
NO_ENGINE = "actors/submit::measures_that_make_no_engine_are_refused_by_name"

MUTANTS = [
    mutant(
        "take a flag for an id",
        REQUEST,
        "not set(map(type, ids)) <= {int}",
        "not all(isinstance(i, int) for i in ids)",
        REFUSED,
    ),
    mutant(
        "take a flag for a count",
        REQUEST,
        "        if type(value) is not int:\n",
        "        if not isinstance(value, int):\n",
        REFUSED,
    ),
    mutant(
        "look at no bound of a choice",
        REQUEST,
        '"choice": (0, 2**62 - 1)',
        '"choice": (0, 2**64 - 1)',
        REFUSED,
    ),
    mutant(
        "check no kind of a cache salt",
        REQUEST,
        '        ("cache_salt", (str, type(None)), "a str, or None"),\n',
        "",
        REFUSED,
    ),
    mutant(
        "check no kind of an eos",
        REQUEST,
        '        ("eos", (tuple, list, set, frozenset), "a tuple of int ids"),\n',
        "",
        REFUSED,
    ),
    mutant(
        "keep the caller's own biases",
        REQUEST,
        "logit_bias=dict(params.logit_bias))",
        "logit_bias=params.logit_bias)",
        "actors/submit::whatever_a_request_holds_may_be_changed_once_it_is_submitted",
    ),
    mutant(
        "keep the caller's own request",
        ENGINE,
        "        request = own_copy(request)\n",
        "",
        "actors/submit::whatever_a_request_holds_may_be_changed_once_it_is_submitted",
    ),
    mutant(
        "take a time that is no number",
        CONFIG,
        "not 0 < value < math.inf",
        "value <= 0",
        NO_ENGINE,
    ),
    mutant(
        "take a flag for a measure",
        CONFIG,
        "            if type(value) is not int or not low",
        "            if not isinstance(value, int) or not low",
        NO_ENGINE,
    ),
    mutant(
        "take any draft",
        CONFIG,
        '        if not isinstance(self.speculative, SpecConfig):\n            raise refuse("speculative"',
        '        if self.speculative is ...:\n            raise refuse("speculative"',
        NO_ENGINE,
    ),
    mutant(
        "count cached tokens once for each choice",
        "server/replies.py",
        "for stream in streams[::per_prompt])",
        "for stream in streams)",
        "server/metrics::cached_tokens_are_a_prompts_whatever_its_choices",
    ),
]

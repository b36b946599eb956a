"""Mistakes to plant in how what a model gives is looked at, and in what copies of a model share."""

from tests.mutants.engine import EXECUTION, mutant

ROWS = "models/answers::rows_that_were_not_asked_for_are_refused"
ANSWERS = "models/answers::an_answer_that_is_no_path_of_the_draft_fails_its_own_request_and_no_other"
FAST = "models/fast_llama.py"

MUTANTS = [
    mutant(
        "take any number of rows",
        EXECUTION,
        "rows.shape != (num_rows, vocab_size)",
        "rows.shape[1:] != (vocab_size,)",
        ROWS,
    ),
    mutant(
        "take rows of any width",
        EXECUTION,
        "rows.shape != (num_rows, vocab_size)",
        "rows.shape[:1] != (num_rows,) or rows.ndim != 2",
        ROWS,
    ),
    mutant("take rows of any kind", EXECUTION, " or rows.dtype != np.float32", "", ROWS),
    mutant(
        "take tokens of any kind",
        EXECUTION,
        "    return set(map(type, tokens)) == {int} and min(tokens) >= 0",
        "    return bool(tokens) and min(tokens) >= 0",
        ANSWERS,
    ),
    mutant(
        "take chains of tokens that were never drafted",
        EXECUTION,
        "        and answer.tokens[:-1] == round_.draft[:num_accepted]\n",
        "",
        ANSWERS,
    ),
    mutant("take accepted nodes in any order", EXECUTION, "parents[node] != above or ", "", ANSWERS),
    mutant("take tokens that were never drafted", EXECUTION, " or round_.draft[node] != token", "", ANSWERS),
    mutant(
        "let a late pass share its room with the next",
        FAST,
        "        self._rooms = None\n        self._workers",
        "        self._workers",
        "models/fast_llama::copies_of_a_model_share_no_room",
    ),
    mutant(
        "let a late pass share its threads with the next",
        FAST,
        "        self._workers = ThreadPoolExecutor(",
        "        self._workers = getattr(self, '_workers', None) or ThreadPoolExecutor(",
        "models/fast_llama::copies_of_a_model_share_no_room",
    ),
]

"""Mistakes to plant in the mathematics of a round."""

from tests.mutants.mutant import Mutant


def mistakes(path: str, files: tuple[str, ...], replacements: dict[str, tuple[str, str]]) -> list[Mutant]:
    """Mutants of one file of `spec`, by name `(old, new)`, that the same test files must notice."""
    tests = tuple(f"tests/spec/test_{file}.py" for file in files)
    return [Mutant(name, f"spec/{path}", old, new, tests) for name, (old, new) in replacements.items()]


MUTANTS = [
    *mistakes(
        "drafts.py",
        ("drafts",),
        {
            "look up the first occurrence instead of the most recent": (
                "range(t - n) if is_earliest else range(t - n - 1, -1, -1)",
                "range(t - n) if not is_earliest else range(t - n - 1, -1, -1)",
            ),
            "stop the copied tokens at the suffix": (
                "return list(ctx[start + n : start + n + k])",
                "return list(ctx[start + n : min(start + n + k, t - n)])",
            ),
            "give n-gram ties to the highest id": (
                "key=lambda token: (-followers[token], token)",
                "key=lambda token: (-followers[token], -token)",
            ),
            "forget the drafted tokens while drafting": ("        grown.append(token)\n", ""),
        },
    ),
    *mistakes(
        "lookup_index.py",
        ("drafter",),
        {
            "look up the first occurrence instead of the most recent, in the index": (
                "                    ends[found] = place\n",
                "                    pass\n",
            ),
            "leave a node's place where it was as grams part": (
                "ends.append(place if is_latest else end)",
                "ends.append(end)",
            ),
            "take the last occurrence of a leaf for its first": (
                "                    if is_latest:\n                        edges[edge] = ~place",
                "                    if True:\n                        edges[edge] = ~place",
            ),
            "lose the gram that another parts from": (
                "                        edges[(node << 32) + ctx[end - n]] = found\n",
                "                        pass\n",
            ),
            "take what is before the context for its end": (
                "                while n < depth and n <= end and recent",
                "                while n < depth and recent",
            ),
            "take a short match for one of min_ngram": ("n if n >= self._min_ngram else 0", "n"),
            "go on past the place where a match parts": (
                "while n == depth < self._max_ngram:",
                "while n < self._max_ngram:",
            ),
            "stop the copied tokens at the suffix, in the index": (
                "self._ctx[start : start + k].tolist()",
                "self._ctx[start : min(start + k, len(self._ctx) - n)].tolist()",
            ),
            "skip the grams across the border of an append": ("first = max(0, old - most)", "first = max(0, old - 1)"),
            "take bytes for tokens where they are not cut at one": (
                "            while at > 0 and at % _TOKEN:",
                "            while False:",
            ),
            "search for the end of the context in itself": (
                "low, high = 0, len(raw) - _TOKEN",
                "low, high = 0, len(raw)",
            ),
            "look for a longer gram left of the first that is shorter": (
                "                low = max(0, (place - n) * _TOKEN)",
                "                high = (place + 1) * _TOKEN",
            ),
            "leave out of the index what was searched": (
                "old, self._num_in = self._num_in, len(ctx) - 1",
                "old, self._num_in = max(self._num_in, NUM_SCANNED), len(ctx) - 1",
            ),
            "index the end of the context itself": ("len(recent) - 1):", "len(recent)):"),
        },
    ),
    *mistakes(
        "ngram_index.py",
        ("drafter",),
        {
            "draft after the longest gram, follower or none": (
                "while state and not best[state]:",
                "while False:",
            ),
            "let grams grow past n": (
                "index.advance(state, num_matched, token, self._longest)",
                "index.advance(state, num_matched, token, self._longest + 1)",
            ),
        },
    ),
    *mistakes(
        "suffix_index.py",
        ("suffix",),
        {
            "give ties among followers to the later one": (
                "count[found] + 1 == count[leader] and token < text[first[leader]]",
                "count[found] + 1 == count[leader]",
            ),
            "split a class without telling the leaders": (
                "            if state in leaders:\n                leaders[state] = [part",
                "            if False:\n                leaders[state] = [part",
            ),
            "count a split class from nothing": ("        self.count[part] = self.count[whole]\n", ""),
            "let the anchor fall behind": (
                "            while length[link[anchor]] >= depth:\n                anchor = link[anchor]\n",
                "            if length[link[anchor]] > depth:\n                anchor = link[anchor]\n",
            ),
            "let one text run into the next": ("        self._last = self._anchor = 0\n", ""),
            "leave the end of a text uncounted": (
                "            self.count[state] += 1\n        self._last",
                "            pass\n        self._last",
            ),
            "keep leaders where they were when they rise": (
                "if to < at:\n                order.insert(to, order.pop",
                "if False:\n                order.insert(to, order.pop",
            ),
        },
    ),
    *mistakes(
        "suffix.py",
        ("suffix",),
        {
            "leave the occurrence at the end out of the count": (
                "the draft is made\n            count[state] += 1\n",
                "the draft is made\n            count[state] += 0\n",
            ),
            "leave the counts of a suffix draft in the index": (
                "        for state in path:\n            count[state] -= 1\n",
                "",
            ),
            "give up matches that could tie": ("if (reach, match_len, is_own) <= best:", "if reach <= best[0]:"),
            "follow the longest match only": (
                "matches.sort(reverse=True)",
                "matches.sort(reverse=True, key=lambda m: m[1])",
            ),
            "bound the depth of a tree by the match alone": (
                "depth = min(room, rules.max_depth - match_len)",
                "depth = rules.max_depth - match_len",
            ),
            "bound a draft by max_depth alone": (
                "num_nodes = min(num_nodes, self._most_nodes[match_len])",
                "num_nodes = min(num_nodes, rules.max_depth)",
            ),
            "end a chain at the value itself": (
                "if not state or count[state] / total < min_prob:",
                "if not state or count[state] / total <= min_prob:",
            ),
            "value nodes by their parent": (
                "[index.count[node] / index.count[state] for node in nodes]",
                "[index.count[node] / index.count[nodes[0]] for node in nodes]",
            ),
            "trust the first token to bound a tree": (
                "min(most * num_first, depth * num_followed) if is_tree else",
                "min(most, depth) * num_first if is_tree else",
            ),
        },
    ),
    *mistakes(
        "finished.py",
        ("suffix",),
        {
            "mix the texts of all salts": (
                "texts = self._by_salt.get(salt)",
                "texts = next(iter(self._by_salt.values()), None)",
            ),
            "let the heir start empty": (
                "(self.current, self._heir) if is_half_full",
                "(self.current,) if is_half_full",
            ),
            "never pass on to the heir": (
                "> self._most_tokens:\n            self.current",
                "> 1e9:\n            self.current",
            ),
            "keep every salt": ("while len(self._by_salt) > 1 and", "while False and"),
            "take in more than was asked": ("self._num_taken + num_tokens]", "self._num_taken + 99]"),
            "let a text run into the next": ("                texts.end()\n", ""),
        },
    ),
    *mistakes(
        "drafter.py",
        ("suffix",),
        {
            "draft from the requests of another salt": (
                "self._finished.index(self._salt)",
                "self._finished.index(None)",
            ),
        },
    ),
    *mistakes(
        "verify.py",
        ("verify", "exact_law"),
        {
            "blind the penalties to tokens accepted this round": (
                "        counts.add(token)\n    tokens.append",
                "    tokens.append",
            ),
            "accept with p alone": (
                "resampled_with(p[drafted] if q is None else p[drafted] / q[i, drafted], rng)",
                "resampled_with(p[drafted], rng)",
            ),
            "accept a step with p alone": ("if u_accept < p[x] / q[x]:", "if u_accept < p[x]:"),
            "take |p - q| for the residual": ("np.maximum(p - q, 0.0)", "np.abs(p - q)"),
            "resample from p": (
                "token = sample_dense(drop(p, drafted) if q is None else residual(p, q[i]), u_resample)",
                "token = sample_dense(p, u_resample)",
            ),
            "resample with the accepting uniform": (
                "return None if u_accept < chance else u_resample",
                "return None if u_accept < chance else u_accept",
            ),
            "take the bonus token from the last draft's row": (
                "tokens.append(sample_dense(law_of(rows[len(draft)], params, counts), rng.next_f64()))",
                "tokens.append(sample_dense(law_of(rows[max(0, len(draft) - 1)], params, counts), rng.next_f64()))",
            ),
        },
    ),
    *mistakes(
        "verify.py",
        ("verify", "known_failures"),
        {
            "blind the greedy penalties to tokens accepted this round": ("        counts.add(best)\n", ""),
        },
    ),
    *mistakes(
        "verify.py",
        ("verify",),
        {
            "accept what has probability 0 at a uniform of 0": (
                "return None if u_accept < chance else u_resample",
                "return None if u_accept <= chance else u_resample",
            ),
            "leave the generator moved after an error": ("        rng.state = state\n", ""),
            "take stochastic drafts in match mode": (
                'if verify == "match":\n            raise',
                "if False:\n            raise",
            ),
            "read the logprobs off the last rows": (
                "Scores(rows[: len(tokens)], tokens)",
                "Scores(rows[-len(tokens) :], tokens)",
            ),
            "let a draft be impossible under its own law": ("if law_[drafted] == 0:", "if law_[drafted] < 0:"),
        },
    ),
    *mistakes(
        "verify.py",
        ("verify", "golden"),
        {
            "draw u_resample on rejection only": (
                "    u_accept, u_resample = rng.next_f64(), rng.next_f64()\n"
                "    return None if u_accept < chance else u_resample",
                "    return None if rng.next_f64() < chance else rng.next_f64()",
            ),
            "draw u_resample before u_accept": ("u_accept, u_resample = rng", "u_resample, u_accept = rng"),
        },
    ),
    *mistakes(
        "verify.py",
        ("match",),
        {
            "draw twice for a token that is matched": (
                "            token = sample_dense(p, rng.next_f64())\n",
                "            token = sample_dense(p, (rng.next_f64(), rng.next_f64())[0])\n",
            ),
        },
    ),
    *mistakes(
        "batch.py",
        ("batch",),
        {
            "resample from p in a batch": ("                laws[rejected] = residuals\n", ""),
            "drop the token of another round in a batch": (
                "[drafted[picks[i]] for i in rejected]",
                "[drafted[i] for i in rejected]",
            ),
            "move generators in a batch that fails": ("            round_.rng.state = state\n", "            pass\n"),
            "leave a batch's generators where they would be had the last drafted tokens been rejected": (
                "num_drawn[j] = 2 * position + 1",
                "num_drawn[j] = 2 * position + 2",
            ),
            "resample in a batch with the draw that rejected": (
                "uniforms.append(draws[j][2 * position + 1])",
                "uniforms.append(draws[j][2 * position])",
            ),
            "take the first temperature of a batch for all": (
                "temperatures[0] if are_alike else",
                "temperatures[0] if True else",
            ),
        },
    ),
    *mistakes(
        "distribution.py",
        ("batch",),
        {
            "score the first tokens of a large batch only": ("tokens[part]]", "tokens[:len(x)]]"),
        },
    ),
    *mistakes(
        "distribution.py",
        ("distribution", "known_failures"),
        {
            "hold the stop ids back one token too long": (
                "counts.num_emitted < params.min_tokens",
                "counts.num_emitted <= params.min_tokens",
            ),
        },
    ),
    *mistakes(
        "distribution.py",
        ("distribution",),
        {
            "divide negative logits by the repetition penalty": (
                "at * params.repetition_penalty)",
                "at / params.repetition_penalty)",
            ),
            "penalise repetitions of the output only": ("self.seen = set(prompt)", "self.seen: set[int] = set()"),
            "count the prompt for the frequency penalty": ("for token in output:", "for token in [*prompt, *output]:"),
            "leave out the id that crosses top-p": (
                "order[: 1 + int(np.count_nonzero(mass[:-1] < top_p))]",
                "order[: max(1, int(np.count_nonzero(mass < top_p)))]",
            ),
            "cut top-p before top-k's mass is renormalised": ("total = p[alive].sum()", "total = 1.0"),
            "sample the id whose running sum equals the uniform": ('side="right"', 'side="left"'),
            "forget the mass before a block": ("of_blocks[block - 1] if block else 0.0", "0.0"),
            "leave out what lies behind the last whole block": (
                "end = first + _BLOCK if block < num_blocks else len(p)",
                "end = min(first + _BLOCK, num_blocks * _BLOCK)",
            ),
            "fall back to an id without mass": ("int(np.flatnonzero(p)[-1])", "len(p) - 1"),
        },
    ),
    *mistakes(
        "distribution.py",
        ("ties",),
        {
            "order the kept ids by what the softmax made of them": (
                "    p = softmax(x.copy(), x[best], params.temperature)",
                "    p = softmax(x, x[best], params.temperature)",
            ),
            "give ties at top-k to whatever the sort leaves first": (
                'alive[np.argsort(-x[alive], kind="stable")]',
                'alive[np.argsort(x[alive], kind="stable")[::-1]]',
            ),
            "let logits further apart than a float64 goes overflow": ("if is_far.any():", "if False:"),
            "scale what a small temperature would lose": (
                "is_far & (np.asarray(temperature) > 1)",
                "is_far",
            ),
            "take the first guess at the nucleus for the nucleus": ("or mass[-1] >= top_p", "or True"),
        },
    ),
    *mistakes(
        "distribution.py",
        ("distribution", "verify"),
        {
            "give equal logits to the highest id": (
                "return int(row.argmax())",
                "return len(row) - 1 - int(row[::-1].argmax())",
            ),
        },
    ),
    *mistakes(
        "rng.py",
        ("lanes",),
        {
            "foresee another stream's draws": (
                "offsets.append((offsets[-1] * _MULTIPLIER + 1) & _MASK64)",
                "offsets.append((offsets[-1] * _MULTIPLIER + 3) & _MASK64)",
            ),
            "give the draft's stream to a choice": ("lane = 2 * choice + offset", "lane = choice + offset"),
            "tell lanes apart by their increment alone": (
                "Pcg32(mix64((mix64(seed) + lane) & _MASK64) if lane else seed, lane)",
                "Pcg32(seed, lane)",
            ),
        },
    ),
    *mistakes(
        "loop.py",
        ("generate", "known_failures"),
        {
            "keep the KV of rejected drafts": (
                "_keep(target, cached, len(pending), path, kept)\n        stats",
                "pass\n        stats",
            ),
            "leave the drafts long near max_new": (
                "drafter.draft(cfg.k, max_depth)",
                "drafter.draft(cfg.k, cfg.k)",
            ),
            "shorten the drafts by one too few": ("room - len(output) - 1\n", "room - len(output)\n"),
            "deliver what comes after the end": ("                if reason:\n                    break\n", ""),
        },
    ),
    *mistakes(
        "loop.py",
        ("known_failures",),
        {
            "look for stop ids at the end of a round only": (
                "elif token in stops:",
                "elif token in stops and kept == len(verified.tokens):",
            ),
            "test the length before the stop ids": (
                'elif token in stops:\n                    reason = "stop"\n'
                '                elif len(output) == room:\n                    reason = "length"\n',
                'elif len(output) == room:\n                    reason = "length"\n'
                '                elif token in stops:\n                    reason = "stop"\n',
            ),
            "count accepted tokens that were not delivered": ("min(len(path), kept)", "len(path)"),
            "count the bonus token as accepted": ("min(len(path), kept)", "kept"),
            "end one token before the length limit": (
                "target.max_model_len - len(prompt) + 1)",
                "target.max_model_len - len(prompt))",
            ),
            "go one position past the length limit": (
                "target.max_model_len - len(prompt) + 1)",
                "target.max_model_len - len(prompt) + 2)",
            ),
            "let eos be drawn before min_tokens": (
                "    params = msgspec.structs.replace(params, stop_token_ids=tuple(sorted(stops)))\n",
                "",
            ),
        },
    ),
    *mistakes(
        "loop.py",
        ("generate",),
        {
            "ignore the listener's answer": (
                "if not on_token(token, logprob):",
                "if on_token(token, logprob) is None:",
            ),
            "draft without the emitted tokens": ("        drafter.append(verified.tokens)\n", ""),
        },
    ),
]

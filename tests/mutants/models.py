"""Mistakes to plant in the targets and proposers: the checked memory, the llamas, their products, the move of slots."""

from tests.mutants.mutant import Mutant

CHECKED, BRANCHES, PAGED, EXECUTION = (f"models/{n}.py" for n in ("checked_kv", "branches", "paged_kv", "execution"))
FAKE, PROPOSER, REPLAY, TARGET = (f"models/{n}.py" for n in ("fake", "fake_proposer", "replay", "runner_target"))
LLAMA, FAST, LINEAR = (f"models/{n}.py" for n in ("llama", "fast_llama", "linear"))
LANES, PACKING, PRODUCT, ROWS, PASSES = (
    f"models/kernels/{n}.py" for n in ("lanes", "packing", "product", "rows", "passes")
)


def mutant(name: str, path: str, old: str, new: str, *tests: str) -> Mutant:
    """`tests` are `file::test` under tests/models, without `test_`."""
    nodes = [test.partition("::") for test in tests]
    return Mutant(name, path, old, new, tuple(f"tests/models/test_{file}.py::test_{test}" for file, _, test in nodes))


MUTANTS = [
    # products
    mutant(
        "sum only the last panel of a wide input",
        LINEAR,
        "            total += joined[:, : self.num_outputs]\n",
        "            total = joined[:, : self.num_outputs]\n",
        "linear::every_input_counts",
    ),
    mutant(
        "skip the input between two panels",
        LINEAR,
        "slice(first, first + _MAX_INPUTS), _blocked(weights[:, first : first + _MAX_INPUTS])",
        "slice(first, first + _MAX_INPUTS - 1), _blocked(weights[:, first : first + _MAX_INPUTS - 1])",
        "linear::one_input_at_a_time",
    ),
    mutant(
        "hold powers to e**-20",
        LANES,
        "        x = self.larger(x, self.splat(-87.0))\n",
        "        x = self.larger(x, self.splat(-20.0))\n",
        "kernels::powers_are_right_as_far_down_as_a_float_goes",
    ),
    mutant(
        "round ln 2 to one part",
        LANES,
        "        r = self.fma(n, self.splat(2.12194440e-4), r)\n",
        "",
        "kernels::powers_are_right_as_far_down_as_a_float_goes",
    ),
    mutant(
        "leave out the last keys of a run that fill no vector",
        ROWS,
        "        with lanes.loop(lanes.b.urem(num_keys, I64(LANES))) as rest:\n",
        "        with lanes.loop(I64(0)) as rest:\n",
        "kernels::scores_and_mixtures_of_a_run_of_keys",
    ),
    mutant(
        "mix the pieces left over at the place of the first",
        ROWS,
        "            mix(head, num_heads, lanes.add(lanes.mul(wide, _PIECES), rest), 1)\n",
        "            mix(head, num_heads, rest, 1)\n",
        "kernels::scores_and_mixtures_of_a_run_of_keys",
    ),
    mutant(
        "mix for every head of three by the shares of the first",
        ROWS,
        "for each in heads]\n            parts",
        "for each in heads[:1] * num_heads]\n            parts",
        "kernels::scores_and_mixtures_of_a_run_of_keys",
    ),
    mutant(
        "take 7 off a weight of Q4_0",
        PRODUCT,
        "lanes.fma(inputs, lanes.splat(-8.0), running)",
        "lanes.fma(inputs, lanes.splat(-7.0), running)",
        "product::products_in_every_format_and_for_every_number_of_rows",
    ),
    mutant(
        "scale the sum so far once more with every block",
        PRODUCT,
        "            return lanes.fma(scale, running, total)\n",
        "            return lanes.b.fmul(scale, lanes.b.fadd(running, total))\n",
        "product::products_in_every_format_and_for_every_number_of_rows",
    ),
    mutant(
        "take the offset of Q4_1 for its scale",
        PRODUCT,
        "lanes.load(self._weights, lanes.add(strip_at, 2 * LANES), F16)",
        "lanes.load(self._weights, strip_at, F16)",
        "product::products_in_every_format_and_for_every_number_of_rows",
    ),
    mutant(
        "let the sums of one row's blocks serve all rows",
        PRODUCT,
        "lanes.add(lanes.mul(block, self._num_rows), row))\n        inputs",
        "lanes.mul(block, self._num_rows))\n        inputs",
        "product::products_in_every_format_and_for_every_number_of_rows",
    ),
    mutant(
        "lay a matrix over the end of the one before",
        PACKING,
        "    offsets = np.cumsum([0, *sizes[:-1]])\n",
        "    offsets = np.cumsum([0, *sizes[:-1]]) - _ALIGNMENT * (np.arange(len(sizes)) > 0)\n",
        "product::matrices_in_one_stretch_of_memory_lie_apart",
    ),
    # what a row may not see
    mutant(
        "let a value without weight into the sum",
        LLAMA,
        "            value_tiles[(length - 1) // _KEY_TILE, :, (length - 1) % _KEY_TILE + 1 :] = 0",
        "            0",
        "poison::a_rejected_draft[numpy-nan]",
        "poison::siblings_and_the_branches_below_them[numpy-nan]",
    ),
    mutant(
        "leave in the padding what a lost row wrote there",
        FAST,
        "        shared.x[: len(fed.ids), self.config.dim :] = 0",
        "        0",
        "poison::later_passes[numba-nan]",
    ),
    mutant(
        "let a branch see the slots before it",
        PASSES,
        "    return fed.paths[row, position - base], 1\n",
        "    return position, 1\n",
        "poison::siblings_and_the_branches_below_them[numba-nan]",
    ),
    mutant(
        "let a branch of the numpy llama see the slots before it",
        LLAMA,
        "                slots = fed.paths[row, : length - base]\n",
        "                slots = path\n",
        "trees::rows_of_the_numpy_llama_are_those_of_the_paths",
    ),
    mutant(
        "walk back through a tree slot by slot",
        CHECKED,
        "                slots = np.where(on_branch, steps.slots[branches], slots - 1)\n",
        "                slots = slots - 1\n",
        "trees::rows_of_the_fake_target_are_those_of_the_paths",
    ),
    mutant(
        "read a token before a context's first",
        CHECKED,
        "            is_there = rows.positions >= back\n",
        "            is_there = rows.positions >= back - 1\n",
        "fake::rows_are_those_of_the_definition",
    ),
    # trees
    mutant(
        "hang a branch on the one before it",
        BRANCHES,
        "    return stems, Branches(firsts[chunk_of] + index, chunk_of, starts[chunk_of] + index, parents, depths)\n",
        "    parents = np.where(parents >= 0, np.arange(len(parents)) - 1, -1)\n"
        "    return stems, Branches(firsts[chunk_of] + index, chunk_of, starts[chunk_of] + index, parents, depths)\n",
        "trees::rows_of_the_fake_target_are_those_of_the_paths",
        "trees::rows_of_the_numpy_llama_are_those_of_the_paths",
    ),
    mutant(
        "turn a node for its place among the ids",
        PAGED,
        "forks + branches.depths, forks\n",
        "branches.slots, forks\n",
        "trees::rows_of_the_numpy_llama_are_those_of_the_paths",
    ),
    mutant(
        "give a node's slot for its position",
        CHECKED,
        "            positions[branches.rows] = fed.forks[branches.chunk_of] + branches.depths\n",
        "",
        "trees::a_path_that_was_moved_together_is_a_context",
    ),
    mutant(
        "chain a branch to what was fed before it",
        CHECKED,
        "            before = sums[parents] if depth else stem_ends[branches.chunk_of[layer]]\n",
        "            before = sums[rows - 1]\n",
        "trees::a_path_that_was_moved_together_is_a_context",
    ),
    mutant(
        "take a tree's slots for checked",
        CHECKED,
        "np.maximum(fed.forks[fed.chunk_of[written]] - offsets, 1)",
        "np.maximum(fed.ends[fed.chunk_of[written]] - offsets, 1)",
        "trees::a_path_that_was_not_moved_together_is_a_mismatch",
    ),
    mutant(
        "take for checked what was moved into checked slots",
        CHECKED,
        "        np.minimum.at(self._num_chained, blocks, np.maximum(slots, 1))\n",
        "",
        "trees::a_move_into_what_had_been_checked_is_checked_again",
    ),
    mutant(
        "let a position pass that is not the slot's",
        CHECKED,
        "        is_wrong |= (words >> _POSITION).view(np.intp) != fed.ordinals * size\n",
        "",
        "trees::a_position_that_is_the_place_among_the_ids_is_found_where_the_node_is_to_serve",
    ),
    mutant(
        "leave the accepted path where it was fed",
        EXECUTION,
        "        model.move_slots(moves)\n",
        "        pass\n",
        "trees::what_is_accepted_of_a_tree_goes_on_as_a_chain",
        "trees::a_recording_follows_a_tree_with_rows_and_without",
    ),
    mutant(
        "move the path to before the pending tokens",
        EXECUTION,
        "            moves, _ = compaction(chunk.start, num_pending, result.path, len(result.tokens))\n",
        "            moves, _ = compaction(chunk.start, 0, result.path, len(result.tokens))\n",
        "trees::what_is_accepted_of_a_tree_goes_on_as_a_chain",
    ),
    mutant(
        "move keys without their values",
        PAGED,
        "        for memory in (self.keys, self.values):\n            memory[:, *dest",
        "        for memory in (self.keys,):\n            memory[:, *dest",
        "trees::accepted_nodes_serve_a_llama_like_a_chain",
    ),
    mutant(
        "recite a drafted token whatever it hangs on",
        REPLAY,
        "        if parents[node] == (path[-1] if path else -1) and drafted == tokens[-1]:\n",
        "        if drafted == tokens[-1]:\n",
        "trees::a_recording_follows_a_tree_with_rows_and_without",
    ),
    mutant(
        "recite on after a wrong token of a chain",
        REPLAY,
        "                if drafted != token:\n                    break\n",
        "",
        "replay::verification_without_rows_is_verification_with_rows",
    ),
    mutant(
        "give no block back when positions are forgotten",
        TARGET,
        "        self._free.extend(self._table[keep:])\n",
        "",
        "runner_target::truncate_gives_back_blocks_and_positions",
    ),
    # proposers
    mutant(
        "keep a proposer's nodes when tokens are fed",
        PROPOSER,
        "        self._memory.extend(chunks)\n        self._nodes = {}\n",
        "        self._memory.extend(chunks)\n",
        "fake_proposer::nodes_live_until_tokens_are_fed",
    ),
    mutant(
        "let a node see its sibling in place of its parent",
        PROPOSER,
        "_Node(token, parent, chained(before, token))",
        "_Node(token, node - 1, chained(before, token))",
        "fake_proposer::trees_of_many_sequences_grow_as_each_would_alone",
    ),
    mutant(
        "grow every tree in one place",
        PROPOSER,
        "        before = self._nodes[ask.place, parent].checksum if parent >= 0 else end\n",
        "        ask = ask._replace(place=0)\n"
        "        before = self._nodes[ask.place, parent].checksum if parent >= 0 else end\n",
        "fake_proposer::trees_of_many_sequences_grow_as_each_would_alone",
    ),
    mutant(
        "trust the nodes of another context",
        PROPOSER,
        "        if end != self._nodes[ask.place, node].checksum:\n",
        "        if False:\n",
        "fake_proposer::nodes_of_another_place_or_context_are_a_mismatch",
    ),
    mutant(
        "propose from the context without the tree's path",
        PROPOSER,
        "context + self._run(ask, node, sums[i]) for node",
        "context + self._run(ask, node, sums[i])[:0] for node",
        "fake_proposer::a_node_sees_its_ancestors_and_no_sibling",
    ),
    mutant(
        "mix target and other the wrong way round",
        PROPOSER,
        "(1 - mix) * _rows(self._other, contexts)",
        "mix * _rows(self._other, contexts)",
        "fake_proposer::laws_are_those_of_the_definition",
    ),
    mutant(
        "stray where it should not",
        PROPOSER,
        "np.array(draws) < self._strays",
        "np.array(draws) > self._strays",
        "fake_proposer::it_strays_after_the_share_of_contexts_that_it_is_told",
    ),
    # hidden states, and a second model that drafts
    mutant(
        "leave hidden states where the keys were moved from",
        PAGED,
        "        self.features.memory[destination] = self.features.memory[source]\n",
        "",
        "taps::an_accepted_path_takes_its_hidden_states_along",
    ),
    mutant(
        "keep hidden states a layer early",
        LLAMA,
        "                kv.keep(index + 1, x, fed)\n",
        "                kv.keep(index, x, fed)\n",
        "taps::the_first_tap_is_the_embedding_and_the_last_gives_the_logits",
    ),
    mutant(
        "keep in compiled code what a layer made and not what it was given",
        PASSES,
        "                keep(features, layer, fed, row, shared.x[row])  #",
        "                keep(features, layer + 1, fed, row, shared.x[row])  #",
        "taps::the_first_tap_is_the_embedding_and_the_last_gives_the_logits",
    ),
    mutant(
        "take what is in scratch for the chain that goes on",
        "models/draft_model.py",
        "            and self._num_held.get(ask.place, 0) == end\n",
        "",
        "draft_model::a_law_is_that_of_its_own_path_alone",
    ),
    mutant(
        "let all chains write to one scratch",
        "models/draft_model.py",
        "first = self._num_blocks + ask.place * _CHAIN_SLOTS // size",
        "first = self._num_blocks",
        "draft_model::a_law_is_that_of_its_own_path_alone",
    ),
    mutant(
        "let all trees of a pass write to one scratch",
        "models/draft_model.py",
        "            first = self._num_blocks + used\n",
        "            first = self._num_blocks\n",
        "draft_model::a_law_is_that_of_its_own_path_alone",
    ),
    mutant(
        "blind the law of a draft to the path",
        "models/laws.py",
        "ask.output_at(node) if",
        "ask.output if",
        "draft_model::a_law_is_that_of_its_own_path_alone",
    ),
    # rows of 8 bits
    mutant(
        "take the wrong half off weights of 4 bits",
        "models/kernels/int8.py",
        "Kind.Q4_0_INT8: 8,",
        "Kind.Q4_0_INT8: 7,",
        "int8::products_have_the_bits_of_plain_integer_arithmetic_for_any_number_of_rows",
    ),
    mutant(
        "forget the offset of a block",
        "models/kernels/int8.py",
        "        return lanes.fma(offsets, lanes.splat(lanes.scalar(self._sums, place)), total)\n",
        "        return total\n",
        "int8::products_have_the_bits_of_plain_integer_arithmetic_for_any_number_of_rows",
    ),
]

"""Mistakes to plant in draft heads: their files, and what proposes with them."""

from tests.mutants.mutant import Mutant

LINEAR, MEDUSA, EAGLE, LAYER, PARTS = (
    f"models/heads/{n}.py" for n in ("linear", "medusa", "eagle", "eagle_layer", "parts")
)
LAYOUTS, TENSORS, FILES, WEIGHTS = (f"models/heads/{n}.py" for n in ("layouts", "tensors", "files", "weights"))
PLACES = "models/kernels/place_attention.py"


def mutant(name: str, path: str, old: str, new: str, *tests: str) -> Mutant:
    """`tests` are `file::test` under tests/heads, without `test_`."""
    nodes = [test.partition("::") for test in tests]
    return Mutant(name, path, old, new, tuple(f"tests/heads/test_{file}.py::test_{test}" for file, _, test in nodes))


PAPER = "laws::the_forward_pass_of_the_paper"

MUTANTS = [
    # what is read of the target
    mutant(
        "draft from a feature that the target does not have yet",
        PARTS,
        "at = np.array([max(slot - 1, 0) for slot in slots], np.intp)",
        "at = np.array(slots, np.intp)",
        PAPER,
    ),
    mutant(
        "take what lies before the first slot for a feature",
        PARTS,
        "        states[np.array(slots, np.intp) == 0] = 0\n",
        "",
        "laws::laws_do_not_depend_on_company",
    ),
    mutant(
        "take any target",
        PARTS,
        "        if kept != (len(taps), config.dim):\n",
        "        if False:\n",
        "laws::targets_that_are_not_the_heads_are_refused",
    ),
    # the forward passes
    mutant(
        "leave the parts of a linear input as large as they are",
        LINEAR,
        "unit(parts, self._norm_eps).reshape",
        "parts.reshape",
        PAPER,
    ),
    mutant(
        "leave the parts of a linear input as large as they are, in compiled code",
        "models/kernels/packed_maps.py",
        "parts[row, part, i] * scale",
        "parts[row, part, i]",
        PAPER,
    ),
    mutant(
        "take the words of a file for rising",
        "models/heads/parts.py",
        "else words.output.reordered(np.argsort(words.ids))",
        "else words.output",
        "laws::words_in_any_order_are_the_same_words",
    ),
    mutant(
        "count places by all chunks",
        LINEAR,
        "[chunk.ids[-1] for chunk in chunks if chunk.num_rows]",
        "[chunk.ids[-1] for chunk in chunks]",
        "laws::places_are_counted_by_the_contexts_that_end",
    ),
    mutant(
        "draft every layer with the first head",
        MEDUSA,
        "self._run(depth, list(alone.values()))",
        "self._run(0, list(alone.values()))",
        PAPER,
    ),
    mutant(
        "leave the target's final state without its norm",
        EAGLE,
        "self._paired(rms_norm(features[:, 0], self._target_norm, self._config.norm_eps), tokens)",
        "self._paired(features[:, 0], tokens)",
        PAPER,
    ),
    mutant(
        "join an eagle's feature and embedding in the other order",
        EAGLE,
        "np.concatenate([self._embedded(tokens), features], axis=1)",
        "np.concatenate([features, self._embedded(tokens)], axis=1)",
        PAPER,
    ),
    mutant(
        "see the pair before the first",
        EAGLE,
        "np.arange(min(1, length - 1), length)",
        "np.arange(length)",
        PAPER,
    ),
    mutant(
        "draft after a context of one token with its pair in sight",
        EAGLE,
        "self._seen(ask.table, ask.length)[ask.length == 1 :]",
        "self._seen(ask.table, ask.length)",
        PAPER,
    ),
    mutant(
        "put siblings in one another's sight",
        EAGLE,
        "(*(parent.path if parent else ()), place) for parent",
        "(*range(self._num_slots, place), place) for parent",
        PAPER,
    ),
    mutant(
        "start the scratch over with every layer",
        EAGLE,
        "first = self._num_slots + len(self._nodes)",
        "first = self._num_slots",
        PAPER,
    ),
    mutant(
        "write drafted nodes into blocks",
        EAGLE,
        "first = self._num_slots + len(self._nodes)",
        "first = len(self._nodes)",
        "laws::laws_do_not_depend_on_company",
        "laws::blocks_are_shared_by_what_they_hold",
    ),
    mutant(
        "go on from the context below every node",
        EAGLE,
        "            self._nodes[ask.place, node] = _Node(state, path)\n",
        "            self._nodes[ask.place, node] = _Node(self._roots[ask.place], path)\n",
        PAPER,
    ),
    mutant(
        "leave the activation out of the layer",
        LAYER,
        "silu(self._gate(normed)) * self._up(normed)",
        "self._gate(normed) * self._up(normed)",
        PAPER,
    ),
    mutant(
        "end a run of places one early",
        PLACES,
        "while position + run < end and places[position + run] == places[position] + run:",
        "while position + run < end and places[position + run] >= places[position] + run:",
        "attention::rows_see_their_places_and_no_others",
    ),
    # files
    mutant(
        "leave q and k in halves",
        LAYOUTS,
        'proj("self_attn.k", config.kv_dim, in_dim).reordered(halves_to_pairs(config.num_kv_heads, config.head_dim))',
        'proj("self_attn.k", config.kv_dim, in_dim)',
        "files::what_is_written_is_read_again",
    ),
    mutant(
        "write q and k in pairs",
        LAYOUTS,
        "heads.q.reordered(np.argsort(halves_to_pairs(config.num_heads, config.head_dim)))",
        "heads.q.reordered(halves_to_pairs(config.num_heads, config.head_dim))",
        "files::eagle_has_its_published_names_and_rope_in_halves",
    ),
    mutant(
        "count the layers of eagle_config like those at the top",
        LAYOUTS,
        "tuple(layer + 1 for layer in nested)",
        "tuple(nested)",
        "files::the_layers_that_eagle3_fuses",
    ),
    mutant(
        "take d2t for target ids",
        TENSORS,
        'ids: Ints = np.arange(size) + self._integers("d2t", (size,))',
        'ids: Ints = self._integers("d2t", (size,))',
        "files::what_is_written_is_read_again",
    ),
    mutant(
        "leave tensors that nobody took",
        LAYOUTS,
        "    tensors.finish()\n",
        "",
        "files::bad_tensors",
    ),
    mutant(
        "ignore settings that are not known",
        FILES,
        "        check_keys({key: value for key, value in settings.items() if key not in _READ | _HARMLESS})\n",
        "",
        "files::bad_settings",
    ),
    mutant(
        "scale 8 bits by the whole row",
        WEIGHTS,
        "np.abs(blocks).max(axis=2) / 127",
        "np.abs(blocks).max(axis=(1, 2))[:, None].repeat(blocks.shape[1], 1) / 127",
        "files::eight_bits_are_near_and_are_eight_bits",
    ),
]

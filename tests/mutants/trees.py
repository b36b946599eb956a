"""Mistakes to plant in draft trees: how they grow, how they are judged, what stays of them."""

from tests.mutants.spec import mistakes

MUTANTS = [
    *mistakes(
        "verify_tree.py",
        ("verify_tree", "tree_law"),
        {
            "blind the penalties to the path that is matched": (
                "        node = next((child for child in below[node] if tree.tokens[child] == token), ROOT)\n"
                "        if node == ROOT:\n            return path, token\n"
                "        path.append(node)\n        counts.add(token)\n",
                "        node = next((child for child in below[node] if tree.tokens[child] == token), ROOT)\n"
                "        if node == ROOT:\n            return path, token\n"
                "        path.append(node)\n",
            ),
            "blind the penalties to the path that is resampled": ("        counts.add(tree.tokens[node])\n", ""),
            "blind the greedy penalties to the path": ("        counts.add(best)\n", ""),
            "draw no more once a sibling is accepted": (
                "uniforms = [rng.next_f64() for _ in siblings]  # all",
                "uniforms = [rng.next_f64() for _ in siblings[:1]] * len(siblings)  # all",
            ),
            "draw to resample before the siblings": (
                "            return path, sample_dense(r, u_resample)\n",
                "            return path, sample_dense(r, [*uniforms, u_resample][0])\n",
            ),
            "resample from the target's whole law": (
                "            r[x] = 0.0\n            left",
                "            left",
            ),
            "judge every sibling against the whole law": (
                "            r, spare, mass = spare, r, left\n",
                "            pass\n",
            ),
            "leave a drawn sibling in the law of the next": (
                "            q[x] = 0.0\n            q_mass",
                "            q_mass",
            ),
            "judge all independent siblings by one law": ("if q is None or not is_distinct:", "if q is None:"),
            "leave the law of distinct siblings unnormalised": ("            q_mass = q.sum()\n", ""),
            "leave unnormalised what the siblings left": ("                mass = left\n", "                pass\n"),
            "accept a sibling by p alone": (
                "if u < r[x] / (share * q[x]):",
                "if u < r[x] / mass:",
            ),
            "take the row of the node for that of its parent": (
                "        r = law_of(rows[node + 1], params, counts)\n",
                "        r = law_of(rows[max(0, node)], params, counts)\n",
            ),
            "match on by the row before": (
                "token = sample_dense(law_of(rows[node + 1]",
                "token = sample_dense(law_of(rows[max(0, node)]",
            ),
            "read the log-probabilities off the first rows": (
                "of_rows = [0, *(node + 1 for node in path)]",
                "of_rows = [*range(len(path) + 1)]",
            ),
            "move the generator though the tree fails": ("        rng.state = state\n", "        pass\n"),
        },
    ),
    *mistakes(
        "verify_tree.py",
        ("verify_tree", "golden_trees", "batch"),
        {
            "take equal siblings": ("        seen.add(edge)\n", ""),
            "follow the first child whatever its token": (
                "        node = next((child for child in below[node] if tree.tokens[child] == best), ROOT)\n",
                "        node = next(iter(below[node]), ROOT)\n",
            ),
        },
    ),
    *mistakes(
        "traversal.py",
        ("verify_tree", "tree_law"),
        {
            "judge a child as if its parent were accepted": (
                "min(1.0, a * float(p[x] / q[x]))",
                "min(1.0, float(p[x] / q[x]))",
            ),
            "let a child's share grow beyond one": ("min(1.0, a * float(p[x] / q[x]))", "a * float(p[x] / q[x])"),
            "forget what the path down to a node is worth in its residual": ("a * p - q", "p - q"),
            "keep a node's share though its child had some": (
                "a = 1.0 if node == ROOT else s / (s + 1 - a) if s > 0 else 0.0",
                "a = 1.0 if node == ROOT else a",
            ),
            "leave a drawn sibling in the law of the next, from the leaves up": (
                "            if is_distinct:\n                q = without(q, x)\n",
                "",
            ),
            "blind the penalties to the path, from the leaves up": (
                "            with counts.counting(x):\n                accepted",
                "            if True:\n                accepted",
            ),
            "draw nothing for a node that cannot be accepted": (
                "if node != ROOT and not rng.next_f64() < a:",
                "if node != ROOT and not (a > 0 and rng.next_f64() < a):",
            ),
            "draw for the root": ("if node != ROOT and not rng.next_f64() < a:", "if not rng.next_f64() < a:"),
            "end with the law before any child was judged": (
                "        if p is None:\n            p = law_of(rows[node + 1], params, counts)\n        return",
                "        p = law_of(rows[node + 1], params, counts)\n        return",
            ),
        },
    ),
    *mistakes(
        "children.py",
        ("golden_trees", "tree_law"),
        {
            "give equal probabilities to the higher id": (
                'np.argsort(-q[candidates], kind="stable")',
                'np.argsort(-q[candidates][::-1], kind="stable")',
            ),
            "draw distinct children with repeats": ("        left = without(left, taken[-1])\n", ""),
            "leave the law without a token unnormalised": ("        left /= mass\n", "        pass\n"),
            "draw once more when the children are taken": (
                "        if len(taken) == num_children:\n            break\n        left",
                "        if len(taken) == num_children:\n            rng.next_f64()\n            break\n        left",
            ),
        },
    ),
    *mistakes(
        "growth.py",
        ("golden_trees", "tree_law", "tree_generate", "draft_vocabulary"),
        {
            "drop a drawn node by its own value": (
                "if rank >= len(tokens) or q[taken[rank]] < self._p_min:",
                "if rank >= len(tokens) or q[taken[rank]] < max(self._p_min, 0.2):",
            ),
            "verify by a law over the draft vocabulary": (
                'law = q if self._children == "top" or self._vocabulary is None else self._vocabulary.widen(q)',
                "law = q",
            ),
            "hand over a law that was not drawn from": (
                "                self._laws.append(law)\n",
                "                self._laws.append(laws[0])\n",
            ),
            "forget what the path is worth": (
                "self._values.append(value * float(q[word]))",
                "self._values.append(float(q[word]))",
            ),
            "keep the nodes of a dynamic tree by their order": (
                "order = sorted(range(len(self.tokens)), key=lambda node: (-self._values[node], self._depths[node]))",
                "order = list(range(len(self.tokens)))",
            ),
            "grow a dynamic tree from every node of a layer": (
                "self.frontier = layer[: self._top] if self._layers_left > 0 else []",
                "self.frontier = layer if self._layers_left > 0 else []",
            ),
            "number the parents of kept nodes as they were": (
                "[number[self.parents[node]] for node in kept]",
                "[self.parents[node] for node in kept]",
            ),
            "take the open node that was pushed last": (
                "(-of_child, self._depth + 1, self._num_pushed, token, node)",
                "(-of_child, self._depth + 1, -self._num_pushed, token, node)",
            ),
            "take a best-first node below the floor": (
                "            if -negative < self._min_prob:\n                return\n",
                "",
            ),
            "grow one layer too many": (
                "self._layers_left = min(shape.max_depth, max_depth)",
                "self._layers_left = min(shape.max_depth, max_depth + 1)",
            ),
        },
    ),
    *mistakes(
        "layout.py",
        ("golden_trees", "tree_generate"),
        {
            "leave in nodes that are too deep": ("if len(path) > max_depth:", "if len(path) > max_depth + 1:"),
        },
    ),
    *mistakes(
        "sequoia.py",
        ("golden_trees", "tree_generate"),
        {
            "take likely children before unlikely elder siblings": (
                "if all(better >= worse for better, worse in pairwise(acceptance)):",
                "if True:",
            ),
            "count no layers": ("(pass_cost[n + 1] + depth * layer_cost)", "pass_cost[n + 1]"),
            "count a pass without the root's row": ("(pass_cost[n + 1] + depth", "(pass_cost[n] + depth"),
        },
    ),
    *mistakes(
        "tree.py",
        ("golden_trees", "tree_generate"),
        {
            "move accepted nodes over others that are still to move": (
                "moves = [(first + node, first + depth) for depth, node in enumerate(kept) if node != depth]",
                "moves = [(first + node, first + depth) for depth, node in enumerate(kept) if node != depth][::-1]",
            ),
            "move the last delivered token too": ("path[: max(0, num_kept - 1)]", "path[:num_kept]"),
            "leave the accepted path where it was": ("if node != depth]", "if node < depth]"),
            "feed the tree after the first pending token": (
                "*(num_pending + parent for parent in self.parents)",
                "*(num_pending + parent if parent >= 0 else 0 for parent in self.parents)",
            ),
            "let a node be its own parent": ("if not ROOT <= parent < node:", "if not ROOT <= parent <= node:"),
        },
    ),
    *mistakes(
        "tree_batch.py",
        ("batch",),
        {
            "read the row of the node before, in a batch": (
                "firsts[j] + at[j] + 1 for j",
                "firsts[j] + max(0, at[j]) for j",
            ),
            "overlook a bad row of a tree in a batch": (
                "                check_row(row, token)\n",
                "                pass\n",
            ),
        },
    ),
    *mistakes(
        "batch.py",
        ("batch", "verify_tree"),
        {
            "read the log-probabilities of a tree off its first rows": (
                "of_rows += (first, *(first + node + 1 for node in paths[i]))",
                "of_rows.extend(range(first, first + len(emitted)))",
            ),
            "verify a tree as if its children had been drawn otherwise": (
                "            children=round_.drawn,\n",
                '            children="top" if round_.draft_probs is None else "iid",\n',
            ),
        },
    ),
    *mistakes(
        "config.py",
        ("config", "tree_generate"),
        {
            "let a tree depend on what was drawn": ("        check_children(self.tree_shape, self.children)\n", ""),
            "let any rule go with any children": ("        check_rule(self.rule, self.children)\n", ""),
            "draw children at temperature 0": (
                "        if params.is_greedy:\n",
                "        if False:\n",
            ),
        },
    ),
    *mistakes(
        "loop.py",
        ("tree_generate", "golden_trees"),
        {
            "draw the draft from the target's stream": (
                "rng, draft_rng = stream(seed, choice), draft_stream(seed, choice)",
                "rng = draft_rng = stream(seed, choice)",
            ),
            "propose after the prompt alone": (
                "proposer.begin(prompt, output, cfg.draft_params(params))",
                "proposer.begin(prompt, [], cfg.draft_params(params))",
            ),
            "leave the accepted path in the slots of its nodes": ("        target.move_slots(moves)\n", ""),
            "count a node as accepted at the depth of the path": (
                "            self.accepted_by_depth[depth] += 1",
                "            self.accepted_by_depth[num_accepted - 1] += 1",
            ),
        },
    ),
]

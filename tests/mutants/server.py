"""Mistakes in the front door: connections, bodies, texts, and what is told of them."""

from tests.mutants.engine import mutant

CONNECTIONS, BODIES, ENCODING, DOOR = (f"server/{name}.py" for name in ("connections", "bodies", "encoding", "door"))
GENERATION, JOB, REPLIES, TEXT = (f"server/{name}.py" for name in ("generation", "job", "replies", "text"))

LEAVES = "server/connections::whoever_leaves_takes_along_all_he_asked"

AFFINITY = "server/replicas/affinity.py"

MUTANTS = [
    # replicas
    mutant(
        "route by the shortest beginning",
        AFFINITY,
        "for key in reversed(keys) if",
        "for key in keys if",
        "server/affinity::the_longest_beginning_decides",
    ),
    mutant(
        "crowd one replica, however busy it is",
        AFFINITY,
        "if known is None or num_open[known] - num_open[by_load[0]] > _MAX_LEAD:",
        "if known is None:",
        "server/affinity::a_replica_that_is_gone_or_much_busier_is_passed_over",
    ),
    mutant(
        "route together what is cached apart",
        AFFINITY,
        "hashlib.blake2b(salt, digest_size=8)",
        "hashlib.blake2b(digest_size=8)",
        "server/affinity::what_is_cached_apart_is_routed_apart",
    ),
    mutant(
        "count the blocks of the last replica only",
        "server/load.py",
        "sum(float(value) for each, value in found if each == state)",
        "[float(value) for each, value in found if each == state][-1]",
        "server/load::blocks_of_all_replicas_are_counted",
    ),
    mutant(
        "take what seeds come to as it comes",
        "sims/explore/campaign.py",
        "            while order and order[0] in early:\n                yield order[0], early.pop(order.popleft())\n",
        "            yield seed, early.pop(seed)\n",
        "explore/campaign::a_campaign_comes_to_the_same_wherever_its_seeds_run",
    ),
    mutant(
        "judge by the default rule whatever is configured",
        JOB,
        "verify=body.verify,",
        'verify=body.verify or "resample",',
        "server/bodies::the_rule_is_the_configurations_where_a_request_has_none",
    ),
    # connections
    mutant(
        "tell of a lost connection only the request that was read last",
        CONNECTIONS,
        "        self._wait(None)\n        self._end_requests()\n        super().connection_lost(exc)\n",
        "        self._wait(None)\n        super().connection_lost(exc)\n",
        LEAVES,
    ),
    mutant(
        "read no further once a request is sent ahead",
        CONNECTIONS,
        "            self.flow.resume_reading()\n",
        "            pass\n",
        LEAVES,
    ),
    mutant(
        "keep whatever is sent ahead",
        CONNECTIONS,
        "        if len(self.pipeline) > _MAX_AHEAD or self._num_bytes_ahead > self._all.config.max_body_bytes:\n",
        "        if False:\n",
        "server/connections::there_is_an_end_to_what_may_be_sent_ahead",
    ),
    mutant(
        "bound whole headers only",
        CONNECTIONS,
        "        if self._num_raw_bytes > self._all.config.max_header_bytes:\n",
        "        if False:\n",
        "server/connections::heads_are_bounded",
    ),
    mutant(
        "never lose patience with a body",
        CONNECTIONS,
        "            self._wait(self._all.config.body_timeout_s, self._give_up_body)\n\n    # from the parser",
        "            pass\n\n    # from the parser",
        "server/connections::who_does_not_get_on_with_it_is_told",
    ),
    mutant(
        "lose patience with a body that comes slowly",
        CONNECTIONS,
        "        elif self.is_uploading and not self.cycle.response_complete:\n",
        "        elif self.is_uploading and not self.cycle.response_complete and self._patience is None:\n",
        "server/connections::a_slow_but_steady_body_is_taken",
    ),
    mutant(
        "count connections in and never out",
        CONNECTIONS,
        "            self.open.remove(connection)\n",
        "            pass\n",
        "server/connections::connections_are_bounded",
    ),
    mutant(
        "wait for uploads whatever is signalled",
        "server/serve.py",
        "        self.num_cut = self._service.close() + self._connections.end_uploads()\n",
        "        self.num_cut = self._service.close()\n",
        "server/connections::a_second_signal_ends_it_whatever_is_being_uploaded",
    ),
    mutant(
        "send chunks to who cannot read them",
        CONNECTIONS,
        '        if cycle.scope["http_version"] == "1.0":\n',
        "        if False:\n",
        "server/connections::http_1_0_gets_no_chunks",
    ),
    # who is let in
    mutant(
        "hear whoever speaks to another host",
        DOOR,
        "        if name in self._allowed or (self._is_local and _is_loopback(name)):\n",
        "        if True:\n",
        "server/door::only_who_speaks_to_this_machine_is_heard",
    ),
    mutant(
        "take a name that begins like this machine's",
        DOOR,
        'return host == "localhost" or host.endswith(".localhost")',
        'return host.startswith("localhost") or host.endswith(".localhost")',
        "server/door::only_who_speaks_to_this_machine_is_heard",
    ),
    mutant(
        "share prefixes over keys",
        "server/keys.py",
        "        return hashlib.sha256(self._keys[matches.index(True)]).hexdigest()[:32]\n",
        "        return None\n",
        "server/openai_client::keys",
    ),
    mutant(
        "open requests while closing",
        "server/service.py",
        "        if self._is_closing:\n",
        "        if False:\n",
        "server/failing_engine::nothing_is_opened_while_the_server_closes",
    ),
    # bodies
    mutant(
        "take one for true",
        BODIES,
        "any(isinstance(value, bool) == isinstance(v, bool) and value == v for v in allowed)",
        "any(value == v for v in allowed)",
        "server/bodies::refused_by_name",
    ),
    mutant(
        "look for unknown parameters at the top only",
        BODIES,
        "        for name, inner in NESTED.get(kind, {}).items():\n",
        "        for name, inner in {}.items():\n",
        "server/bodies::unknown_parameters_are_counted_or_refused",
    ),
    mutant(
        "pass over what other servers would do",
        BODIES,
        "                raise _unsupported(path + name, neutral[name])\n",
        "                pass\n",
        "server/bodies::refused_by_name",
    ),
    mutant(
        "pass over calls of tools that the template does not render",
        "server/conversation.py",
        "            if tokenizer.chat(silent) == ids:\n",
        "            if False:\n",
        "server/bodies::tool_calls_in_a_history_reach_the_template",
    ),
    mutant(
        "read large bodies one right after the other",
        BODIES,
        "                await anyio.sleep(_REST * (anyio.current_time() - start_s))\n",
        "                pass\n",
        "server/encoding::between_two_large_bodies_others_have_their_turn",
    ),
    mutant(
        "encode first and count then",
        ENCODING,
        "        if num_bytes > self._max_bytes:\n",
        "        if False:\n",
        "server/encoding::what_has_too_many_bytes_is_never_encoded",
    ),
    mutant(
        "encode as many long texts at once as come",
        ENCODING,
        "anyio.to_thread.run_sync(work, limiter=self._limiter)",
        "anyio.to_thread.run_sync(work)",
        "server/encoding::long_texts_take_turns_off_the_loop",
    ),
    mutant(
        "encode for who has left",
        BODIES,
        "        tasks.start_soon(watch, tasks.cancel_scope)\n",
        "",
        "server/encoding::who_has_left_has_nothing_encoded",
    ),
    # choices
    mutant(
        "number choices within their prompt",
        JOB,
        "                choice=choice,\n",
        "                choice=choice % n,\n",
        "server/choices::choices_agree_as_often_as_chance_has_it",
    ),
    mutant(
        "take some of a request's choices where there is no room for all",
        GENERATION,
        "            self._engine.check_room(len(self.job.requests))",
        "            self._engine.check_room(1)",
        "server/overload::a_full_queue_refuses_and_says_when_to_come_again",
    ),
    mutant(
        "leave what was submitted when the answer is cut short",
        GENERATION,
        "        finally:\n            self.let_go()\n",
        "        finally:\n",
        "server/disconnects::cancelled_from_outside_before_anything_was_sent",
    ),
    # texts
    mutant(
        "stop at a stop string one token early",
        GENERATION,
        "may_stop = choice.num_tokens > request.params.min_tokens",
        "may_stop = choice.num_tokens >= request.params.min_tokens",
        "server/streaming::the_first_token_that_may_stop_is_the_one_after_min_tokens",
    ),
    mutant(
        "stop at the stop string that begins first",
        TEXT,
        "            return self._held[: min(found)[1]]\n",
        "            return self._held[: min(start for _, start in found)]\n",
        "server/text::of_two_in_one_token_the_one_that_is_complete_first",
    ),
    mutant(
        "send what may yet be a stop string",
        TEXT,
        "        keep = max(map(self._overlap, self._stops))\n",
        "        keep = 0\n",
        "server/text::wherever_tokens_are_cut",
    ),
    mutant(
        "show the token that ends a text",
        GENERATION,
        "                if token.id not in stop_ids:",
        "                if True:",
        "server/streaming::the_stop_token_is_counted_and_not_shown",
    ),
    mutant(
        "count a character once for each of its tokens",
        TEXT,
        "        self._num_chars += len(self._decoder.decode(data))\n",
        '        self._num_chars += len(data.decode("utf-8", "replace"))\n',
        "server/text::a_token_begins_where_its_first_character_does",
    ),
    mutant(
        "send characters that end a line",
        "server/events.py",
        "            data = data.replace(line_end, escaped)\n",
        "            pass\n",
        "server/events::no_character_ends_a_line_within_an_event",
    ),
    # what is told
    mutant(
        "score a token by itself",
        "server/scoring.py",
        "        fed, self._last = self._last + ids[:-1], ids[-1:]\n",
        "        fed, self._last = ids[:] if self._last else ids[1:], ids[-1:]\n",
        "server/alternatives::each_token_is_scored_by_what_came_before_it",
    ),
    mutant(
        "give the alternatives of the prompt's tokens for one's own",
        REPLIES,
        "        scored = choice.scored[len(self._job.requests[choice.index].prompt) + token.index]\n",
        "        scored = choice.scored[token.index]\n",
        "server/alternatives::likeliest_tokens_of_a_chat",
    ),
    mutant(
        "tell of drafts behind a stop string",
        REPLIES,
        "stream.speculation(choice.num_tokens)",
        "stream.speculation()",
        "server/streaming::what_speculation_did_is_told_of_the_text_that_was_given",
    ),
    mutant(
        "count what the cache had of a prompt once for each of its choices",
        REPLIES,
        "for stream in streams[::per_prompt])",
        "for stream in streams)",
        "server/openai_client::a_prompt_counts_once_however_many_choices_it_has",
    ),
    mutant(
        "count no sequence that was left",
        GENERATION,
        "                timer.give_up()\n",
        "                pass\n",
        "server/metrics::gauges_return_to_zero_after_everything_is_cancelled",
    ),
    mutant(
        "count labels that clients make up",
        DOOR,
        '        return "/v1/models/{id}" if path.startswith("/v1/models/") else "none"\n',
        "        return path\n",
        "server/door::requests_are_counted_by_what_they_ask_for",
    ),
]

"""One HTTP request in the engine's hands: submitted, followed to its end, and let go of by whatever way it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Protocol

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors import Emitted, Engine, EngineFailed, EngineFull, RequestError, Stream, Token
from server.config import ServerConfig
from server.errors import ApiError, json_response
from server.events import EventSink
from server.job import Job, refused
from server.metrics import Latencies, Timer
from server.replies import Choice, Replies
from server.scoring import Reading, Scorer
from server.text import TextOfTokens

RETRY_AFTER_S = 1

Say = Callable[[Choice, str, list[Token]], Awaitable[None]]
LEFT = 499
"""The status of a request whose client left before its answer was complete; nobody is told it."""


class Desk(Protocol):
    """Who keeps the list of what is open."""

    def opened(self, generation: "Generation") -> None:
        """Take note of a generation that begins."""

    def closed(self, generation: "Generation") -> None:
        """Take note of one that has ended or was left."""


class Generation(Response):
    """The response to a job. Requests are submitted, and left again, inside its call and nowhere else.

    Whatever ends the call - the answer, a client that leaves, a cancelled task, middleware that never comes back - the
    streams are left on the way out, synchronously; the engine frees what they held.
    """

    def __init__(
        self,
        job: Job,
        replies: Replies,
        engine: Engine,
        scorer: Scorer,
        desk: Desk,
        latencies: Latencies,
        config: ServerConfig,
    ) -> None:
        super().__init__()
        self.job = job
        self.streams: list[Stream] = []
        self.choices = [Choice(i) for i in range(len(job.requests))]
        self.status = LEFT
        self._timers: list[Timer] = []
        self._began_s = anyio.current_time()
        self._extra_headers = {"x-request-id": job.id}
        self._replies = replies
        self._engine = engine
        self._scorer = scorer
        self._desk = desk
        self._latencies = latencies
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Submit, answer, and let go."""
        #   nobody hears that a client has left, but some middleware fails where nothing is answered
        answer = None if self.job.is_stream else Response(status_code=LEFT)
        try:
            self._desk.opened(self)
            self._submit()
            with anyio.CancelScope() as while_there:
                async with asyncio.TaskGroup() as tasks:  # five times cheaper than anyio's
                    watcher = tasks.create_task(self._watch(receive, while_there))
                    if self.job.is_stream:
                        with closing(EventSink(send, self._config, while_there.cancel, tasks.create_task)) as events:
                            await self._stream(events)
                    else:
                        answer = await self._whole()
                    watcher.cancel()
            self.let_go()
            if answer is not None:
                await answer(scope, receive, send)
        except ApiError as refusal:
            self.status = refusal.status
            await refusal.response()(scope, receive, send)
        except Exception:
            self.status = 500
            raise
        finally:
            self.let_go()
            for timer in self._timers:
                timer.give_up()
            self._desk.closed(self)

    @property
    def account(self) -> str:
        """Id, status, tokens and times, in a line, and nothing of the text."""
        streams = self.streams
        num_prompt = sum(len(request.prompt) for request in self.job.requests[: len(streams)])
        num_cached = sum(stream.num_cached_tokens or 0 for stream in streams)
        num_emitted = sum(stream.num_emitted for stream in streams)
        reasons = ",".join(stream.finish_reason or "left" for stream in streams) or "none"
        first_s = [timer.ttft_s for timer in self._timers if timer.ttft_s is not None]
        ttft = f"{1000 * min(first_s):.1f} ms" if first_s else "none"
        return (
            f"{self.job.id} status {self.status}, {num_prompt} tokens of prompt ({num_cached} cached), "
            f"{num_emitted} emitted, finished {reasons}; first token {ttft}, "
            f"all {1000 * (anyio.current_time() - self._began_s):.1f} ms"
        )

    def let_go(self) -> None:
        """Cancel what is still running; at once, and without waiting for it."""
        for stream in self.streams:
            stream.leave()

    def _submit(self) -> None:
        try:
            self._engine.check_room(len(self.job.requests))  # all of a request's completions, or none
            for request in self.job.requests:
                stream = self._engine.submit(request)
                self.streams.append(stream)
                self._timers.append(self._latencies.start(stream))
        except RequestError as error:
            raise refused(error) from None
        except EngineFull as error:
            headers = {"retry-after": str(RETRY_AFTER_S)}
            raise ApiError(429, f"overloaded: {error}", code="overloaded", headers=headers) from None
        except EngineFailed as error:
            raise ApiError(503, f"the engine has failed: {error}", code="engine_failed") from None

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        """Wait for the client to leave, and drop everything when it does."""
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _stream(self, events: EventSink) -> None:
        """Answer in chunks; where the engine ends a choice before its time, the last one is an error."""
        replies = self._replies
        is_alone = len(self.choices) == 1

        async def say(choice: Choice, text: str, tokens: list[Token]) -> None:
            chunk = replies.chunk(choice, text, tokens)
            if choice.is_over and is_alone:
                events.hold(chunk)  # what comes next comes at once
            else:
                await events.put(chunk)

        await events.start(self._extra_headers)
        if self.job.is_chat:
            for choice in self.choices:
                await events.put(replies.first_chunk(choice.index))
        error = await self._follow_all(say)
        self.status = 200 if error is None else error.status  # a client that leaves from here on has it all
        if error is not None:
            await events.end(error.body)
        elif self.job.includes_usage:
            await events.end(replies.usage_chunk(self.choices, self.streams))
        else:
            await events.end()

    async def _whole(self) -> Response:
        """Answer at once; an error where the engine ends a choice before its time."""

        async def say(choice: Choice, text: str, tokens: list[Token]) -> None:
            choice.text += text
            choice.tokens += tokens

        error = await self._follow_all(say)
        if error is not None:
            self.status = error.status
            return error.response()
        self.status = 200
        return json_response(self._replies.whole(self.choices, self.streams), headers=self._extra_headers)

    async def _follow_all(self, say: Say) -> ApiError | None:
        """Follow every choice to its end; where the engine ends one before its time, drop all and give the error."""
        if len(self.choices) == 1:
            return await self._follow(self.choices[0], self.streams[0], say)
        errors: list[ApiError] = []

        async def follow(choice: Choice, stream: Stream) -> None:
            error = await self._follow(choice, stream, say)
            if error is not None:
                errors.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for choice, stream in zip(self.choices, self.streams, strict=True):
                tasks.start_soon(follow, choice, stream)
        return errors[0] if errors else None

    async def _follow(self, choice: Choice, stream: Stream, say: Say) -> ApiError | None:
        """Say what a stream says, up to its end or a stop string."""
        job, request = self.job, self.job.requests[choice.index]
        if not job.num_top and not (job.echoes and job.wants_logprobs):
            return await self._say_all(choice, stream, say, None)
        async with self._scorer.open(len(request.prompt) + request.max_tokens, job.num_top) as reading:
            return await self._say_all(choice, stream, say, reading)

    async def _say_all(self, choice: Choice, stream: Stream, say: Say, reading: Reading | None) -> ApiError | None:
        timer = self._timers[choice.index]
        request = self.job.requests[choice.index]
        if reading is not None:
            choice.scored = await reading.score(request.prompt)
        if self.job.echoes:
            tokens = self._replies.echo(choice, request.prompt)
            await say(choice, self._replies.text_of(tokens), tokens)
        text = TextOfTokens(self.job.stops)
        ends = {*request.eos, *request.params.stop_token_ids}
        unsaid = ""
        pending: list[Token] = []  # taken, and their text not said
        is_next, is_stream = True, self.job.is_stream
        async for emitted in stream.rounds():
            if is_next:
                timer.tick()
            if reading is not None and self.job.num_top:
                choice.scored += await reading.score(list(emitted.ids))
            unsaid += self._take(choice, emitted, text, ends, pending)
            if text.is_stopped:
                break
            is_next = not stream.num_unread
            if unsaid and is_stream and is_next and stream.finish_reason is None:
                await say(choice, unsaid, pending)
                unsaid, pending = "", []
        if not text.is_stopped and stream.finish_reason not in ("stop", "length"):
            if unsaid:
                await say(choice, unsaid, pending)
            return _interrupted(stream)
        unsaid += text.finish()
        choice.is_over = True
        if unsaid or pending:
            await say(choice, unsaid, pending)
        choice.finish_reason = "stop" if text.is_stopped else str(stream.finish_reason)
        stream.leave()
        timer.finish(choice.finish_reason)
        await say(choice, "", [])
        return None

    def _take(
        self, choice: Choice, emitted: Emitted, text: TextOfTokens, ends: AbstractSet[int], pending: list[Token]
    ) -> str:
        """Take a round, as far as a stop string is not complete in it, and give the text that it releases."""
        job, bytes_of = self.job, self._replies.bytes_of
        parts = [b"" if i in ends else bytes_of(i) for i in emitted.ids]  # what ends a text is no part of it
        num_tokens = len(parts)
        if not job.stops:
            released = text.push(b"".join(parts))
        else:
            released, min_tokens = "", job.requests[choice.index].params.min_tokens
            for num_tokens, part in enumerate(parts, 1):
                released += text.push(part, may_stop=choice.num_tokens + num_tokens > min_tokens)
                if text.is_stopped:
                    break
        choice.num_tokens += num_tokens
        if job.shows_tokens:
            pending += [emitted.token(i) for i in range(num_tokens)]
        return released


def _interrupted(stream: Stream) -> ApiError:
    if stream.finish_reason == "error":
        return ApiError(500, f"the engine failed: {stream.error}", code="engine_failed")
    return ApiError(503, "the server is shutting down", code="shutting_down")

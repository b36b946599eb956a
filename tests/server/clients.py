"""Other people's clients, each in a process of its own: `python -m tests.server.clients NAME BASE_URL`."""

import asyncio
import inspect
import sys

HI = {"role": "user", "content": "Tell me of lama and budo."}
MORE = {"role": "user", "content": "Go on."}


def litellm(base_url):
    import litellm

    about = {"api_base": base_url, "api_key": "none", "max_tokens": 8, "num_retries": 0}
    answer = litellm.completion("openai/fake", [HI], user="me", **about)
    history = [HI, answer.choices[0].message.model_dump(), MORE]
    again = litellm.completion("openai/fake", history, tools=None, **about)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens
    chunks = litellm.completion(
        "openai/fake", [HI], stream=True, seed=1, stream_options={"include_usage": True}, **about
    )
    whole = litellm.completion("openai/fake", [HI], seed=1, **about)
    told = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert told == whole.choices[0].message.content != ""
    assert litellm.text_completion("ba", model="text-completion-openai/fake", **about).choices[0].text


def langchain_openai(base_url):
    import langchain_openai

    about = {"model": "fake", "base_url": base_url, "api_key": "none", "seed": 1, "max_retries": 0}
    chat = langchain_openai.ChatOpenAI(max_tokens=8, stream_usage=True, **about)
    answer = chat.invoke([("system", "Be brief."), ("human", HI["content"])])
    assert chat.invoke([("human", HI["content"]), answer, ("human", MORE["content"])]).content
    chunks = list(chat.stream([("system", "Be brief."), ("human", HI["content"])]))
    assert "".join(chunk.content for chunk in chunks) == answer.content != ""
    assert [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata] == [8]
    assert langchain_openai.OpenAI(max_tokens=8, **about).invoke("ba")


def llama_index(base_url):
    from llama_index.core import llms
    from llama_index.llms import openai_like

    about = {"model": "fake", "api_base": base_url, "api_key": "none", "max_tokens": 8, "max_retries": 0}
    chat = openai_like.OpenAILike(is_chat_model=True, **about)
    asked = llms.ChatMessage(**HI)
    answer = chat.chat([asked]).message
    assert chat.chat([asked, answer, llms.ChatMessage(**MORE)]).message.content
    assert "".join(part.delta for part in chat.stream_chat([asked]))
    plain = openai_like.OpenAILike(is_chat_model=False, **about)
    assert plain.complete("ba").text
    assert "".join(part.delta for part in plain.stream_complete("ba"))


async def pydantic_ai(base_url):
    import pydantic_ai
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers import openai as providers

    model = models.OpenAIChatModel("fake", provider=providers.OpenAIProvider(base_url=base_url, api_key="none"))
    agent = pydantic_ai.Agent(model, system_prompt="Be brief.", model_settings={"max_tokens": 8, "seed": 1})
    answer = await agent.run(HI["content"])
    assert (await agent.run(MORE["content"], message_history=answer.all_messages())).output
    async with agent.run_stream(HI["content"]) as stream:
        assert "".join([text async for text in stream.stream_text(delta=True)]) == answer.output != ""


CLIENTS = {
    "litellm": litellm,
    "langchain_openai": langchain_openai,
    "llama_index.llms.openai_like": llama_index,
    "pydantic_ai": pydantic_ai,
}

if __name__ == "__main__":
    done = CLIENTS[sys.argv[1]](sys.argv[2])
    if inspect.iscoroutine(done):
        asyncio.run(done)

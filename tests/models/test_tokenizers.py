"""Tokenizers and chat templates as the folders of model hubs have them."""

import json
import threading

import pytest

from models.loading import SafetensorsFolder, Tokenizer
from tests.models.folders import bpe, write_model

pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")
pytest.importorskip("jinja2", reason="chat templates need outrider[real]")

HI = [{"role": "user", "content": "hell"}]


def tokenizer_of(path, **files):
    write_model(path, **files)
    return SafetensorsFolder(path).tokenizer()


def with_template(source, strftime_now=None, **about):
    built = bpe()
    ids = {name: built.token_to_id(token) for name, token in about.items()}
    return Tokenizer(built, vocab_size=97, chat_template=source, strftime_now=strftime_now, **ids)


def text_of_chat(source, messages=HI, **settings):
    tokenizer = with_template(source, **settings)
    return tokenizer.decode(tokenizer.chat(messages))


def test_ids_that_end_a_text_are_those_of_all_files(tmp_path):
    found = tokenizer_of(
        tmp_path,
        generation_config={"eos_token_id": [1, 2]},
        tokenizer_config={"eos_token": {"content": "</s>"}},
        eos_token_id=3,
    )
    assert found.eos_ids == {1, 2, 3, bpe().token_to_id("</s>")}


@pytest.mark.parametrize("stated", [None, {"eos_token_id": None}, {"eos_token_id": [500]}])
def test_a_file_need_not_say_what_ends_a_text_and_cannot_say_what_the_model_has_not(tmp_path, stated):
    found = tokenizer_of(tmp_path, generation_config=stated, tokenizer_config={"eos_token": None}, eos_token_id=None)
    assert found.eos_ids == set()


def test_older_folders_name_their_control_tokens_in_a_file_of_its_own(tmp_path):
    write_model(tmp_path, tokenizer_config={"eos_token": "<|eot|>"})
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "</s>", "bos_token": "<s>"}')
    found = SafetensorsFolder(tmp_path).tokenizer()
    assert found.eos_ids == {bpe().token_to_id("<|eot|>")}
    (tmp_path / "tokenizer_config.json").unlink()
    assert SafetensorsFolder(tmp_path).tokenizer().eos_ids == {bpe().token_to_id("</s>")}


def test_a_template_sees_the_tokenizers_own_end_and_beginning(tmp_path):
    about = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
    }
    found = tokenizer_of(tmp_path, generation_config={"eos_token_id": [0, 1]}, tokenizer_config=about)
    begin, end = (bpe().token_to_id(token) for token in ("<s>", "</s>"))
    assert found.chat(HI) == [begin, *found.encode("hell"), end]


def test_bos_comes_where_the_post_processor_puts_it_and_only_once(tmp_path):
    about = {"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    found = tokenizer_of(tmp_path, built=bpe(post_processor="<s> $A"), tokenizer_config=about)
    bos = bpe().token_to_id("<s>")
    assert found.encode("he")[0] == bos
    assert found.encode("") == [bos]
    assert found.chat(HI).count(bos) == 1


@pytest.mark.parametrize(
    ("about", "puts", "comes"),
    [
        ({}, None, False),
        ({"add_bos_token": True}, None, True),
        ({"tokenizer_class": "LlamaTokenizerFast"}, None, True),
        ({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False}, "<s> $A", False),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}, "<s> $A", True),
        ({"add_bos_token": True}, "<s> $A", True),
    ],
)
def test_bos_comes_where_the_folder_asks_for_it(tmp_path, about, puts, comes):
    found = tokenizer_of(tmp_path, built=bpe(post_processor=puts), tokenizer_config={"bos_token": "<s>", **about})
    bos = bpe().token_to_id("<s>")
    assert found.encode("he") == [bos] * comes + [bpe().token_to_id("he")]


def test_a_token_behind_the_prompt_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer.json: puts '</s>' behind a prompt"):
        tokenizer_of(tmp_path, built=bpe(post_processor="$A </s>"))


def test_a_file_made_for_training_neither_cuts_nor_pads_here(tmp_path):
    built = bpe()
    built.enable_truncation(3)
    built.enable_padding(length=50)
    found = tokenizer_of(tmp_path, built=built)
    assert found.decode(found.encode("abcdefgh")) == "abcdefgh"
    assert len(found.encode("abcdefgh")) == 8


@pytest.mark.parametrize(("ignore_merges", "expected"), [(True, ["hello"]), (False, ["hell", "o"])])
def test_words_that_are_tokens_come_before_merges_where_the_file_says_so(tmp_path, ignore_merges, expected):
    built = bpe(ignore_merges=ignore_merges)
    found = tokenizer_of(tmp_path, built=built)
    assert found.encode("hello") == [built.token_to_id(token) for token in expected]


def test_ids_past_the_tokenizers_own_have_no_text(tmp_path):
    """A vocabulary is often padded; a model can still sample what it was never taught."""
    found = tokenizer_of(tmp_path)
    own = bpe().get_vocab_size()
    assert own < found.vocab_size == 97
    assert [found.token_bytes(token) for token in (own, 96)] == [b"", b""]
    assert found.decode([own, *found.encode("hell"), 96]) == "hell"
    with pytest.raises(ValueError, match=r"id 97 is out of the vocabulary \[0, 97\)"):
        found.token_bytes(97)


def test_text_that_the_model_has_no_row_for_is_refused(tmp_path):
    control = [f"<|{i}|>" for i in range(60)]
    found = tokenizer_of(tmp_path, built=bpe(control=control))
    assert found.encode("<|3|>", parse_special=True)
    with pytest.raises(ValueError, match=r"'<\|59\|>', id \d+: the model knows ids in \[0, 97\)"):
        found.encode("<|59|>", parse_special=True)


@pytest.mark.parametrize("where", ["tokenizer_config", "chat_template.jinja", "chat_template.json"])
def test_templates_are_found_where_they_may_be(tmp_path, where):
    named = [
        {"name": "tool_use", "template": "t"},
        {"name": "default", "template": "{{ messages[0].content }}"},
    ]
    write_model(tmp_path, tokenizer_config={"chat_template": named if where == "tokenizer_config" else "wrong"})
    if where == "chat_template.jinja":
        (tmp_path / where).write_text("{{ messages[0].content }}")
    elif where == "chat_template.json":
        (tmp_path / where).write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    found = SafetensorsFolder(tmp_path).tokenizer()
    assert found.chat(HI) == found.encode("hell")


def test_named_templates_without_a_default_are_refused(tmp_path):
    with pytest.raises(ValueError, match="chat_template has rag, tool_use, and none is named default"):
        tokenizer_of(
            tmp_path,
            tokenizer_config={"chat_template": [{"name": n, "template": ""} for n in ("rag", "tool_use")]},
        )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for c in 'abcd' %}{% if c == 'c' %}{% break %}{% endif %}{{ c }}{% endfor %}", "ab"),
        ("{% for c in 'abcd' %}{% if c == 'c' %}{% continue %}{% endif %}{{ c }}{% endfor %}", "abd"),
        ("a{% generation %}{% set x = 1 %}b{{ x }}{% endgeneration %}{{ x is defined }}", "ab1False"),
        ("{{ {'a': '<b>é'} | tojson }}", '{"a": "<b>é"}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% if tools is none and documents is none %}a{% endif %}", "a"),
        ("{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}none{% endif %}", "none"),
        ("  {% if true %}\na\n  {% endif %}\n", "a\n"),
        ("{{ messages[0]['content'] + (eos_token if false else '') }}", "hell"),
    ],
)
def test_the_dialect_of_templates(source, expected):
    from models.loading.chat_template import ChatTemplate

    assert ChatTemplate(source, "<s>", "</s>").render(HI) == expected


def test_the_date_is_the_callers():
    source = "{{ strftime_now('%d %b') }}"
    assert text_of_chat(source, strftime_now=lambda form: f"<{form}>".replace("%", "").replace(" ", "_")) == "<d_b>"
    with pytest.raises(ValueError, match="'strftime_now' is undefined"):
        text_of_chat(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "chat template: roles must alternate"),
        ("{{ messages[0].content + 1 }}", "chat template: TypeError"),
        ("{{ messages[7].content.x }}", "chat template: UndefinedError"),
        ("{% for %}", "chat template: line 1"),
        ("{{ messages.append(1) }}", "chat template: SecurityError"),
        ("{{ 1 // 0 }}", "chat template: ZeroDivisionError"),
    ],
)
def test_whatever_a_template_raises_is_the_conversations_fault(source, message):
    with pytest.raises(ValueError, match=message):
        text_of_chat(source)


def test_tool_calls_are_written_by_a_template_that_knows_them_and_refused_by_another():
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
    knows = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}"
    assert text_of_chat(knows, calls) == "f"
    with pytest.raises(ValueError, match=r"messages\[0\].tool_calls: this model's chat template has no place"):
        text_of_chat("{{ messages[0].content }}", calls)
    with pytest.raises(ValueError, match=r"messages\[0\].content None: must be a string"):
        text_of_chat(knows, [{"role": "assistant", "content": None, "tool_calls": []}])


def test_other_threads_run_while_a_long_text_is_encoded():
    tokenizer, text = with_template(None), "hello hell " * 50_000
    has_begun, is_done, seen = threading.Event(), threading.Event(), []

    def watch():
        has_begun.wait()
        while not is_done.wait(0.0005):
            seen.append(None)

    watcher = threading.Thread(target=watch)
    watcher.start()
    has_begun.set()
    assert len(tokenizer.encode(text)) > 1000
    is_done.set()
    watcher.join()
    assert len(seen) > 5

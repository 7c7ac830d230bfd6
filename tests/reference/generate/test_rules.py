"""Generators in this process: rules, skills, engines, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.data.spec import STYLES
from reference.dialog import Message
from reference.generate.__main__ import main
from reference.generate.choose import EngineGenerator, choose
from reference.generate.request import ChatRequest, Reply, Sampling, Tokens
from reference.generate.rules import RuleGenerator, skills
from reference.generate.skills import rephrase
from reference.text.toy import FOREIGN, sums
from twin.errors import UsageError

TEXT = (
    "Although the bridge was big, the city built it quickly. In 1889 Gustave Eiffel began the "
    'tower, and many people used it. The main problem was "easy money". Dr. Small often helped '
    "about 300 people near Lyon.\n\nThe result was important because it was easy. People got it."
)


def _reply(request: ChatRequest) -> Reply:
    return RuleGenerator().complete(request)


def _ask(text: str, seed: int = 0, **metadata: Any) -> ChatRequest:
    sampling = Sampling(seed=seed)
    return ChatRequest((Message("user", text),), sampling=sampling, metadata=metadata)


def _facts(text: str) -> list[str]:
    """Numbers, quotations, and words with a capital inside a sentence."""
    return re.findall(r'\d+|"[^"]*"|(?<=[a-z,0-9.] )[A-Z]\w+(?= [a-z]|\.)', text)


def test_echo_says_it_again_with_its_tokens() -> None:
    rules = RuleGenerator()
    reply = rules.complete(_ask("Hello, world", kind="echo"))
    assert (reply.text, reply.tokens, reply.finish) == ("Hello, world", Tokens(3, 3), "stop")
    assert rules.account.total.reply_tokens == 3


def test_a_stream_is_the_reply_in_pieces() -> None:
    request = _ask(f"  {TEXT} ", kind="rephrase")
    pieces = list(RuleGenerator().stream(request))
    assert pieces[-1].reply == _reply(request)
    assert "".join(one.text for one in pieces) == _reply(request).text


def test_stops_and_the_bound_on_tokens_hold() -> None:
    messages = (Message("user", "one two three four"),)
    for sampling, text, finish in (
        (Sampling(max_tokens=2), "one two", "length"),
        (Sampling(stop=(" three",)), "one two", "stop"),
    ):
        reply = _reply(ChatRequest(messages, (), sampling, {"kind": "echo"}))
        assert (reply.text, reply.finish) == (text, finish)


def test_the_kind_may_stand_in_the_system_message() -> None:
    system = Message("system", 'kind: rephrase {"style": "lecture"}\nBe brief.')
    said = _reply(ChatRequest((system, Message("user", TEXT)))).text
    assert said != TEXT
    assert "1889" in said


@pytest.mark.parametrize(
    "messages",
    [
        (Message("user", "x"),),
        (Message("system", "kind: fly"), Message("user", "x")),
        (Message("system", "kind: echo [1]"), Message("user", "x")),
    ],
)
def test_a_request_of_no_known_kind_is_refused(messages: tuple[Message, ...]) -> None:
    with pytest.raises(UsageError, match="TW557"):
        _reply(ChatRequest(messages))


def test_every_skill_answers_and_says_what_it_does() -> None:
    for kind, skill in skills().items():
        assert skill.kind == kind
        assert skill.about.endswith(".")
    assert {"echo", "rephrase", "translate"} <= set(skills())


@pytest.mark.parametrize("style", rephrase.FRAMES)
def test_rephrasing_changes_words_and_keeps_facts(style: str) -> None:
    for seed in range(8):
        said = _reply(_ask(TEXT, seed, kind="rephrase", style=style)).text
        for fact in ("1889", "Gustave Eiffel", '"easy money"', "Dr. Small", "about 300 people"):
            assert fact in said
        assert "Lyon" in said
        assert said.count("\n\n") == 1
        before, after = (set(re.findall(r"\w+", one.lower())) for one in (TEXT, said))
        assert len(after - before) >= 3


def test_every_style_of_rewriting_has_frames_and_no_other() -> None:
    assert set(rephrase.FRAMES) == {one.name for one in STYLES.values() if one.kind == "rewrite"}
    with pytest.raises(UsageError, match="TW475"):
        _reply(_ask(TEXT, kind="rephrase", style="to-english"))


def test_the_same_seed_gives_the_same_words_and_another_one_others() -> None:
    said = [_reply(_ask(TEXT, seed, kind="rephrase")).text for seed in (1, 1, 2, 3, 4)]
    assert said[0] == said[1]
    assert len(set(said)) > 2


def test_a_clause_goes_behind_only_where_no_pronoun_comes_before_its_noun() -> None:
    said = [
        _reply(_ask(text, seed, kind="rephrase")).text
        for text in ("Although the car was old, it ran.", "Although it was old, the car ran.")
        for seed in range(10)
    ]
    assert all(one.endswith("it ran.") for one in said[:10])
    assert any(one.endswith("was old.") for one in said[10:])


def test_a_solution_becomes_notes_of_what_is_given_its_steps_and_its_result() -> None:
    text = "Ann has 3 pens. We add: 3 + 4 = 7. All are blue. Therefore Ann has 7 pens."
    for seed in range(3):
        said = _reply(_ask(text, seed, kind="rephrase", style="learning-note")).text
        labels = [line.split(":")[0] for line in said.splitlines()]
        assert labels == ["- given", "- step", "- note", "- result"]
        assert "3 + 4 = 7" in said


def test_context_keeps_a_frame_from_coming_twice() -> None:
    before = "<before>\nNote that x. Remember: y.\n</before>\n"
    passage = "<passage>\nThe sea is deep.\n</passage>"
    for seed in range(20):
        said = (
            RuleGenerator()
            .complete(_ask(before + passage, seed, kind="rephrase", style="lecture"))
            .text
        )
        assert said == "We see that the sea is deep."


def test_toy_sums_of_three_languages_are_translated_and_nothing_else_is() -> None:
    told = ""
    for told, english in sums(30, 5, tuple(FOREIGN)):
        assert _reply(_ask(told, kind="translate")).text == english
    for text in ("Guten Tag.", told.replace(" x ", " + "), "The sea is deep."):
        with pytest.raises(UsageError, match="TW475"):
            _reply(_ask(text, kind="translate"))


@given(st.text(max_size=200), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_any_text_is_rephrased_and_keeps_its_numbers(text: str, seed: int) -> None:
    said = _reply(_ask(text, seed, kind="rephrase")).text
    assert re.findall(r"\d", said) == re.findall(r"\d", text)


class Parrot:
    """An engine of a few lines."""

    def __init__(self, answer: Mapping[str, Any] | None = None) -> None:
        self.answer = answer

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        said = body["messages"][-1]["content"]
        usage = {"prompt_tokens": 1, "completion_tokens": 2}
        whole = {"choices": [{"message": {"content": said}}], "usage": usage}
        return whole if self.answer is None else self.answer

    def chat_stream(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for word in body["messages"][-1]["content"].split(" "):
            yield {"choices": [{"delta": {"content": word}}]}
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def test_an_engine_of_this_process_answers() -> None:
    engine = EngineGenerator(Parrot())
    assert engine.complete(_ask("Say it")).text == "Say it"
    assert [one.text for one in engine.stream(_ask("Say it"))] == ["Say", "it", ""]
    assert engine.account.total.reply_tokens == 2
    with pytest.raises(UsageError, match="TW553"):
        EngineGenerator(Parrot({"choices": []})).complete(_ask("x"))


def test_generators_are_chosen_by_name() -> None:
    assert isinstance(choose("rules"), RuleGenerator)
    for name in ("json:none", "no.such:thing", "rule"):
        with pytest.raises(UsageError, match="TW558"):
            choose(name)


def test_the_command_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--kind", "echo", "--prompt", "Say it"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert told.out == "Say it\n"
    assert json.loads(told.err)["reply_tokens"] == 2
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "Say it"
    assert main([*words, "--stream"]) == 0
    assert capsys.readouterr().out == "Say it\n"
    assert main(["--prompt", "x"]) == 2
    assert main([*words, "--set", "sampling.temperature=-1"]) == 3
    assert main([*words, "--set", "nothing"]) == 3
    assert main([*words, "--generator", "http:///v1"]) == 2
    assert "TW556" in capsys.readouterr().err

"""Make the conversations and the 500 questions about them. The same seed makes the same set, on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from bench.recall.topics import ASIDES, CHATTER, PEOPLE, PLACES, REPLIES, THINGS, TOPICS, Topic

SEED = 20261201
Kind = Literal["direct", "inflected", "paraphrased", "answered"]

CHATS, FACTS_OF_A_CHAT, ASIDES_OF_A_CHAT, CHATTER_OF_A_CHAT = 10, 90, 120, 160
QUESTIONS = 500
SHARES: dict[Kind, float] = {"direct": 0.35, "inflected": 0.2, "paraphrased": 0.3, "answered": 0.15}
FIRST = datetime(2025, 1, 6, 7, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Said:
    """One message; its place in the list, counted from 1, is its number."""

    chat: str
    role: Literal["user", "assistant"]
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """`answers` are the numbers of the messages that hold the answer; one of them is enough."""

    text: str
    kind: Kind
    answers: frozenset[int]


@dataclass(slots=True)
class _Told:
    """A fact that was told: in which words it may be asked for. `same` is what makes two facts the same to a reader."""

    topic: Topic
    words: dict[str, str]
    answered: bool
    same: tuple[str, ...]
    number: int


def make(seed: int = SEED) -> tuple[list[Said], list[Question]]:
    """Return all messages in the order of their time, and the questions."""
    chance = random.Random(seed)
    told: list[_Told] = []
    exchanges = [each for chat in range(CHATS) for each in _exchanges(chance, f"chat {chat}")]
    chance.shuffle(exchanges)
    said: list[Said] = []
    at = FIRST
    for chat, lines, fact in exchanges:
        at += timedelta(minutes=chance.randint(2, 300))
        for role, text, is_answer in lines:
            at += timedelta(seconds=chance.randint(2, 40))
            said.append(Said(chat, role, text, at))
            if is_answer and fact is not None:
                fact.number = len(said)
                told.append(fact)
    return said, _questions(chance, told)


_Line = tuple[Literal["user", "assistant"], str, bool]
_Exchange = tuple[str, list[_Line], _Told | None]


def _exchanges(chance: random.Random, chat: str) -> list[_Exchange]:
    made = [_fact(chance, chat) for _ in range(FACTS_OF_A_CHAT)]
    for _ in range(ASIDES_OF_A_CHAT):
        words = _words(chance)
        made.append((chat, [("user", chance.choice(ASIDES).format_map(words), False), _reply(chance, words)], None))
    for _ in range(CHATTER_OF_A_CHAT):
        asked, replied = chance.choice(CHATTER)
        made.append((chat, [("user", asked, False), ("assistant", replied, False)], None))
    return made


def _fact(chance: random.Random, chat: str) -> _Exchange:
    topic = chance.choice(TOPICS)
    words = {**_words(chance), "value": chance.choice(topic.values)}
    answered = chance.random() < SHARES["answered"]
    anchors = [words[name] for name in ("who", "place", "thing") if f"{{{name}}}" in topic.direct[0]]
    fact = _Told(topic, words, answered, (str(TOPICS.index(topic)), *anchors), 0)
    if answered:
        asked, replied, _ = topic.answered
        lines: list[_Line] = [
            ("user", chance.choice(ASIDES).format_map(words), False),
            ("assistant", asked.format_map(words), False),
            ("user", replied.format_map(words), True),
            _reply(chance, words),
        ]
    else:
        lines = [("user", chance.choice(topic.statements).format_map(words), True), _reply(chance, words)]
    return chat, lines, fact


def _words(chance: random.Random) -> dict[str, str]:
    return {"who": chance.choice(PEOPLE), "place": chance.choice(PLACES), "thing": chance.choice(THINGS)}


def _reply(chance: random.Random, words: dict[str, str]) -> _Line:
    anchor = chance.choice(sorted(value for name, value in words.items() if name != "value"))
    return "assistant", chance.choice(REPLIES).format(anchor=anchor), False


def _questions(chance: random.Random, told: list[_Told]) -> list[Question]:
    """Ask in every kind by its share. Facts that a reader could not tell apart answer the same question."""
    pools: dict[bool, list[_Told]] = {
        short: [fact for fact in told if fact.answered is short] for short in (True, False)
    }
    asked: list[Question] = []
    for kind, share in SHARES.items():
        pool = pools[kind == "answered"]
        for _ in range(round(QUESTIONS * share)):
            fact = chance.choice(pool)
            text = _text(chance, fact, kind)
            asked.append(Question(text, kind, frozenset(each.number for each in told if each.same == fact.same)))
    return asked


def _text(chance: random.Random, fact: _Told, kind: Kind) -> str:
    choices = {
        "direct": fact.topic.direct,
        "inflected": fact.topic.inflected,
        "paraphrased": fact.topic.paraphrased,
        "answered": fact.topic.answered[2:],
    }
    return chance.choice(choices[kind]).format_map(fact.words)

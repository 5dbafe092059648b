"""Chat examples of the demo checkpoint: prompts with one right answer, and the reasoning before it.

Everything is drawn from one `random.Random`: the same seed gives the same examples.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from word_lists import (
    CODE_KINDS,
    NAMES,
    NUMBER_WORDS,
    PARAMETERS,
    RELATIONS,
    TOOL_NOUNS,
    TOOL_VERBS,
    WORDS,
)

TASKS = {
    "needle": 5,
    "codes20": 5,
    "twohop": 4,
    "tool": 5,
    "toolresult": 1,
    "arith": 3,
    "count": 2,
    "reverse": 2,
    "nwords": 2,
    "echo": 2,
}
DIGITS = "0123456789"
LOWER = "abcdefghijklmnopqrstuvwxyz"
# Characters per token of code lines and of made-up sentences, and the cost of a line end.
CODE_LINE, SENTENCE = (3.6, 0.6), (2.75, 0.4)
HISTORY_SHARE = 0.12

Messages = list[dict[str, Any]]


class Example(NamedTuple):
    """One prompt: `answer` is text, a call (name, arguments), or {"words": n, "text": ...}."""

    messages: Messages
    tools: list[dict[str, Any]] | None
    answer: Any
    reasoning: str


class Sample(NamedTuple):
    """An example as a conversation; `full` ends with the reply, `messages` before it."""

    task: str
    think: bool
    messages: Messages
    tools: list[dict[str, Any]] | None
    answer: Any
    full: Messages


def ask(text: str) -> Messages:
    return [{"role": "user", "content": text}]


class ChatTasks:
    """Draws examples; `lines` are code lines that may fill long prompts and be copied."""

    def __init__(self, rng: random.Random, lines: Sequence[str] = ()) -> None:
        self.rng, self.lines = rng, lines

    def sample(
        self,
        max_tokens: float,
        task: str | None = None,
        think: bool | None = None,
        fill: float | None = None,
    ) -> Sample:
        """Draw one conversation of at most about `max_tokens`; `fill` sets its filler instead."""
        task = task or self.rng.choices(list(TASKS), list(TASKS.values()))[0]
        example = self._draw(task, max_tokens, fill)
        if think is None:
            think = self.rng.random() < 0.5
        reply: dict[str, Any] = {"role": "assistant", "content": ""}
        if task == "tool":
            reply["tool_calls"] = [{"type": "function", "function": example.answer}]
        else:
            reply["content"] = example.answer["text"] if task == "nwords" else example.answer
        if think:
            reply["reasoning_content"] = example.reasoning
        history = self._history(task, example.messages, max_tokens)
        messages = history + example.messages
        return Sample(task, think, messages, example.tools, example.answer, [*messages, reply])

    def _draw(self, task: str, max_tokens: float, fill: float | None) -> Example:
        if task in ("needle", "codes20", "twohop"):
            return getattr(self, task)(max_tokens, fill)
        return getattr(self, task)()

    def _history(self, task: str, messages: Messages, max_tokens: float) -> Messages:
        """Now and then a finished turn stands before the question."""
        if task in ("tool", "toolresult") or messages[0]["role"] != "user" or not max_tokens:
            return []
        if self.rng.random() >= HISTORY_SHARE:
            return []
        turn = self.arith() if self.rng.random() < 0.5 else self.echo()
        return [*turn.messages, {"role": "assistant", "content": turn.answer}]

    # Retrieval: facts in filler text.

    def needle(self, max_tokens: float, fill: float | None = None) -> Example:
        r = self.rng
        kind, who, code = r.choice(CODE_KINDS), r.choice(NAMES), self.code()
        facts = [f"The {kind} of {who} is {code}."]
        others = r.sample([name for name in NAMES if name != who], r.randint(0, 2))
        facts += [f"The {kind} of {name} is {self.code()}." for name in others]
        filler = self.filler(self.length(max_tokens) if fill is None else fill)
        document = "\n".join(self.insert(filler, facts))
        question = f"What is the {kind} of {who}?"
        text = f"{document}\n\n{question}"
        if r.random() >= 0.7:
            text = f"{question}\n\n{text}"
        return Example(ask(text), None, code, f"The text says that the {kind} of {who} is {code}.")

    def codes20(self, max_tokens: float, fill: float | None = None) -> Example:
        r = self.rng
        n = r.randint(8, 24) if fill is None else 20
        keys = self._keys(n)
        values = [self.number(6) for _ in keys]
        filler = self._some_filler(max_tokens, fill)
        facts = [f"The code for {key} is {value}." for key, value in zip(keys, values, strict=True)]
        lines = self.insert(filler, facts)
        j = r.randrange(n)
        text = "\n".join(lines) + f"\n\nWhat is the code for {keys[j]}?"
        return Example(ask(text), None, values[j], f"The code for {keys[j]} is {values[j]}.")

    def _keys(self, n: int) -> list[str]:
        r = self.rng
        style = r.randrange(3)
        if style == 0:
            return list(r.sample(WORDS, n))
        if style == 1:
            return [f"{r.choice(WORDS)}-{i}" for i in r.sample(range(10, 99), n)]
        return [f"item {i}" for i in r.sample(range(1, 99), n)]

    def twohop(self, max_tokens: float, fill: float | None = None) -> Example:
        r = self.rng
        n = r.randint(2, 6)
        who, boxes, things = r.sample(NAMES, n), r.sample(range(10, 99), n), r.sample(WORDS, n)
        facts = [f"{a} has box {b}." for a, b in zip(who, boxes, strict=True)]
        facts += [f"Box {b} holds the {t}." for b, t in zip(boxes, things, strict=True)]
        r.shuffle(facts)
        lines = self.insert(self._some_filler(max_tokens, fill), facts)
        j = r.randrange(n)
        text = "\n".join(lines) + f"\n\nWhat is in the box that {who[j]} has?"
        reasoning = f"{who[j]} has box {boxes[j]}. Box {boxes[j]} holds the {things[j]}."
        return Example(ask(text), None, things[j], reasoning)

    # Tools.

    def tool(self) -> Example:
        r = self.rng
        functions = self._functions()
        tools = [describe_function(name, parameters) for name, parameters in functions]
        name, parameters = r.choice(functions)
        arguments = {parameter: self.value() for parameter in parameters}
        messages = ask(self._request(name, arguments))
        if r.random() < 0.2:
            messages.insert(0, {"role": "system", "content": "You are a helpful assistant."})
        call = {"name": name, "arguments": arguments}
        return Example(messages, tools, call, f"I will call {name} with {', '.join(parameters)}.")

    def _functions(self) -> list[tuple[str, list[str]]]:
        r = self.rng
        functions: dict[str, list[str]] = {}
        for _ in range(r.randint(1, 4)):
            name = f"{r.choice(TOOL_VERBS)}_{r.choice(TOOL_NOUNS)}"
            if name not in functions:
                functions[name] = r.sample(PARAMETERS, r.randint(1, 4))
        return list(functions.items())

    def _request(self, name: str, arguments: dict[str, str]) -> str:
        style = self.rng.randrange(3)
        if style == 0:
            return (
                f"Call {name} with " + ", ".join(f'{k}="{v}"' for k, v in arguments.items()) + "."
            )
        if style == 1:
            values = "\n".join(f"{k}: {v}" for k, v in arguments.items())
            return f"Please {name.replace('_', ' ')} using these values:\n{values}"
        values = " ".join(f"The {k} is `{v}`." for k, v in arguments.items())
        return f"Use the function {name}. {values}"

    def toolresult(self) -> Example:
        messages, tools, call, _ = self.tool()
        key, value = self.word(), self.code()
        result = json.dumps({key: value, "status": "ok"}, ensure_ascii=False)
        calls = [{"type": "function", "function": call}]
        messages += [
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": result},
        ]
        return Example(messages, tools, f"The {key} is {value}.", f"The result has {key} {value}.")

    # Symbols.

    def arith(self) -> Example:
        r = self.rng
        kind = r.randrange(3)
        if kind < 2:
            limit = r.choice([10, 100, 100, 1000])
            a, b = r.randrange(limit), r.randrange(limit)
            if kind == 1 and a < b:
                a, b = b, a
            sign, answer = ("+", a + b) if kind == 0 else ("-", a - b)
            steps = ", ".join(column_steps(a, b, sign))
            reasoning = f"{steps}. So {a} {sign} {b} = {answer}."
        else:
            a, b = r.randrange(2, 13), r.randrange(2, 13)
            sign, answer = "*", a * b
            reasoning = f"{a} * {b} = {answer}."
        form = r.choice(["What is {} {} {}?", "Compute {} {} {}.", "{} {} {} = ?"])
        return Example(ask(form.format(a, sign, b)), None, str(answer), reasoning)

    def count(self) -> Example:
        r, word = self.rng, self.word()
        if r.random() < 0.3:
            word += self.word()
        letter = r.choice(word) if r.random() < 0.85 else r.choice("aeiourst")
        marks, hits = [], 0
        for character in word:
            hits += character == letter
            marks.append(f"{character}:{hits}" if character == letter else character)
        text = f"How many times does the letter {letter} appear in the word {word}?"
        return Example(ask(text), None, str(hits), " ".join(marks) + f". That is {hits}.")

    def reverse(self) -> Example:
        r = self.rng
        if r.random() < 0.6:
            word = self.word()
        else:
            word = "".join(r.choice(LOWER) for _ in range(r.randint(3, 8)))
        back = word[::-1]
        reasoning = " ".join(word) + " -> " + " ".join(back)
        return Example(ask(f"Reverse the string {word}"), None, back, reasoning)

    def nwords(self) -> Example:
        r = self.rng
        n = r.randint(1, 12)
        words = r.sample(WORDS, n)
        shown = str(n) if r.random() < 0.6 else NUMBER_WORDS[n]
        text = f"Reply with exactly {shown} word{'s' if n > 1 else ''}."
        reasoning = " ".join(f"{i} {word}" for i, word in enumerate(words, 1))
        return Example(ask(text), None, {"words": n, "text": " ".join(words)}, reasoning)

    def echo(self) -> Example:
        r = self.rng
        if self.lines and r.random() < 0.5:
            text = r.choice(self.lines).strip()
        else:
            text = " ".join(r.choice(WORDS) for _ in range(r.randint(2, 12)))
        return Example(ask("Repeat this exactly:\n" + text), None, text, "I copy the line.")

    # Parts.

    def word(self) -> str:
        return self.rng.choice(WORDS)

    def number(self, digits: int) -> str:
        return "".join(self.rng.choice(DIGITS) for _ in range(digits))

    def code(self) -> str:
        r = self.rng
        kind = r.random()
        if kind < 0.5:
            return self.number(r.randint(4, 7))
        if kind < 0.75:
            letters = "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2))
            return letters + "-" + self.number(4)
        return self.word() + "-" + self.number(3)

    def value(self) -> str:
        r = self.rng
        kind = r.randrange(6)
        if kind == 0:
            return self.number(r.randint(1, 6))
        if kind == 1:
            path = "/" + "/".join(r.choice(WORDS) for _ in range(r.randint(1, 3)))
            return path + r.choice([".txt", ".py", ".json", ""])
        if kind == 2:
            return "".join(r.choice(DIGITS + "abcdef") for _ in range(8))
        if kind == 3:
            return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 5)))
        if kind == 4:
            return f"{self.word()}.{self.word()}@{self.word()}.com"
        return self.word()

    def length(self, max_tokens: float) -> float:
        """A third of the draws short, the others log-uniform up to the limit."""
        r = self.rng
        if r.random() < 0.35:
            return r.uniform(0, 150)
        return math.exp(r.uniform(math.log(100), math.log(max_tokens)))

    def _some_filler(self, max_tokens: float, fill: float | None) -> list[str]:
        if fill is None:
            fill = self.length(max_tokens) if self.rng.random() < 0.6 else 0
        return self.filler(fill)

    def filler(self, tokens: float) -> list[str]:
        """Lines of about `tokens` tokens: consecutive code lines or made-up sentences."""
        r = self.rng
        lines: list[str] = []
        used = 0.0
        if self.lines and r.random() < 0.6:
            first = r.randrange(len(self.lines))
            while used < tokens:
                lines.append(self.lines[(first + len(lines)) % len(self.lines)])
                used += len(lines[-1]) / CODE_LINE[0] + CODE_LINE[1]
            return lines
        while used < tokens:
            lines.append(self._sentence())
            used += len(lines[-1]) / SENTENCE[0] + SENTENCE[1]
        return lines

    def _sentence(self) -> str:
        first, second = self.word(), self.word()
        relation = self.rng.choice(RELATIONS)
        return f"The {first} {second} {relation} the {self.word()} {self.word()}."

    def insert(self, lines: Sequence[str], facts: Sequence[str]) -> list[str]:
        mixed = list(lines)
        for fact in facts:
            mixed.insert(self.rng.randint(0, len(mixed)), fact)
        return mixed


def describe_function(name: str, parameters: Sequence[str]) -> dict[str, Any]:
    """Return the JSON description of a function whose parameters are required strings."""
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()}.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(parameters),
            },
        },
    }


def column_steps(a: int, b: int, sign: str) -> list[str]:
    """Return the digit by digit steps of a sum or difference, lowest digit first."""
    width = max(len(str(a)), len(str(b)))
    carry, steps = 0, []
    columns = zip(str(a).zfill(width)[::-1], str(b).zfill(width)[::-1], strict=True)
    for x, y in columns:
        if sign == "+":
            following, digit = divmod(int(x) + int(y) + carry, 10)
        else:
            value = int(x) - int(y) - carry
            digit, following = value % 10, int(value < 0)
        step = f"{x} {sign} {y}" + (f" {sign} {carry}" if carry else "") + f" -> {digit}"
        steps.append(step + (f" carry {following}" if following else ""))
        carry = following
    return steps

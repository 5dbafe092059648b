"""The interactive conversation of `ninfer run --chat`."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.run_session.conversation import Message, make_message, read_media
from ninfer_tools.run_session.options import RunOptions
from ninfer_tools.run_session.session import Session, ask_chat, report_error

if TYPE_CHECKING:
    from ninfer_runtime.frontend.frontend import Frontend
    from ninfer_runtime.frontend.media import Medium

HELP = "/reset forgets the conversation, /image PATH and /video PATH go with the next message, "
HELP += "/exit ends; Ctrl-C stops an answer"
_LEAVE = "/exit or Ctrl-D ends, and so does another Ctrl-C"


@dataclass
class Conversation:
    """What was said, the media of it, and the files that wait for the next message."""

    messages: list[Message] = field(default_factory=list)
    media: list[Medium] = field(default_factory=list)
    images: list[Path] = field(default_factory=list)
    videos: list[Path] = field(default_factory=list)

    def forget(self) -> None:
        for items in (self.messages, self.media, self.images, self.videos):
            items.clear()


def run_chat(session: Session, frontend: Frontend, options: RunOptions) -> int:
    """Answer line by line until the input ends. What goes wrong with one line, and Ctrl-C while
    it is worked on, does not end the program."""
    talk = Conversation()
    talk.images += options.images
    talk.videos += options.videos
    _enable_editing()
    print(HELP, file=sys.stderr)
    while (line := _read_line()) is not None:
        try:
            if not _obey(line.strip(), talk, session, frontend):
                break
        except NinferError as error:
            report_error(error)
        except KeyboardInterrupt as stop:
            if type(stop) is not KeyboardInterrupt or session.engine.busy:
                raise  # a signal that ends the process, or an engine left in the middle
            print("interrupted; this message is not part of the conversation", file=sys.stderr)
    return 0


def _obey(line: str, talk: Conversation, session: Session, frontend: Frontend) -> bool:
    """Carry out one line; False when it ends the conversation."""
    command, _, argument = line.partition(" ")
    if command in ("/exit", "/quit"):
        return False
    if command == "/reset":
        talk.forget()
        session.rows.keep_only([])
    elif command in ("/image", "/video"):
        _add_file(command, argument.strip(), talk, session)
    elif command == "/help":
        print(HELP, file=sys.stderr)
    elif command.startswith("/") and command[1:].isalpha():
        raise UsageError("no such command", got=command, remedy=HELP)
    elif line or talk.images or talk.videos:
        _say(line, talk, session, frontend)
    return True


def _add_file(command: str, name: str, talk: Conversation, session: Session) -> None:
    if session.engine.model.vision is None:
        raise UsageError(
            "no vision tower is loaded", got=command, remedy="start with --vision, if there is one"
        )
    path = Path(name).expanduser()
    if not name or not path.exists():
        raise UsageError("no such file", path=name or None, want=f"{command} PATH")
    (talk.images if command == "/image" else talk.videos).append(path.absolute())


def _say(line: str, talk: Conversation, session: Session, frontend: Frontend) -> None:
    """Send a message and keep it and its answer; nothing is kept when it fails."""
    from ninfer_runtime.frontend.messages import list_media

    message = make_message(line, talk.images, talk.videos)
    talk.images.clear()
    talk.videos.clear()
    parts = list_media([message])
    new = [] if frontend.media is None else read_media(parts, frontend.media, Path(), {})
    try:
        messages, media = [*talk.messages, message], [*talk.media, *new]
        answer = ask_chat(session, frontend, messages, media, patient=True)
    except BaseException:
        session.rows.keep_only(talk.media)
        raise
    reply = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        reply["reasoning_content"] = answer.reasoning
    talk.messages += [message, reply]
    talk.media += new


def _read_line() -> str | None:
    """Return the next line, None at the end of the input; Ctrl-C drops the line begun, and a
    second one with no line between them ends the program."""
    warned = False
    while True:
        try:
            if sys.stdin.isatty():
                return input("> ")
            line = sys.stdin.readline()
            return line if line else None
        except EOFError:
            print(file=sys.stderr)
            return None
        except KeyboardInterrupt as stop:
            if type(stop) is not KeyboardInterrupt or warned:
                raise
            warned = True
            print(f"\n{_LEAVE}", file=sys.stderr)


def _enable_editing() -> None:
    """Give `input` a line editor where the platform has one."""
    if sys.stdin.isatty():
        try:
            importlib.import_module("readline")
        except ImportError:
            return

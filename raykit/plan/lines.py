"""What `tomllib` does not do: bound a text before it is parsed, and say on which line each key is.

A dotted key of a few hundred thousand parts makes `tomllib` take all memory, so `excess` looks at the tokens
first. The scan for lines trusts that `tomllib` has accepted the text: it finds keys and does not judge them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MAX_DEPTH = 16
MAX_TOKENS = 10_000
MAX_WORD = 1_000

Path = tuple[str, ...]

# possessive all through: it never goes back, so that a hostile text costs no more than a plain one
_TOKEN = re.compile(
    r"""
      (?P<blank> [ \t\r]+ | \#[^\n]* )
    | (?P<newline> \n )
    | (?P<string>
          \"{3} (?: [^\\\"]++ | \\. | \"{1,2}(?!\") )*+ \"{3,5}
        | '{3} (?: [^']++ | '{1,2}(?!') )*+ '{3,5}
        | \" (?: [^\"\\\n]++ | \\. )*+ \"
        | ' [^'\n]*+ '
      )
    | (?P<mark> [][{},=.] )
    | (?P<bare> [^][{},=.\#\"'\s]++ )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "blank":
            yield _Token(kind, match.group(), line)
        line += match.group().count("\n")
    yield _Token("end", "", line)


def excess(text: str) -> tuple[int, str] | None:
    """The line and the kind of the first thing in `text` that is deeper or more than any plan needs."""
    depth = dots = 0
    for count, token in enumerate(_tokens(text), 1):
        if token.kind == "mark":
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.text, 0)
        dots = dots + 1 if token.text == "." else dots if token.kind in ("bare", "string") else 0
        if max(depth, dots) >= MAX_DEPTH:
            return token.line, f"is nested more than {MAX_DEPTH} levels deep"
        if token.kind == "bare" and len(token.text) > MAX_WORD:
            return token.line, f"holds a number or a name of {len(token.text):,} characters"
        if count > MAX_TOKENS:
            return token.line, "holds more than a plan can mean"
    return None


class _Scan:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.found: dict[Path, int] = {}

    def peek(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def skip(self, *texts: str) -> None:
        while self.peek().text in texts and self.peek().kind != "end":
            self.at += 1

    def document(self) -> dict[Path, int]:
        table: Path = ()
        while self.peek().kind != "end":
            if self.peek().kind == "newline":
                self.take()
            elif self.peek().text == "[":
                self.skip("[")
                table = self.key(())
                self.skip("]")
            else:
                self.pair(table)
        return self.found

    def pair(self, table: Path) -> None:
        path = self.key(table)
        self.skip("=")
        self.value(path)

    def key(self, table: Path) -> Path:
        """Read `a.b`, and note its line for every part of the path."""
        path = table
        while True:
            token = self.take()
            path = (*path, _unquoted(token.text))
            self.found.setdefault(path, token.line)
            if self.peek().text != ".":
                return path
            self.take()

    def value(self, path: Path) -> None:
        opening = self.peek()
        if opening.kind == "mark" and opening.text in "[{":
            self.take()
            while True:
                self.skip(",", "\n")
                if self.peek().text in ("]", "}"):
                    break
                if opening.text == "[":
                    self.value(path)
                else:
                    self.pair(path)
            self.take()
            return
        self.take()
        while self.peek().kind in ("bare", "string") or self.peek().text == ".":
            self.take()  # 1.5 and 1979-05-27 07:32:00 are several tokens


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1]
    if text.startswith('"'):
        return str(tomllib.loads(f"k = {text}")["k"])
    return text


def index_lines(text: str) -> Mapping[Path, int]:
    """The line, from 1, on which each key of a valid TOML text is first named."""
    return _Scan(text).document()


def line_of(lines: Mapping[Path, int], loc: Sequence[str | int]) -> int | None:
    """The line of a key, or of the nearest table around it; None if neither is in the file."""
    path = tuple(part for part in loc if isinstance(part, str))
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None

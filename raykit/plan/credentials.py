"""Text that looks like a credential. A plan is stored and shown, so it can hold none; none is printed."""

from __future__ import annotations

import itertools
import re

_KNOWN = re.compile(
    r"""
      -----BEGIN
    | \b (?: AKIA | ASIA ) [0-9A-Z]{16} \b                      # AWS access key ids
    | \b (?: ghp | gho | ghu | ghs | ghr ) _ [A-Za-z0-9]{20,}   # GitHub
    | \b github_pat_ [A-Za-z0-9_]{20,}
    | \b glpat- [A-Za-z0-9_-]{16,}                              # GitLab
    | \b hf_ [A-Za-z0-9]{20,}                                   # Hugging Face
    | \b sk- [A-Za-z0-9_-]{20,}
    | \b xox [abeoprs] - [A-Za-z0-9-]{10,}                      # Slack
    | \b AIza [A-Za-z0-9_-]{30,}                                # Google
    | \b eyJ [A-Za-z0-9_-]{10,} \. eyJ                          # JSON web tokens
    | :// [^/\s:@'"]{0,256} : [^/\s@'"]{1,256} @                # a password in an address
    """,
    re.VERBOSE,
)
_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{32,256}")
_NAME = re.compile(
    r"(?:^|[_-])(?:password|passwd|passphrase|secret|api_?key|access_?key|secret_?key|private_?key|credentials?)$",
    re.I,
)
_TURNS = 0.26
"""Of the neighbours in random letters and digits 0.45 change kind, in 99 of 100 tokens more than this; in
paths, camel case and the names of models, under 0.23."""


def looks_secret(text: str) -> bool:
    """Does `text` hold something that looks like a credential?"""
    return bool(_KNOWN.search(text)) or any(_random(found.group()) for found in _TOKEN.finditer(text))


def names_secret(key: str) -> bool:
    """Is `key` the name of a credential, such as `api_key`?"""
    return bool(_NAME.search(key))


def _random(token: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    if not all(any(kind(c) for c in token) for kind in kinds):
        return False  # digests and words are of one case
    pairs = [(a, b) for a, b in itertools.pairwise(token) if a.isalnum() and b.isalnum()]
    turns = sum(_turns(a, b) for a, b in pairs)
    return turns >= _TURNS * len(pairs)


def _turns(a: str, b: str) -> bool:
    """Does the kind of character change from `a` to `b`, other than from a capital into its word?"""
    return (a.isdigit(), a.isupper()) != (b.isdigit(), b.isupper()) and not (a.isupper() and b.islower())

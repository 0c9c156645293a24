"""Keeping secrets out of everything that a capture writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

STRONG_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|PASSCODE|(?<!BY)(?<!COM)(?<!FORWARD_)PASS$|PWD$|SECRET|CREDENTIAL"
)
"""Names whose value is a secret whatever it is. All patterns are for names as ``_normal`` writes them."""

WEAK_NAME = re.compile(
    r"KEYS?(_|$)|(?<!PER_)(?<!NEW_)TOKEN(?!IZ|S?_(IDS?|MAP|MODE|RATIO|USAGE|BUCKETS)(_|$))|(?<!X)AUTH(?!OR(?!IZ))|COOKIE|BEARER"
    r"|WEBHOOK|CONN(ECTION)?_?STR(ING)?(_|$)|(^|_)(PAT|DSN|JWT|SAS|SIG|SIGNATURE)(_|$)"
)
"""Names whose value is a secret unless it is a number or a switch: limits count tokens, and keys are sorted by."""

NUMBER = r"[+-]?\d{1,10}(\.\d*)?(e[+-]?\d{1,3})?"
PLAIN_VALUE = re.compile(rf"\[?{NUMBER}(\s*,\s*{NUMBER})*\]?|true|false|yes|no|on|off|none|null", re.IGNORECASE)
CREDENTIALS_IN_URL = re.compile(r"://[^/\s@]+@")
PASSWORD_IN_URL = re.compile(r"://[^/\s@:]*:([^/\s@]+)@")
QUERY = re.compile(r"([?&;])([\w.\-]+)=([^&;\s'\"]+)")
ASSIGNED = re.compile(r"\b()([A-Z][A-Z0-9_]{2,})=([^\s'\"]+)")
KNOWN_SHAPE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w\-]{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}"
    r"|xox[a-z]-[\w\-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w\-]{8,}\.eyJ[\w\-]{8,}\.[\w\-]+)"
    r"|(?<=hooks\.slack\.com/services/)\S+|(?<=[Bb]earer )[\w.\-]{8,}"
)
HARMLESS = frozenset({"PWD", "OLDPWD"})
REMOVED = "[removed]"
SHORTEST = 6


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or setting looks like a credential: by its name, or by what stands in its value."""
    normal = _normal(name)
    if normal in HARMLESS:
        return False
    named = STRONG_NAME.search(normal) or (WEAK_NAME.search(normal) and not PLAIN_VALUE.fullmatch(value))
    return bool(named and value) or holds_secret(value)


def _normal(name: str) -> str:
    """``npm_config__authToken`` as ``NPM_CONFIG_AUTH_TOKEN``, ``api-key`` as ``API_KEY``."""
    return re.sub(r"[^A-Z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper())


def holds_secret(text: str) -> bool:
    """Whether ``text`` has a URL with a credential in it, or a token of a shape that is known."""
    in_query = any(is_secret(name, value) for _, name, value in QUERY.findall(text))
    return bool(CREDENTIALS_IN_URL.search(text) or KNOWN_SHAPE.search(text) or in_query)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that a recorder may see: nsys stores the whole environment of its target."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}


def shown(name: str, value: str) -> str:
    """``value``, or what stands for it where it is a secret."""
    return REMOVED if is_secret(name, value) else value


def shown_word(word: str) -> str:
    """A word of a command line, such as ``--set=env.NAME=VALUE``, without what follows a secret's name in it."""
    parts = word.split("=")
    for count in range(1, len(parts)):
        if is_secret(parts[count - 1].rpartition(".")[2], "=".join(parts[count:])):
            return "=".join([*parts[:count], REMOVED])
    return word


class Scrubber:
    """Removes secrets from text: the values of secret variables of ``environment``, and what looks like a secret.

    ``SHORTEST`` keeps the value of a variable from blanking out ordinary words.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = [value for name, value in environment.items() if is_secret(name, value)]
        values += [password for value in values for password in PASSWORD_IN_URL.findall(value)]
        longest_first = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        """``text`` without secrets."""
        clean = self._pattern.sub(REMOVED, text) if self._pattern else text
        clean = KNOWN_SHAPE.sub(REMOVED, CREDENTIALS_IN_URL.sub(f"://{REMOVED}@", clean))
        return ASSIGNED.sub(_shown_value, QUERY.sub(_shown_value, clean))

    def over(self, value: Any) -> Any:
        """``value`` (dicts, lists and scalars, as JSON has them) without secrets."""
        if isinstance(value, Mapping):
            return {name: self._entry(str(name), one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.over(one) for one in value]
        return self(value) if isinstance(value, str) else value

    def _entry(self, name: str, value: Any) -> Any:
        return self(shown(name, value)) if isinstance(value, str) else self.over(value)


def _shown_value(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    return f"{before}{name}={shown(name, value)}"

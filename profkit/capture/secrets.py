"""Keeping secrets out of everything that a capture writes."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET_NAME = re.compile(
    r"(^|_)(API_?KEY|\w*KEY|KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|COOKIE|AUTH|BEARER|PAT|DSN)(_|$)",
    re.IGNORECASE,
)
CREDENTIALS_IN_URL = re.compile(r"://[^/\s@]+@")
HARMLESS = frozenset({"PWD", "OLDPWD"})
REMOVED = "[removed]"
SHORTEST = 6


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable or setting looks like a credential, by its name or by a URL with one in it."""
    if name.upper() in HARMLESS:
        return False
    return bool(SECRET_NAME.search(name) or CREDENTIALS_IN_URL.search(value))


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that a recorder may see: nsys stores the whole environment of its target."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}


def shown(name: str, value: str) -> str:
    """``value``, or what stands for it where it is a secret."""
    return REMOVED if is_secret(name, value) else value


class Scrubber:
    """Removes the values of secret variables from text; ``SHORTEST`` keeps it from blanking out ordinary words."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        secrets = {value for name, value in environment.items() if is_secret(name, value) and len(value) >= SHORTEST}
        longest_first = sorted(secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        """``text`` without the values of secrets, and without credentials in URLs."""
        clean = self._pattern.sub(REMOVED, text) if self._pattern else text
        return CREDENTIALS_IN_URL.sub(f"://{REMOVED}@", clean)

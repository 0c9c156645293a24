"""SGLang's HTTP endpoints that a capture uses (0.5.12 to 0.5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from profkit.traces import ProfkitError


class RequestError(ProfkitError):
    """A request was not carried out."""


class RefusedError(RequestError):
    """The server answered a request with an error: it has done nothing."""


class NoAnswerError(RequestError):
    """The server did not answer in time, or broke off: it may have done what was asked, or do it later."""


class Endpoints:
    """One server at ``url``; every call has a time limit in seconds."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def is_healthy(self) -> bool:
        """Whether ``/health`` says so; a server that does not answer yet is not."""
        try:
            return self._client.get("/health", timeout=25).status_code == 200
        except httpx.HTTPError:
            return False

    def server_info(self) -> Mapping[str, Any]:
        """What the server says of itself, arguments included; empty where it does not."""
        try:
            answer = self._client.get("/server_info")
            known: Any = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def start_profile(self, body: Mapping[str, Any], timeout_s: float) -> None:
        """Start recording; with ``num_steps`` in ``body`` the server stops by itself."""
        self._post("/start_profile", body, timeout_s)

    def stop_profile(self, timeout_s: float) -> None:
        """Stop recording; ``RefusedError`` where nothing is being recorded."""
        self._post("/stop_profile", {}, timeout_s)

    def abort_all(self) -> None:
        """End all running requests; each still answers with what it has."""
        self._post("/abort_request", {"rid": "", "abort_all": True}, 5)

    def _post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> None:
        try:
            answer = self._client.post(path, json=dict(body), timeout=timeout_s)
        except httpx.HTTPError as error:
            raise NoAnswerError(f"{path}: no answer ({type(error).__name__}); see the server's log") from error
        if answer.status_code != 200:
            raise RefusedError(f"{path}: the server answered {answer.status_code}; see its log")

"""A browser for the tests of pages; and no test is timed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.reports.chromium import Tab, browser

settings.register_profile("profkit", deadline=None)
settings.load_profile("profkit")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Iterator[Tab]:
    """The browser, which must have stayed silent and offline by the end of the test."""
    chromium.messages.clear()
    chromium.requests.clear()
    chromium.size(1400, 900)
    yield chromium
    chromium.js("0")
    assert chromium.messages == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:", "about:"))] == []

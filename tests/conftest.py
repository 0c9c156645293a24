"""A browser for the tests of pages; no test is timed, and none may be skipped where everything is required."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.reports.chromium import Tab, browser

settings.register_profile("profkit", deadline=None)
settings.load_profile("profkit")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _required((yield))


def _required(report: Report) -> Report:
    """With ``PROFKIT_REQUIRE_ALL=1`` what would be skipped fails: a browser, nsys, a wheel or a file is missing."""
    if report.skipped and os.environ.get("PROFKIT_REQUIRE_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, and PROFKIT_REQUIRE_ALL=1 requires everything: {report.longrepr}"
    return report


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

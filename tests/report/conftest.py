"""A tab of a headless browser, and the rule that its pages are silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from drivetrain.tests.report.browser import Browser, browser, chromium


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("there is no Chromium")
    with browser() as opened:
        yield opened


@pytest.fixture
def silent(tab: Browser) -> Iterator[None]:
    """What a page logs, throws or asks for fails its test."""
    tab.complaints.clear()
    tab.requests.clear()
    yield
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file:", "about:", "data:"))] == []

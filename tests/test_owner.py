"""Who is logged in: as Python's own getpass says, without its imports."""

from __future__ import annotations

import getpass

import pytest
from drivetrain.owner import person

VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")


@pytest.mark.parametrize(
    "variables", [{}, {"USER": "bob"}, {"LOGNAME": "", "USERNAME": "eve"}, dict.fromkeys(VARIABLES, "x")]
)
def test_it_is_who_getpass_says(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, name in variables.items():
        monkeypatch.setenv(variable, name)
    assert person() == getpass.getuser()


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert person() == ""

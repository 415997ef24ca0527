"""The variables of hccl/VARIABLES.md, and those that Python reads."""

import os
import re
import sys

import pytest
from conftest import ROOT, run

from hccl import _variables


def test_each_name_with_a_letter_too_many_is_reported(monkeypatch):
    page = (ROOT / "hccl" / "VARIABLES.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.*?) \|", page, re.M)
    names = re.findall(r"`(HCCL_\w+)`", " ".join(cells))
    assert len(names) > 30
    for name in names:
        monkeypatch.setenv(name + "X", "1")
    monkeypatch.setenv("HCCL_LOG", "warn")
    done = run([sys.executable, "-c", "import hccl; hccl.init()"])
    told = set(re.findall(r"the nearest is (\w+)", done.stderr))
    assert told == set(names), done.stderr


@pytest.mark.parametrize("given", [None, "", "EmptyString"])
def test_three_values_mean_that_a_variable_is_not_set(given, monkeypatch):
    monkeypatch.delenv("HCCL_SPLIT", raising=False)
    if given is not None:
        monkeypatch.setenv("HCCL_SPLIT", given)
    assert not _variables.is_set("HCCL_SPLIT")
    assert _variables.value("HCCL_SPLIT", "default") == "default"


@pytest.mark.parametrize("given", ["true", "off", "00", "2"])
def test_a_switch_is_0_or_1(given, monkeypatch):
    monkeypatch.setitem(os.environ, "HCCL_COMPARE_NAMES", given)
    with pytest.raises(ValueError, match=f'HCCL_COMPARE_NAMES is "{given}"; it may be 0 or 1'):
        _variables.switch("HCCL_COMPARE_NAMES", default=True)

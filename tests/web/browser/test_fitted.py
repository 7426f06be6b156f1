"""The page of a model that is not conjugate: it learns in passes, forgets, and refines."""

import csv

import numpy as np
import pytest

from tests.support.glm import CASES
from tests.support.processes import Processes, erase
from unweave.web.live.network import NetworkSource

CASE = CASES["logistic-regression"]
LEARNS = {"plain": "added", "masked": "masked value"}


@pytest.mark.parametrize(
    ("privacy", "size", "theme"),
    [
        pytest.param("plain", "desktop", "dark", marks=pytest.mark.slow),
        ("masked", "phone", "light"),
    ],
)
def test_a_logistic_regression_learns_and_forgets(visit, shot, tmp_path, privacy, size, theme):
    root = tmp_path / "clinics"
    with Processes(root, agents=4, model=CASE.model, rows=0, privacy=privacy) as net:
        for name, part in zip(net.names, np.array_split(CASE.rows(160, 1), 4), strict=True):
            with (net.folder(name) / "data.csv").open("w", newline="") as file:
                rows = [[f"{name}-{i}", *row] for i, row in enumerate(part.tolist())]
                csv.writer(file).writerows([["id", *CASE.model.columns], *rows])
        with visit(NetworkSource(root), size=size, theme=theme) as v:
            v.page.set_default_timeout(60_000)
            page = v.open()
            net.start()
            page.locator(".entry", has_text=LEARNS[privacy]).first.wait_for()
            shot(page, f"fitted-{privacy}-learning")
            page.locator("#mark[data-state=rest]").wait_for()
            page.locator("#figures", has_text="Complete").wait_for()
            assert page.locator("#posterior-why").is_hidden()
            page.locator("#posterior-body", has_text="intercept").wait_for()
            erase(net, "a4")
            page.locator("#erasures > li", has_text="Certified as").wait_for()
            page.get_by_role("button", name="a4: erased").wait_for()
            page.locator("#mark[data-state=rest]").wait_for()
            shot(page, f"fitted-{privacy}-erased")
            told = page.locator("#erasures").inner_text()
            assert "as exact" not in told  # the others' factors were fitted with a4

"""Files: the same bytes for the same seed, pictures that show the data, a complete summary."""

import csv
import io
import json
import sys

import numpy as np
import pytest

from unweave.errors import ConfigError, MissingExtra
from unweave.experiments.paper import FIGURES, choose, run, style
from unweave.experiments.paper.report import ResultTable

REPLICAS = 3
_ALL = ["K", "schedule"]
_DATA = ["model", "alpha", "N_k", "a, b", "true θ", "data", "loss scale", "bands", "grid"]
_HOWS = ["subtract", "refine", "retrain"]
_FORGET = [*_HOWS, "unlearned agent", "agent 10 unlike the others", "iteration"]
_LOSS = ["graph", "L", "exact posterior", "floor", "lines", "replicas outside the domain"]
STATED = {
    "fig3": [*_ALL, *_DATA, "graphs", "iterations"],
    "fig4": [*_ALL, *_DATA, *_LOSS, "rho", "S", "c", "budget", "step control", "other gradients"],
    "fig5": [*_ALL, *_DATA, *_LOSS, *_FORGET, "rho, S, c", "learning before the request"],
    "theory": [*_ALL, "graphs", "start", "unlearned agent", "counting", "exact"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / "new" / "folder"
    ticks = []
    summary = run(list(FIGURES), folder, replicas=REPLICAS, seed=7, tick=ticks.append)
    return folder, summary, ticks


def test_files(made):
    folder, summary, ticks = made
    for name in FIGURES:
        assert summary["figures"][name]["files"] == [
            f"{name}.{e}" for e in ("png", "svg", "pdf", "csv")
        ]
        for file in summary["figures"][name]["files"]:
            assert (folder / file).stat().st_size > 500
    assert len(ticks) == sum(figure.steps for figure in FIGURES.values())
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert (folder / "overview.png").exists()
    assert not (folder / ".unweave-probe").exists()


@pytest.mark.parametrize("name", FIGURES)
def test_every_setting_is_stated_with_its_reason(made, name):
    folder, summary, _ = made
    settings = {s["name"]: s for s in summary["figures"][name]["settings"]}
    assert {*STATED[name], "replicas", "seed"} <= settings.keys()
    assert all(s["why"] for s in settings.values() if s["source"] == "ours")
    assert {s["source"] for s in settings.values()} == {"paper", "ours"}
    assert settings["seed"]["value"] == 7
    assert settings["replicas"]["value"] == REPLICAS
    text = (folder / "summary.md").read_text()
    section = text.split(f"## {name}:")[1].split("\n## ")[0]
    for setting in settings.values():
        assert f"| {setting['name']} |" in section
    assert f"{name}.png" in section


def test_the_same_seed_gives_the_same_bytes(made, tmp_path):
    folder, _, _ = made
    again = tmp_path / "again"
    run(["fig3", "theory"], again, replicas=REPLICAS, seed=7)
    for file in ("fig3.csv", "theory.csv", "fig3.png", "fig3.svg", "fig3.pdf", "theory.svg"):
        assert (again / file).read_bytes() == (folder / file).read_bytes()
    other = tmp_path / "other"
    run(["fig3"], other, replicas=REPLICAS, seed=8)
    assert (other / "fig3.csv").read_bytes() != (folder / "fig3.csv").read_bytes()


@pytest.mark.parametrize("name", ["fig4", "fig5"])
def test_curves_of_samples_repeat_too(made, name):
    folder, _, _ = made
    figure = FIGURES[name]
    report = figure.compute(REPLICAS, 7, lambda done: None)
    assert report.table.csv() == (folder / f"{name}.csv").read_text()


def test_lines_show_the_rows_of_the_csv(made):
    folder, _, _ = made
    rows = list(csv.DictReader(io.StringIO((folder / "fig3.csv").read_text())))
    report = FIGURES["fig3"].compute(REPLICAS, 7, lambda done: None)
    with style.look():
        axes = FIGURES["fig3"].draw(report).axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    for graph in ("star", "ring", "complete"):
        mine = [row for row in rows if row["graph"] == graph]
        x, y = lines[graph].get_data()
        assert list(x) == [int(row["iteration"]) for row in mine]
        np.testing.assert_allclose(y, [float(row["kl_mean"]) for row in mine], rtol=1e-9)
    high = max(float(row["kl_high"]) for row in rows)
    bands = np.concatenate([band.get_paths()[0].vertices[:, 1] for band in axes.collections])
    assert bands.max() == pytest.approx(high, rel=1e-9)


def test_svg_text_is_text_and_has_no_date(made):
    folder, _, _ = made
    svg = (folder / "fig5.svg").read_text()
    assert "subtract, then refine, median</text>" in svg
    assert "<dc:date>" not in svg
    assert b"/CreationDate" not in (folder / "fig5.pdf").read_bytes()


@pytest.mark.parametrize("name", ["fig3", "fig4", "fig5", "overview"])
def test_figures_name_band_centre_and_direction(made, name):
    folder, _, _ = made
    svg = (folder / f"{name}.svg").read_text()
    assert "75% of replicas</text>" in svg
    assert "median" in svg or ", mean</text>" in svg
    assert "‖ exact posterior" in svg
    assert "KL to" not in svg
    assert (name not in ("fig3", "overview")) or "expected cover time</text>" in svg
    assert (name not in ("fig5", "overview")) or "agent 10 reached (mean: 9.1)</text>" in svg


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_stands_on_the_axes(made, name):
    """Legends and notes are beside the axes; labels and titles of axes are outside anyway."""
    report = FIGURES[name].compute(2, 7, lambda done: None)
    with style.look():
        figure = FIGURES[name].draw(report)
        figure.canvas.draw()
        for axes in figure.axes:
            frame = axes.get_window_extent()
            notes = [*axes.texts, *filter(None, [axes.get_legend(), *figure.legends])]
            for note in notes:
                assert not frame.overlaps(note.get_window_extent())


def test_drawing_leaves_matplotlib_as_it_was(made):
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.look():
        assert matplotlib.rcParams["font.size"] == 7.5
    assert dict(matplotlib.rcParams) == before


def test_table():
    table = ResultTable(("who", "n", "x"))
    table.add("a", np.int64(1), np.float64(0.1) + 0.2)
    table.add("b", 2, None)
    assert table.csv() == "who,n,x\na,1,0.3\nb,2,\n"
    assert table.where(who="b").rows == [("b", 2, None)]
    assert np.isnan(table.values("x")[1])
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        table.add("c", 1)


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"unweave\[plot\]"):
        run(["theory"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bad_requests(tmp_path):
    assert choose("all") == ["fig3", "fig4", "fig5", "theory"]
    with pytest.raises(ConfigError, match="did you mean 'theory'"):
        choose("teory")
    with pytest.raises(ConfigError, match="at least 2"):
        run(["fig3"], tmp_path, replicas=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: cannot write there .* --out"):
        run(["fig3"], tmp_path / "file")

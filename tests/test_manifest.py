"""network.toml: what it means, its digest, and what it says when it is wrong."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import fixed_identity, signed_manifest
from unweave.errors import ConfigError
from unweave.manifest import Manifest, load
from unweave.manifest.privacy import ring_degree
from unweave.models import (
    BetaBernoulli,
    DirichletCategorical,
    Grouped,
    LinearRegression,
    LogisticRegression,
    MultivariateNormalModel,
    by_name,
    names,
)
from unweave.node.identity import Identity
from unweave.protocol.terms import Batches
from unweave.solvers import Variational

MODEL = '[model]\nname = "beta-bernoulli"\n'
SMALL = f'name = "n"\ngraph = "ring"\nagents = 3\n{MODEL}'


def test_the_digest_is_that_of_the_exact_bytes(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(SMALL)
    manifest = load(path)
    assert manifest.digest == hashlib.sha256(SMALL.encode()).digest()
    assert manifest.terms().network_id == manifest.digest
    assert Manifest.parse(SMALL.encode() + b"\n").digest != manifest.digest
    manifest.write(tmp_path / "copy.toml")
    assert (tmp_path / "copy.toml").read_bytes() == SMALL.encode()


def test_a_number_of_agents_is_enough_for_a_simulation() -> None:
    terms = Manifest.parse(SMALL.encode()).terms()
    assert terms.topology.agents == ("a1", "a2", "a3")
    assert terms.keyids == ()
    assert terms.keyid(1) == "a2"
    assert terms.conjugate


def test_terms_carry_every_setting() -> None:
    manifest = Manifest.make(
        name="n",
        seed=5,
        schedule="metropolis",
        forget="walk",
        attest="walk",
        solve="visit",
        max_passes=7,
        kept=4,
        timeouts={"ack": 9.5},
        edges=[["x", "y"], ["y", "z"]],
        model={"name": "beta-exponential", "a": 3.0, "b": 4.0},
        agents=[{"name": n} for n in "xyz"],
    )
    terms = manifest.terms()
    assert (terms.seed, terms.schedule, terms.forget, terms.attest, terms.solve) == (
        5, "metropolis", "walk", "walk", "visit",
    )  # fmt: skip
    assert (terms.max_passes, terms.kept, terms.timeouts.ack, terms.timeouts.loss) == (
        7,
        4,
        9.5,
        15,
    )
    assert not terms.conjugate
    assert terms.topology.edges == (("x", "y"), ("y", "z"))


def test_keys_are_named_by_their_digests() -> None:
    manifest = signed_manifest("abc")
    assert manifest.terms().keyids == tuple(fixed_identity(n).keyid for n in "abc")
    public = [{"name": n, "public_key": fixed_identity(n).public_pem} for n in "abc"]
    bare = [{"name": n, "keyid": fixed_identity(n).keyid} for n in "abc"]
    for agents in (public, bare):
        other = Manifest.make(
            name="n", graph="ring", model={"name": "beta-bernoulli"}, agents=agents
        )
        assert other.keyids() == manifest.keyids()
    with pytest.raises(ConfigError, match=r'agent "a" has no certificate, and signatures'):
        other.pems()


def test_what_is_written_is_read_again() -> None:
    for manifest in (
        signed_manifest("abc", timeouts={"ack": 0.25}),
        signed_manifest("abcde", graph={"name": "watts-strogatz", "k": 2, "p": 0.5}),
        signed_manifest("ab", graph=None, edges=[["a", "b"]]),
        Manifest.make(name="n", graph="star", agents=4, model=BetaBernoulli()),
    ):
        again = Manifest.parse(manifest.raw)
        assert again == manifest
        assert again.digest == manifest.digest
        assert again.topology == manifest.topology


def test_a_model_is_recorded_with_all_its_settings() -> None:
    model = LinearRegression(features=("age", "dose"), noise=0.5, sd=(1.0, 2.0))
    manifest = Manifest.make(name="n", graph="ring", agents=3, model=model)
    again = Manifest.parse(manifest.raw).build_model()
    assert again == model
    assert again.settings() == model.settings()


def test_the_file_does_not_grow_with_the_number_of_components() -> None:
    sizes = set()
    for classes in (1000, 9000):
        model = DirichletCategorical(classes=classes)
        manifest = Manifest.make(name="n", graph="ring", agents=3, model=model)
        assert "bits = 24\n" in manifest.to_toml()
        assert Manifest.parse(manifest.raw).build_model() == model
        sizes.add(len(manifest.raw))
    assert len(sizes) == 1
    # Different ones are written out, and a file that has them all is the network that it was.
    unlike = Manifest.make(name="n", agents=1, model=BetaBernoulli(bits=(20, 30)))
    assert tomllib.loads(unlike.to_toml())["model"]["bits"] == [20, 30]
    assert Manifest.parse(unlike.raw).build_model() == BetaBernoulli(bits=(20, 30))
    raw = unlike.raw.replace(b"20,\n", b"24,\n").replace(b"30,\n", b"24,\n")
    old = Manifest.parse(raw)
    assert old.raw == raw
    assert old.build_model() == BetaBernoulli()


def test_every_model_survives_the_file() -> None:
    for name in names():
        needs: dict[str, Any] = {}
        for extra in ({}, {"classes": 3}, {"features": 2}, {"dim": 2}, {"failures": 2}, {"r": 2}):
            try:
                model = by_name(name, **extra)
            except ConfigError:
                continue
            needs = extra
            break
        else:
            continue  # more settings than this test knows
        manifest = Manifest.make(name="n", graph="ring", agents=3, model=model)
        assert Manifest.parse(manifest.raw).build_model().settings() == model.settings(), needs


def test_data_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(f'name = "n"\n{MODEL}[[agents]]\nname = "x"\ndata = "rows/x.csv"\n')
    assert load(path).data_path("x") == tmp_path / "rows" / "x.csv"


def agents(*entries: str) -> str:
    return "".join(f"[[agents]]\n{entry}\n" for entry in entries)


NORTH = Identity.create("north")
PEM = f'certificate = """\n{NORTH.certificate_pem}"""'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not TOML"),
        (f'name = "n"\n{MODEL}', "agents is missing"),
        ('name = "n"\nagents = 1\n', "model is missing"),
        (
            f'name = "n"\nagents = 3\nshedule = "sweep"\n{MODEL}',
            "shedule: unknown key. Fix: did you mean",
        ),
        (f'name = "n"\nagents = 3\n{MODEL}', "who may talk to whom"),
        (f'name = "n"\nagents = 0\n{MODEL}', "agents cannot be read. Fix: give a number of agents"),
        (
            f'name = "n"\nagents = "3"\n{MODEL}',
            "agents cannot be read. Fix: give a number of agents",
        ),
        (f'name = "n"\ngraph = "rng"\nagents = 3\n{MODEL}', "did you mean 'ring'"),
        (f'name = "n"\ngraph = {{ name = "ring", p = 0.5 }}\nagents = 3\n{MODEL}', "no setting p"),
        (
            f'name = "n"\ngraph = {{ name = "ring", q = 1 }}\nagents = 3\n{MODEL}',
            "graph.q: unknown key",
        ),
        (
            f'name = "n"\nschedule = "seek"\ngraph = "ring"\nagents = 3\n{MODEL}',
            "schedule: input should",
        ),
        (f'name = "n"\nseed = -1\ngraph = "ring"\nagents = 3\n{MODEL}', "seed: input should"),
        (f'name = "n"\nseed = true\ngraph = "ring"\nagents = 3\n{MODEL}', "seed: input should"),
        (f'name = "n/m"\ngraph = "ring"\nagents = 3\n{MODEL}', "use no slash"),
        (f'name = "n"\ngraph = "ring"\nagents = 3\n[timeouts]\nack = 0\n{MODEL}', "timeouts.ack"),
        (
            f'name = "n"\nedges = [["x", "y"]]\n{MODEL}'
            + agents('name = "x"', 'name = "y"', 'name = "b7"'),
            'agent "b7" has no edge, and the graph must be connected. Fix: add it to',
        ),
        (
            f'name = "n"\nedges = [["w", "x"], ["y", "z"]]\n{MODEL}'
            + agents(*(f'name = "{n}"' for n in "wxyz")),
            "disconnected",
        ),
        (
            f'name = "n"\nedges = [["x", "q"]]\n{MODEL}' + agents('name = "x"'),
            "no agent is named 'q'",
        ),
        (
            f'name = "n"\nedges = [["x"]]\n{MODEL}' + agents('name = "x"'),
            "edges cannot be read. Fix: give pairs",
        ),
        (f'name = "n"\ngraph = "ring"\nedges = []\n{MODEL}' + agents('name = "x"'), "two graphs"),
        (f'name = "n"\n{MODEL}' + agents('name = "x"', 'name = "x"'), 'two agents are named "x"'),
        (
            f'name = "n"\n{MODEL}' + agents('name = "x"\nadres = "h:1"'),
            'agent "x": adres: unknown key',
        ),
        (
            f'name = "n"\n{MODEL}' + agents('name = "x"\naddress = "h"'),
            'agent "x": address: no address',
        ),
        (f'name = "n"\n{MODEL}' + agents('name = "x"\naddress = "h:99999"'), "a port from"),
        (f'name = "n"\n{MODEL}' + agents('address = "h:1"'), "agent number 1: name is missing"),
        (f'name = "n"\n{MODEL}' + agents('name = "x"\nkeyid = "ab"'), "64 hex digits"),
        (
            f'name = "n"\ngraph = "ring"\n{MODEL}' + agents(f'name = "x"\n{PEM}', 'name = "y"'),
            'agent "y" has no certificate, but others have',
        ),
        (
            f'name = "n"\ngraph = "ring"\n{MODEL}'
            + agents(f'name = "x"\n{PEM}', f'name = "y"\n{PEM}'),
            "the same certificate",
        ),
        (
            f'name = "n"\ngraph = "ring"\n{MODEL}'
            + agents('name = "x"\naddress = "h:1"', 'name = "y"\naddress = "h:1"'),
            "the address",
        ),
        (
            f'name = "n"\n{MODEL}' + agents(f'name = "x"\n{PEM}\npublic_key = "x"'),
            "keep the certificate, it holds the key",
        ),
    ],
)
def test_every_mistake_is_named_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Manifest.parse(text.encode(), "somewhere/network.toml")
    assert str(caught.value).startswith("network.toml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace("bernoulli", "bernouli"), "did you mean 'beta-bernoulli'"),
        (SMALL + "c = 1\n", "its settings are"),
        (SMALL + 'a = "x"\n', "a = 'x' cannot be used. Fix: give a finite number"),
        (SMALL + "a = -1.0\n", "[model]"),
        (
            f'name = "n"\n{MODEL}' + agents('name = "x"\ncertificate = "hello"'),
            'agent "x": not a certificate',
        ),
        (
            f'name = "n"\n{MODEL}' + agents(f'name = "x"\n{PEM}\nkeyid = "{"ab" * 32}"'),
            "pin the right key",
        ),
        (
            f'name = "n"\ngraph = "ring"\n{MODEL}'
            + agents(
                f'name = "x"\n{PEM}', f'name = "y"\npublic_key = """\n{NORTH.public_pem}"""'
            ),
            "two agents have the same key",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_the_model_and_the_keys_are_named_when_they_are_used(
    text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Manifest.parse(text.encode()).terms()
    assert str(caught.value).startswith("network.toml: ")
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml: not TOML"):
        load(tmp_path / "binary.toml")


# ------------------------------------------------------------------------------------- TOML

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_SCALAR = (
    _TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from(["one\ntwo\nthree\n", 'a\n"""\nb\n', "a\r\nb\nc", "\x7f", "\\\n\n\n"])
)
_VALUE = st.recursive(_SCALAR, lambda v: st.lists(v, max_size=3), max_leaves=6)
_TABLE = st.dictionaries(_TEXT, _VALUE, max_size=4)


@given(st.dictionaries(_TEXT.filter(lambda key: key != "name"), _VALUE | _TABLE, max_size=5))
def test_every_setting_is_read_as_it_was_written(settings: dict[str, Any]) -> None:
    made = Manifest.make(name="n", agents=1, model={"name": "beta-bernoulli", **settings})
    assert Manifest.parse(made.raw).model == made.model


def test_a_certificate_is_written_in_lines() -> None:
    pem = fixed_identity("a").certificate_pem
    made = Manifest.make(
        name="n", agents=[{"name": "a", "certificate": pem}], model=BetaBernoulli()
    )
    assert f'certificate = """\n{pem}"""' in made.to_toml()
    windows = {"name": "a", "certificate": pem.replace("\n", "\r\n")}
    other = Manifest.make(name="n", agents=[windows], model=BetaBernoulli())
    assert Manifest.parse(other.raw).entries == other.entries


def test_the_solver_is_part_of_the_manifest() -> None:
    text = 'name = "n"\ngraph = "ring"\nagents = 3\n[model]\nname = "beta-exponential"\n'
    plain = Manifest.parse(text.encode())
    assert repr(plain.build_solver(plain.build_model())).startswith(
        "NaturalGradient(estimator=None"
    )
    table = '[solver]\nname = "loo"\nsteps = 9\nsamples = 50\ntol = 1e-6\nretrain_above = inf\n'
    manifest = Manifest.parse((text + table).encode())
    solver = manifest.build_solver(manifest.build_model())
    assert (solver.estimator, solver.steps, solver.samples) == ("loo", 9, 50)  # type: ignore[attr-defined]
    assert (manifest.solver.tol, manifest.solver.retrain_above) == (1e-6, float("inf"))
    written = Manifest.parse(manifest.to_toml().encode())
    assert written.solver == manifest.solver
    glm = text.replace('"beta-exponential"', '"logistic-regression"\nfeatures = 2')
    relaxed = Manifest.parse(f"{glm}[solver]\nrelax = 1.02\n".encode())
    assert relaxed.build_solver(relaxed.build_model()) == Variational(relax=1.02)
    for wrong, message in (
        ('name = "no"', r"\[solver\]: unknown solver 'no'"),
        ('name = "exact"\nsteps = 0', "solver.steps: "),
        ("speed = 3", "solver.speed: unknown key"),
        ("relax = 1.5", "solver.relax: "),
        ("relax = 1.05", r"\[solver\]: solver .* has no setting 'relax'"),
    ):
        with pytest.raises(ConfigError, match=message):
            Manifest.parse(f"{text}[solver]\n{wrong}\n".encode()).terms()


def test_small_shards_are_allowed_in_so_many_words() -> None:
    assert Manifest.parse(SMALL.encode()).small_shards == "refuse"
    words = 'small_shards = "neighbours can reconstruct records"\n'
    assert Manifest.parse((words + SMALL).encode()).small_shards != "refuse"
    with pytest.raises(ConfigError, match="small_shards"):
        Manifest.parse(("small_shards = true\n" + SMALL).encode())


MASKED = 'name = "n"\ngraph = "ring"\n'


def test_the_short_form_of_privacy_is_the_table_with_its_defaults() -> None:
    short = Manifest.parse(f'{MASKED}privacy = "masked"\nagents = 7\n{MODEL}'.encode())
    table = Manifest.parse(f'{MASKED}agents = 7\n{MODEL}[privacy]\nmode = "masked"\n'.encode())
    assert short.privacy == table.privacy
    assert tomllib.loads(short.to_toml())["privacy"] == {
        "mode": "masked",
        "min_roster": 4,
        "degree": 0,
    }
    terms = short.terms()
    assert (terms.privacy, terms.min_roster, terms.degree) == ("masked", 4, 0)
    assert Manifest.parse(short.to_toml().encode()).terms().min_roster == 4
    plain = Manifest.parse(SMALL.encode())
    assert plain.terms().privacy == "plain"
    assert tomllib.loads(plain.to_toml())["privacy"] == {"mode": "plain"}


@pytest.mark.parametrize(
    ("agents", "roster", "degree"),
    [(4, 3, 0), (5, 3, 0), (6, 4, 0), (200, 101, 0), (201, 101, 86), (1000, 501, 90)],
)
def test_the_roster_and_the_mask_graph_follow_from_the_number_of_agents(
    agents: int, roster: int, degree: int
) -> None:
    manifest = Manifest.make(
        name="n", graph="ring", agents=agents, model=BetaBernoulli(), privacy="masked"
    )
    assert manifest.privacy.min_roster == roster
    assert manifest.privacy.degree == degree


def test_degrees_are_those_of_the_bound() -> None:
    """½ K² γ^degree · 2^30 ≤ 2^−40, and two fewer would not do."""
    for share in (0.25, 1 / 3, 0.5):
        for agents in (50, 1000, 20_000):
            degree = ring_degree(agents, share, always=True)
            assert 0.5 * agents**2 * share**degree * 2.0**30 <= 2.0**-40
            assert 0.5 * agents**2 * share ** (degree - 2) * 2.0**30 > 2.0**-40


@pytest.mark.parametrize(
    ("agents", "line", "problem"),
    [
        (3, 'privacy = "masked"', "needs at least 4 agents, not 3"),
        (5, 'privacy = { mode = "masked", min_roster = 2 }', "at least 3"),
        (8, 'privacy = { mode = "masked", min_roster = 4 }', "at least 5"),
        (8, 'privacy = { mode = "masked", min_roster = 9 }', "at most 8"),
        (300, 'privacy = { mode = "masked", degree = 52 }', "at least 54, or 0"),
        (8, 'privacy = "maske"', "should be 'plain' or 'masked'"),
        (8, "privacy = 1", 'Fix: "plain", "masked" or a table'),
        (8, 'privacy = { mode = "masked", roster = 3 }', "did you mean min_roster"),
        (8, 'privacy = { mode = "plain", min_roster = 5 }', "a setting of masked networks"),
        (8, 'privacy = "masked"\nsolve = "visit"', 'Fix: solve = "pass"'),
    ],
)
def test_masks_that_hide_nothing_are_refused(agents: int, line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")) as error:
        Manifest.parse(f"{MASKED}{line}\nagents = {agents}\n{MODEL}".encode())
    assert "network.toml: " in str(error.value)
    assert "Fix: " in str(error.value)


def test_a_model_without_private_rounds_is_refused_with_its_reason() -> None:
    manifest = Manifest.make(
        name="n", graph="ring", agents=4, privacy="masked", model={"name": "beta-exponential"}
    )
    with pytest.raises(ConfigError, match=r"network\.toml: privacy: beta-exponential has no"):
        manifest.terms()


def test_batches_are_terms_of_a_masked_network() -> None:
    line = 'publish = { records = 20, agents = 3, at_most = "12h" }'
    raw = f'{MASKED}privacy = "masked"\n{line}\nagents = 7\n{MODEL}'.encode()
    manifest = Manifest.parse(raw)
    assert manifest.terms().publish == Batches(20, 3, 12 * 3600.0)
    assert Manifest.parse(manifest.to_toml().encode()).publish == manifest.publish
    assert Manifest.parse(SMALL.encode()).terms().publish is None


@pytest.mark.parametrize(
    ("privacy", "publish", "problem"),
    [
        ("plain", "records = 20", "in a plain network every token shows changes"),
        ("masked", "records = 1", "greater than or equal to 2"),
        ("masked", "records = 20, agents = 1", "greater than or equal to 2"),
        ("masked", "records = 20, agents = 8", "changes of 8 agents among 7"),
        ("masked", 'records = 20, at_most = "soon"', 'for example "30d"'),
        ("masked", 'records = 20, at_least = "1d"', "did you mean at_most"),
        ("masked", "agents = 2", "publish.records is missing"),
    ],
)
def test_batches_that_hide_nothing_are_refused(privacy: str, publish: str, problem: str) -> None:
    text = f'{MASKED}privacy = "{privacy}"\npublish = {{ {publish} }}\nagents = 7\n{MODEL}'
    with pytest.raises(ConfigError, match=problem) as error:
        Manifest.parse(text.encode())
    assert "Fix: " in str(error.value)


def test_a_batch_of_a_regression_has_more_rows_than_coefficients() -> None:
    def made(records: int, model: Any) -> Manifest:
        values = {"name": "n", "graph": "ring", "agents": 4, "privacy": "masked"}
        return Manifest.make(**values, model=model, publish={"records": records})

    model = LinearRegression(features=3, intercept=True)
    with pytest.raises(ConfigError, match=r"show their span\. Fix: at least 5"):
        made(4, model).terms()
    assert made(5, model).terms().publish == Batches(5)
    for wide in (MultivariateNormalModel(dim=4), Grouped(3, each=model)):
        with pytest.raises(ConfigError, match=r"show their span\. Fix: at least 5"):
            made(4, wide).terms()
        assert made(5, wide).terms().publish == Batches(5)
    with pytest.raises(ConfigError, match="logistic-regression learns in several rounds"):
        made(50, LogisticRegression(features=2)).terms()

"""Real agents run a model in JAX from a pinned file; a solver that stops has not converged."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.support.processes import Processes, erase
from unweave.keys import verifier
from unweave.manifest import PinnedSource, load
from unweave.protocol.certificate.verify import verify

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
pytest.importorskip("jax", reason="JAX is not installed: run `make test-slow`")

SOURCE = '''
import jax.numpy as jnp

from unweave import CustomModel


def log_likelihood(params, record):
    """Student's t with four degrees of freedom around a location."""
    z = (record["t"] - params["location"]) * jnp.exp(-params["log_scale"])
    return -2.5 * jnp.log1p(z * z / 4) - params["log_scale"]


def make(posterior):
    params = {"location": 0.0, "log_scale": 0.0}
    return CustomModel(log_likelihood, params, 2.0, records={"t": "real"}, posterior=posterior)


full = make("full")
diagonal = make("diagonal")
atoms = make("atoms")
'''


@dataclass(frozen=True)
class Locations(PinnedSource):
    columns: ClassVar = ("t",)


@pytest.mark.parametrize("posterior", ["full", "diagonal", "atoms"])
def test_real_agents_learn_and_forget_records(tmp_path, posterior):
    source = tmp_path / "robust.py"
    source.write_text(SOURCE)
    with Processes(
        tmp_path / "net",
        agents=3,
        rows=30,
        model=Locations(source, posterior),
        draw=lambda rng, n: 1.0 + 0.5 * rng.standard_t(4, n),
    ) as net:
        net.start()
        net.settled()
        erase(net, "a2", list(net.rows["a2"])[:2])
        (digest,) = net.settled()
        assert digest
        manifest = load(net.root / "network.toml")
        assert manifest.terms().max_passes == (20 if posterior == "diagonal" else 50)
        (file,) = (net.folder("a2") / "certificates").glob("*.json")
        account = verify(file.read_bytes(), manifest.terms(), verifier(manifest.pems()))
        assert account.converged == (posterior != "diagonal")

"""gRPC between neighbours keeps the transport's laws, and its waits are bounded."""

import asyncio
import io

import pytest

from unweave.node.limits import Limits
from unweave.node.log import Log
from unweave.node.transport import GrpcTransport
from unweave.testing.transport import LAWS, LocalNetwork


def maker(network, **limits):
    settings = {"idle": 3.0, "reply": 2.0, "grace": 0.5, **limits}
    terms = network.manifest.terms()

    def make(agent):
        log = Log(network.identities[agent].name, stream=io.StringIO())
        return GrpcTransport(
            network.manifest,
            agent,
            network.identities[agent],
            log=log,
            limits=Limits.of(terms, **settings),
        )

    return make


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law):
    asyncio.run(law(maker(LocalNetwork())))

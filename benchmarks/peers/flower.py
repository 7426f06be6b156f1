"""Flower's client round trip over TLS on loopback, beside our durable hop: `make bench-peers`.

flower.py                      measure both, print a table and one line of JSON
flower.py server PORT FOLDER   Flower's server: times the rounds
flower.py client PORT FOLDER   Flower's client: fit returns what it was given
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (10, 1 << 17)  # float64: 80 bytes, 1 MiB
WARM_UP, ROUNDS = 10, 100
HOPS = {10: 300, 1 << 17: 20}  # ours; a large token is slower
LIMIT = 45.0  # seconds for Flower, and for each of our two hops
SLACK = 10.0  # our measurement ends its own processes first

# Flower reports each start to its makers and asks for updates unless it is told not to.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_LOG_LEVEL": "ERROR"}


def certify(folder: Path) -> None:
    """A key and a self-signed certificate for 127.0.0.1: server.key, server.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "server.key"
    path.touch(mode=0o600)
    path.write_bytes(private)


def serve(port: int, folder: Path) -> None:
    from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import History, Server, ServerConfig, SimpleClientManager, start_server

    seconds: dict[int, list[float]] = {}

    class Timed(Server):  # type: ignore[misc]  # Flower is not in the environment that checks types
        """Rounds with the one client, in place of Flower's own loop with its strategy."""

        def fit(self, num_rounds: int, timeout: float | None) -> tuple[Any, float]:
            self.client_manager().wait_for(1, timeout=int(LIMIT))
            (client,) = self.client_manager().all().values()
            begun = time.perf_counter()
            for length in LENGTHS:
                eta = np.random.default_rng(0).random(length)
                seconds[length] = []
                for _ in range(WARM_UP + num_rounds):
                    start = time.perf_counter()
                    ins = FitIns(ndarrays_to_parameters([eta]), {})
                    result = client.fit(ins, timeout=timeout, group_id=None)
                    (back,) = parameters_to_ndarrays(result.parameters)
                    seconds[length].append(time.perf_counter() - start)
                    assert np.array_equal(back, eta)
            return History(), time.perf_counter() - begun

    pem = (folder / "server.pem").read_bytes()
    start_server(
        server_address=f"127.0.0.1:{port}",
        server=Timed(client_manager=SimpleClientManager()),
        config=ServerConfig(num_rounds=ROUNDS, round_timeout=LIMIT),
        certificates=(pem, pem, (folder / "server.key").read_bytes()),
    )
    medians = {n: statistics.median(values[WARM_UP:]) for n, values in seconds.items()}
    (folder / "flower.json").write_text(json.dumps(medians))


def answer(port: int, folder: Path) -> None:
    from flwr.client import NumPyClient, start_client

    class Echo(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: Any, config: Any) -> tuple[Any, int, dict[str, Any]]:
            return parameters, 1, {}

    start_client(
        server_address=f"127.0.0.1:{port}",
        client=Echo().to_client(),
        root_certificates=(folder / "server.pem").read_bytes(),
        max_wait_time=LIMIT,
    )


def flower() -> dict[int, float]:
    """Median seconds of Flower's round trip, by length of the vector."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "flwr")}
        log = folder / "log"
        with log.open("w") as file:
            children = [
                subprocess.Popen(
                    [sys.executable, __file__, role, str(port), name],
                    env=environment,
                    stdout=file,
                    stderr=file,
                )
                for role in ("server", "client")
            ]
        try:
            children[0].wait(LIMIT)
            found = json.loads((folder / "flower.json").read_text())
        except (subprocess.TimeoutExpired, FileNotFoundError):
            said = log.read_text()
            sys.exit(f"Flower did not finish {ROUNDS} rounds in {LIMIT:.0f} s. It said:\n{said}")
        finally:
            for child in children:
                child.kill()
                child.wait()
    return {int(length): seconds for length, seconds in found.items()}


def ours(length: int) -> float | None:
    """Seconds of our durable hop, measured by our own environment; None if it cannot."""
    python = ROOT / ".venv" / "bin" / "python"
    command = [str(python), "-m", "benchmarks.peers.ours", str(length), str(HOPS[length])]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT + SLACK, check=True
        )
    except FileNotFoundError:
        print("our hop is not measured: there is no .venv; run `make setup`", file=sys.stderr)
        return None
    except subprocess.TimeoutExpired:
        print(f"our hop with {length} numbers did not finish in {LIMIT:.0f} s", file=sys.stderr)
        return None
    except subprocess.CalledProcessError as error:
        print(f"our hop with {length} numbers is not measured:\n{error.stderr}", file=sys.stderr)
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    theirs = flower()
    mine = {length: ours(length) for length in LENGTHS}
    print(f"{'':24}{'Flower round trip':>20}{'unweave hop':>16}   (milliseconds)")
    for length in LENGTHS:
        found = mine[length]
        hop = "—" if found is None else f"{1e3 * found:.2f}"
        print(f"{length:>10,} numbers      {1e3 * theirs[length]:>20.2f}{hop:>16}")
    print(
        "Flower: median, TLS, nothing written to disk. Ours: mean, mutual TLS, signed, committed."
    )
    report = {"flwr": version("flwr"), "rounds": ROUNDS, "flower": theirs, "unweave": mine}
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server", port, folder]:
            serve(int(port), Path(folder))
        case ["client", port, folder]:
            answer(int(port), Path(folder))
        case _:
            sys.exit(main())

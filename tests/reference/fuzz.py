"""The parsers as targets of atheris, which follows the branches of the code.

python -m tests.reference.fuzz TARGET CORPUS [options of libFuzzer]

The seeds of the target are written to the folder CORPUS. An input may be refused with the error
that belongs to it. Every other exception is a finding: it ends the process, and the input is
written to the current folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["unweave"]):
    from tests.support.parsers import TARGETS

if __name__ == "__main__":
    target, corpus = TARGETS[sys.argv[1]](), Path(sys.argv[2])
    for number, data in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(data)

    def read(data: bytes) -> None:
        target.accepts(data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], read)
    atheris.Fuzz()

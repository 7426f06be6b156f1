"""Who waits in a pipe is told what changes."""

from unweave.cli.telling import telling


def test_each_change_is_a_line_in_a_pipe(capsys):
    with telling("first") as tell:
        for text in ("one [a]", "one [a]", "two", "one [a]"):
            tell(text)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", ["one [a]", "two", "one [a]"])


def test_quiet_is_quiet(capsys):
    with telling("first", quiet=True) as tell:
        tell("one")
    assert capsys.readouterr() == ("", "")

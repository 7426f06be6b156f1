"""A waiting command prints each change of its progress once, in a pipe."""

from unweave.cli.common import live_text


def test_each_change_is_a_line_in_a_pipe(capsys):
    with live_text("first") as tell:
        for text in ("one [a]", "one [a]", "two", "one [a]"):
            tell(text)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", ["one [a]", "two", "one [a]"])


def test_quiet_is_quiet(capsys):
    with live_text("first", quiet=True) as tell:
        tell("one")
    assert capsys.readouterr() == ("", "")

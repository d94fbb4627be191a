"""`chat` over a real socket and engine."""

from typer.testing import CliRunner

from ops.main import app


def test_chat_shows_method_and_speed(listening):
    said = "Hello\n\nAnd now?\n/quit\n"
    result = CliRunner().invoke(app, ["chat", "--url", listening, "--max-tokens", "12"], said)
    assert result.exit_code == 0
    footers = [line for line in result.stdout.splitlines() if "tokens/s" in line]
    assert len(footers) == 2
    assert all("naive" in line or "ngram" in line for line in footers)


def test_chat_goes_on_after_an_error(listening):
    said = "many words " * 600 + "\nHello\n"
    result = CliRunner().invoke(app, ["chat", "--url", listening, "--max-tokens", "4"], said)
    assert result.exit_code == 0
    assert "400" in result.stderr
    assert sum("tokens/s" in line for line in result.stdout.splitlines()) == 1

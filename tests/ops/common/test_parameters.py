"""What is checked of every command's parameters before it runs."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "address",
    [
        *("", "not a url", "127.0.0.1:9", "ftp://x", "http://", "http://[::1", "http://x:99999"),
        *("http://x:y", "http://x:0", "http://x\ny", "file:///etc/passwd"),
    ],
)
def test_what_is_no_address_is_refused(specadapt, address):
    for command in (
        ["chat", "--url", address],
        ["bench", "serve", "--url", address],
        ["grafana", "push", "--token", "t", "--url", address],
    ):
        assert ": give an address such as http" in specadapt.refusal(*command)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--temperature", "nan"], "--temperature"),
        (["generate", "--temperature", "inf"], "--temperature"),
        (["generate", "--temperature", "-1"], "--temperature"),
        (["generate", "--seed", str(2**70)], "--seed"),
        (["generate", "--seed", "-1"], "--seed"),
        (["generate", "--threads", str(10**9)], "--threads"),
        (["generate", "--max-tokens", str(10**30)], "--max-tokens"),
        (["bench", "decode", "--concurrency", str(10**9)], "--concurrency"),
        (["bench", "decode", "--limit", str(10**30)], "--limit: expected a number of at most"),
        (["bench", "serve", "--request-rate", "inf"], "--request-rate: expected a finite number"),
        (["bench", "serve", "--request-rate", "nan"], "--request-rate"),
    ],
)
def test_a_number_that_nothing_can_work_with_is_refused(specadapt, arguments, said):
    required = {
        "generate": ["--method", "naive", "--prompt", "x"],
    }
    assert said in specadapt.refusal(*arguments, *required.get(arguments[0], []))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (".", "is a directory; name a file"),
        ("file/figures.json", "is not a directory"),
        ("/proc/none/figures.json", "/proc"),
    ],
)
def test_figures_that_cannot_be_written_are_refused_before_the_work(
    specadapt, tmp_path, target, said
):
    (tmp_path / "file").write_text("")
    # The profile is not there: it is not looked for any more.
    message = specadapt.refusal(
        *["fit", "--profile", tmp_path / "none", "--out", tmp_path / "table"],
        *["--json", tmp_path / target],
    )
    assert message.startswith("specadapt: --json: ")
    assert said in message


def test_a_folder_to_write_to_is_checked_before_the_work(specadapt, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        message = specadapt.refusal("profile", "--out", out, "--bundle", tmp_path / "none")
        assert f"--out: {tmp_path / 'file'}: is not a directory" in message


def test_checking_leaves_nothing_behind(specadapt, tmp_path):
    specadapt.refusal("profile", "--out", tmp_path / "a" / "b", "--bundle", tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_files_names_and_output_are_utf8_in_every_locale(tmp_path, locale):
    environment = {k: v for k, v in os.environ.items() if k != "LANG" and not k.startswith("LC_")}
    environment |= {"LC_ALL": locale, "PYTHONUTF8": "0"}
    figures = tmp_path / "zahlen-ä.json"
    command = [sys.executable, "-m", "ops", "methods", "--json", os.fsencode(figures)]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert figures.is_file()
    command = [sys.executable, "-m", "ops", "config", "show", os.fsencode(tmp_path / "ö.yaml")]
    refused = subprocess.run(command, env=environment, capture_output=True)
    assert refused.returncode == 2
    assert refused.stderr.decode().endswith("ö.yaml: No such file or directory\n")

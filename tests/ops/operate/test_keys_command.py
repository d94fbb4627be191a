"""`keys create`: keys that the service's own file reader accepts."""

from deployments.guard.key_file import KeyFile


def test_a_key_is_printed_once_and_kept_as_a_hash(specadapt, tmp_path):
    file = tmp_path / "keys.yaml"
    first = specadapt("keys", "create", "--name", "app", "--file", file).stdout.strip()
    keys = KeyFile(file)
    assert keys.find(first).name == "app"
    second = specadapt(
        *("keys", "create", "--name", "ops", "--file", file, "--tenant", "acme", "--admin")
    ).stdout.strip()
    assert first != second
    assert len(second) > 40
    assert keys.find(first).name == "app"
    assert (keys.find(second).tenant, keys.find(second).admin) == ("acme", True)
    assert first not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_bad_input_is_named_and_loses_nothing(specadapt, tmp_path):
    file = tmp_path / "keys.yaml"
    key = specadapt("keys", "create", "--name", "app", "--file", file).stdout.strip()
    assert "--name" in specadapt.refusal("keys", "create", "--name", "app", "--file", file)
    assert KeyFile(file).find(key).name == "app"
    file.write_text("keys: 3")
    assert "keys.yaml" in specadapt.refusal("keys", "create", "--name", "b", "--file", file)
    assert file.read_text() == "keys: 3"

"""Bodies that curl -d and -F send are not the files that they were made of, and are not stored as if they were."""
import json
import subprocess

import pytest

FORMS = ["-d", "--data-binary", "-F"]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "x").write_bytes(b"one\r\ntwo\0three\n")
    return tmp_path / "x"


def curl(daemon, method, target, file, option):
    given = f"x=@{file}" if option == "-F" else f"@{file}"
    run = subprocess.run(["curl", "--fail-with-body", "-sS", "-X", method, option, given, daemon.url(target)],
                         capture_output=True, timeout=90)
    return run.returncode, json.loads(run.stdout) if run.stdout else None


def refused(answer):
    status, problem = answer
    assert (status, problem["status"], problem["code"]) == (22, 415, "unsupported_media_type")
    assert "curl -T FILE" in problem["detail"] and "application/octet-stream" in problem["detail"]


@pytest.mark.parametrize("option", FORMS)
def test_nothing_of_a_form_is_stored(daemon, session, file, option):
    data = f"/v1/sessions/{session}/buffers/x/data"
    refused(curl(daemon, "PUT", data, file, option))
    assert daemon.ask("GET", data).status == 404
    daemon.ask("PUT", data, b"before..").expect(201)
    refused(curl(daemon, "PUT", data, file, option))
    refused(curl(daemon, "PATCH", data + "?offset=0", file, option))
    assert daemon.ask("GET", data).expect(200).body == b"before.."


@pytest.mark.parametrize("option", FORMS)
def test_nor_in_several_requests(daemon, session, file, option):
    made = daemon.ask("POST", f"/v1/sessions/{session}/uploads", {"buffer": "x", "bytes": 15}).expect(201).json()
    part = f"/v1/sessions/{session}/uploads/{made['id']}"
    refused(curl(daemon, "PUT", part + "/parts?offset=0", file, option))
    assert daemon.ask("GET", part).expect(200).json()["received_bytes"] == 0


def test_curl_says_nothing_of_a_file(daemon, session, file):
    data = f"/v1/sessions/{session}/buffers/x/data"
    subprocess.run(["curl", "--fail-with-body", "-sS", "-T", file, daemon.url(data)], check=True, capture_output=True,
                   timeout=90)
    assert daemon.ask("GET", data).expect(200).body == file.read_bytes()

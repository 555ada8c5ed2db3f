"""Secrets are found where their reference says, and stand in no message."""

import os

import pytest

from streams.edge.client_tls import client_context
from streams.edge.secrets import SECRET_BYTES_MAX, read_secret
from streams.errors import TargetError
from streams.model.target import Tls


def test_a_variable_is_read():
    assert "s3" == read_secret("env:CRM", {"CRM": "s3"})


def test_the_environment_of_the_process_is_read_by_default(monkeypatch):
    monkeypatch.setenv("CRM_SECRET", "s3")

    assert "s3" == read_secret("env:CRM_SECRET")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_is_read_without_its_last_line_break(end, tmp_path):
    """
    Editors and `echo` write one; Kubernetes does not.
    """
    (tmp_path / "crm").write_text(f"line\ns3{end}")

    assert "line\ns3" == read_secret(f"file:{tmp_path}/crm")


def test_a_file_that_changed_is_read_anew(tmp_path):
    """
    C-09: rotation.
    """
    place = tmp_path / "crm"
    place.write_text("old")
    read_secret(f"file:{place}")
    place.write_text("new")

    assert "new" == read_secret(f"file:{place}")


@pytest.mark.parametrize(
    "content", [None, b"", b"\n", b"canary\xff", b"c" * (SECRET_BYTES_MAX + 1)]
)
def test_a_file_without_a_secret_is_refused_by_its_reference(content, tmp_path):
    """
    D-042: the message names the reference, and nothing of what is there.
    """
    place = tmp_path / "crm"
    if content is not None:
        place.write_bytes(content)

    with pytest.raises(TargetError, match=f"secret file:{place}") as refused:
        read_secret(f"file:{place}")

    assert "canary" not in str(refused.value)


def test_a_variable_that_is_not_set_is_refused_by_its_reference():
    with pytest.raises(TargetError, match="secret env:CRM"):
        read_secret("env:CRM", {})


def test_what_is_no_file_is_refused(tmp_path):
    """
    A pipe would be read for ever.
    """
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(TargetError, match="no regular file"):
            read_secret(f"file:{tmp_path}/pipe")
    finally:
        os.close(descriptor)


def test_a_reference_of_another_kind_is_refused():
    with pytest.raises(TargetError, match="env:NAME or file:/path"):
        read_secret("vault:crm", {})


def test_tls_files_that_are_not_there_are_refused_by_their_field(tmp_path):
    """
    D-042: which field, and why; nothing of the files.
    """
    with pytest.raises(TargetError, match="tls_ca_file: No such file"):
        client_context(Tls(ca_file=f"{tmp_path}/none.pem"))


def test_tls_files_that_are_no_pem_are_refused_by_their_field(tmp_path):
    (tmp_path / "a.pem").write_text("canary")

    with pytest.raises(
        TargetError, match="tls_cert_file, tls_key_file: hold no such PEM"
    ) as refused:
        client_context(Tls(cert_file=f"{tmp_path}/a.pem", key_file=f"{tmp_path}/a.pem"))

    assert "canary" not in str(refused.value)

"""Second names of files, and two names exchanged."""

import errno
import os

import pytest
from faulty_storage import Crash, FaultyStorage

import rekord as rk
from rekord.storage.local import LOCAL
from rekord.storage.portability import exchange_names


def test_a_link_is_the_same_file_by_another_name(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"content")
    assert LOCAL.link(str(one), str(other))
    assert os.path.samefile(one, other)
    assert LOCAL.stat(str(one)).identity == LOCAL.stat(str(other)).identity
    LOCAL.remove(str(one))
    assert other.read_bytes() == b"content"


def test_a_link_never_takes_the_place_of_a_file(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"new")
    other.write_bytes(b"old")
    with pytest.raises(rk.DatasetError) as caught:
        LOCAL.link(str(one), str(other))
    assert (caught.value.code, caught.value.location.path) == ("X504", str(other))
    assert other.read_bytes() == b"old"


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOTSUP])
def test_where_there_can_be_no_link_that_is_an_answer_and_no_error(tmp_path, monkeypatch, number):
    def impossible(_source, _target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", impossible)
    (tmp_path / "one").write_bytes(b"content")
    assert not LOCAL.link(str(tmp_path / "one"), str(tmp_path / "other"))


def test_a_link_to_nothing_is_an_error(tmp_path):
    with pytest.raises(rk.DatasetError) as caught:
        LOCAL.link(str(tmp_path / "none"), str(tmp_path / "other"))
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / "other"))


def test_two_folders_change_names_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert LOCAL.exchange(str(tmp_path / "one"), str(tmp_path / "other"))
    assert (tmp_path / "one" / "file").read_text() == "other"
    assert (tmp_path / "other" / "file").read_text() == "one"


def test_an_exchange_with_nothing_is_an_error_and_changes_nothing(tmp_path):
    (tmp_path / "one").mkdir()
    with pytest.raises(rk.DatasetError) as caught:
        LOCAL.exchange(str(tmp_path / "one"), str(tmp_path / "none"))
    assert caught.value.code == "X504"
    assert os.listdir(tmp_path) == ["one"]


def test_a_system_without_exchange_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.storage.portability._load_renameat2", lambda: None)
    assert not exchange_names(str(tmp_path), str(tmp_path))


def test_a_faulty_storage_knows_what_a_power_cut_takes_after_an_exchange(tmp_path):
    storage = FaultyStorage(fail_at=5, fault="power loss")
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    file = storage.create(str(tmp_path / "one" / "file"))
    file.write(b"never synced")
    file.close()
    assert storage.exchange(str(tmp_path / "one"), str(tmp_path / "other"))
    assert storage.link(str(tmp_path / "other" / "file"), str(tmp_path / "linked"))
    with pytest.raises(Crash):
        storage.remove(str(tmp_path / "linked"))
    assert (tmp_path / "other" / "file").read_bytes() == b""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from skdpgen.datasets import _tables, load_creditcard_subset, load_esr, load_isolet

needs_data = pytest.mark.skipif(not os.environ.get("SKDPGEN_DATA"), reason="SKDPGEN_DATA names no data folder")
LOADERS = [load_esr, load_isolet, load_creditcard_subset]


def _write(folder):
    """Files of the same keys and types, a few rows each."""
    rng = np.random.default_rng(0)
    X = rng.integers(-2048, 2047, (10, 178))
    np.savez(folder / "esr.npz", X=X.astype(np.int16), y=np.arange(10, dtype=np.uint8) % 5 + 1)
    y = np.arange(26, dtype=np.uint8) + 1
    X = rng.uniform(-1, 1, (26, 617)).astype(np.float32)
    np.savez(folder / "isolet.npz", X=X, y=y, group=y % 5 + 1)
    names = np.array([f"V{i}" for i in range(1, 29)] + ["Amount"])
    np.savez(
        folder / "creditcard_subset.npz",
        X=rng.uniform(0, 2, (8, 29)).astype(np.float32),
        y=np.arange(8, dtype=np.uint8) % 2,
        columns=names,
        X_extra=rng.uniform(0, 2, (6, 30)).astype(np.float32),
        y_extra=np.arange(6, dtype=np.uint8) % 2,
        columns_extra=np.array(["Time", *names]),
        extra_in_X=np.array([True, False, False, True, False, False]),
    )


@pytest.fixture
def folder(tmp_path):
    _write(tmp_path)
    return tmp_path


@pytest.mark.parametrize("load", LOADERS)
def test_frame_schema_and_target_fit_together(load, folder):
    bunch = load(folder)
    assert list(bunch.schema) == list(bunch.frame.columns)
    assert bunch.schema.complete
    assert bunch.frame.columns[-1] == bunch.target
    assert set(bunch.frame[bunch.target]) == set(bunch.schema[bunch.target].categories)
    assert bunch.positive in set(bunch.frame[bunch.target])
    assert len(bunch.DESCR) > 100
    for name in bunch.frame.columns[:-1]:
        assert bunch.frame[name].between(*bunch.schema[name].bounds).all()


def test_class_one_is_the_seizure_and_all_classes_can_be_had(folder):
    binary, full = load_esr(folder), load_esr(folder, binary=False)
    assert (full.frame["state"] == 1).equals(binary.frame["state"] == "seizure")
    assert full.schema["state"].categories == (1, 2, 3, 4, 5)
    assert binary.frame["x1"].dtype == np.int64


def test_vowels_are_five_of_the_letters(folder):
    binary, full = load_isolet(folder), load_isolet(folder, binary=False)
    assert "".join(full.frame["letter"]) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert "".join(full.frame["letter"][binary.frame["letter"] == "vowel"]) == "AEIOU"
    assert len(binary.group) == 26


def test_extra_rows_are_those_that_are_not_in_the_table(folder):
    bunch = load_creditcard_subset(folder)
    assert len(bunch.extra) == 4
    assert list(bunch.extra.columns) == list(bunch.frame.columns)


@pytest.mark.parametrize("load", LOADERS)
def test_a_named_folder_without_the_file_is_an_error_and_nothing_is_fetched(load, monkeypatch, tmp_path):
    monkeypatch.setattr(_tables, "fetch_openml", lambda *args, **kwargs: pytest.fail("fetched"))
    with pytest.raises(FileNotFoundError, match="data_dir"):
        load(tmp_path)
    monkeypatch.setenv("SKDPGEN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="SKDPGEN_DATA"):
        load()


def test_seizures_cannot_be_fetched_and_the_error_says_so_and_where_they_are(monkeypatch):
    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"SKDPGEN_DATA.*cannot be fetched.*OpenML.*archive\.ics\.uci\.edu"):
        load_esr()


def test_openml_copy_of_isolet_gives_the_letters_of_the_file_but_not_their_parts(folder, monkeypatch):
    with np.load(folder / "isolet.npz") as arrays:
        copy = Bunch(data=arrays["X"].astype(np.float64), target=arrays["y"].astype(str).astype(object))
    asked = []
    monkeypatch.setattr(_tables, "fetch_openml", lambda *args, **kwargs: asked.append((args, kwargs)) or copy)
    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    fetched, read = load_isolet(), load_isolet(folder)
    assert asked == [(("isolet",), {"version": 1, "as_frame": False})]
    assert fetched.frame.equals(read.frame)
    assert "group" in read
    assert "group" not in fetched


def test_openml_copy_of_the_credit_cards_gives_a_fifth_of_each_class_and_other_rows(monkeypatch):
    rng = np.random.default_rng(0)
    names = [*(f"V{i}" for i in range(1, 29)), "Amount"]
    full = pd.DataFrame(rng.uniform(0, 2, (500, 29)), columns=names)
    full["Class"] = pd.Categorical(np.where(np.arange(500) % 10 == 0, "1", "0"))
    asked = []
    monkeypatch.setattr(_tables, "fetch_openml", lambda **kwargs: asked.append(kwargs) or Bunch(frame=full))
    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    with pytest.warns(UserWarning, match="another fifth"):
        first = load_creditcard_subset()
    with pytest.warns(UserWarning, match="another fifth"):
        second = load_creditcard_subset()
    assert asked[0] == {"data_id": 1597, "as_frame": True}
    assert first.frame.equals(second.frame)
    assert first.extra.equals(second.extra)
    assert first.frame["class"].value_counts().to_dict() == {"legitimate": 90, "fraud": 10}
    assert first.extra["class"].value_counts().to_dict() == {"legitimate": 360, "fraud": 40}
    assert list(first.frame.columns) == list(first.extra.columns) == list(first.schema)
    assert "OpenML" in first.DESCR
    truth = dict(zip(full["Amount"], full["Class"]))
    assert not set(first.frame["Amount"]) & set(first.extra["Amount"])
    for table in (first.frame, first.extra):
        assert [truth[amount] == "1" for amount in table["Amount"]] == (table["class"] == "fraud").tolist()
    full.loc[:, names] = full.loc[0, names].to_numpy()
    with pytest.warns(UserWarning, match="another fifth"):
        assert len(load_creditcard_subset().extra) == 0  # all rows are equal to one in the table


@needs_data
def test_real_files_have_the_published_sizes_and_shares():
    esr, isolet, credit = (load() for load in LOADERS)
    assert esr.frame.shape == (11_500, 179)
    assert (esr.frame["state"] == "seizure").mean() == 0.2
    assert isolet.frame.shape == (7_797, 618)
    assert (isolet.frame["letter"] == "vowel").mean() == pytest.approx(0.192, abs=0.001)
    assert (isolet.group == 5).sum() == 1559
    assert credit.frame.shape == (56_962, 30)
    assert (credit.frame["class"] == "fraud").sum() == 98
    assert credit.extra.shape == (1_370, 30)
    assert (credit.extra["class"] == "fraud").sum() == 392
    for bunch in (esr, isolet, credit):
        for name in bunch.frame.columns[:-1]:
            assert bunch.frame[name].between(*bunch.schema[name].bounds).all(), name

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from skdpgen import datasets

needs_data = pytest.mark.skipif(not os.environ.get("SKDPGEN_DATA"), reason="SKDPGEN_DATA names no data folder")


def assert_public_facts_hold(frame, schema):
    for name in frame.columns:
        column = schema[name]
        if getattr(column, "categories", None) is not None:
            assert set(frame[name].dropna()) <= set(column.categories)
        else:
            low, high = column.bounds
            assert frame[name].between(low, high).all()


@pytest.mark.parametrize("load", [datasets.load_breast_cancer_table, datasets.load_digits_table])
def test_shipped_tables_satisfy_their_public_facts(load):
    bunch = load()
    assert_public_facts_hold(bunch.frame, bunch.schema)


def test_digits_arrays_and_frame_agree():
    bunch = datasets.load_digits_table()
    assert np.array_equal(bunch.frame.drop(columns="digit").to_numpy(), bunch.data)
    assert bunch.data.shape == (1797, 64)


def test_a_named_folder_without_the_file_is_an_error_and_nothing_is_fetched(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="data_dir"):
        datasets.load_adult(tmp_path)
    monkeypatch.setenv("SKDPGEN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="SKDPGEN_DATA"):
        datasets.load_mnist()


def test_openml_copy_of_adult_takes_the_names_of_the_file(monkeypatch):
    from skdpgen.datasets import _tables

    row = {name.replace("_", "-"): "x" for name in _tables._COLUMNS if name not in _tables._NUMERIC}
    row |= {name.replace("_", "-"): 1.0 for name in _tables._NUMERIC}
    row["class"] = row.pop("income")
    table = pd.DataFrame([row, row | {"occupation": None}])

    class Fetched:
        frame = table

    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    monkeypatch.setattr(_tables, "fetch_openml", lambda *args, **kwargs: Fetched)
    frame = datasets.load_adult().frame
    assert list(frame.columns) == _tables._COLUMNS
    assert len(frame) == 1
    assert frame["age"].dtype == np.int64


def test_openml_copy_of_mnist_is_split_as_usual(monkeypatch):
    from skdpgen.datasets import _images

    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    monkeypatch.setattr(_images, "N_TRAIN", 3)
    monkeypatch.setattr(_images, "fetch_openml", lambda *a, **k: (np.full((5, 784), 7.0), np.array(list("01234"))))
    bunch = datasets.load_mnist()
    assert bunch.data.shape == (3, 784)
    assert bunch.data.dtype == np.uint8
    assert bunch.target_test.tolist() == [3, 4]


@needs_data
def test_adult_has_the_complete_rows_and_satisfies_its_public_facts():
    bunch = datasets.load_adult()
    assert bunch.frame.shape == (45_222, 15)
    assert_public_facts_hold(bunch.frame, bunch.schema)


@needs_data
@pytest.mark.parametrize("load", [datasets.load_mnist, datasets.load_fashion_mnist])
def test_images_have_the_standard_split(load):
    bunch = load()
    assert bunch.data.shape == (60_000, 784)
    assert bunch.data_test.shape == (10_000, 784)

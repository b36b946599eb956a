import importlib.util

import pytest

from models.kernel_choice import build_llama
from models.llama import Llama
from models.weights import tiny_llama


def test_numpy_is_always_there_and_auto_never_fails():
    assert isinstance(build_llama(*tiny_llama(0), kernel="numpy"), Llama)
    assert build_llama(*tiny_llama(0)).vocab_size == 97


def test_numba_is_taken_where_it_is_installed_and_missed_by_name_where_not():
    if importlib.util.find_spec("numba"):
        assert not isinstance(build_llama(*tiny_llama(0)), Llama)
        assert build_llama(*tiny_llama(0), kernel="numba", num_threads=1).num_threads == 1
    else:
        assert isinstance(build_llama(*tiny_llama(0)), Llama)
        with pytest.raises(ImportError, match=r"numba is not installed: .* pip install -e '\.\[fast\]'"):
            build_llama(*tiny_llama(0), kernel="numba")


def test_rows_stay_exact_where_8_bits_cannot_run_or_give_other_bits(monkeypatch, caplog):
    pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
    from models.kernels import int8, int8_check

    assert not build_llama(*tiny_llama(0), kernel="numba").is_int8
    assert build_llama(*tiny_llama(0)).is_int8 == build_llama(*tiny_llama(0), kernel="int8").is_int8 == int8.HAS_VNNI
    with monkeypatch.context() as patch:
        patch.setattr(int8, "HAS_VNNI", True)
        patch.setattr(int8_check, "is_right", lambda: False)
        assert not build_llama(*tiny_llama(0)).is_int8
        assert "8-bit products are not what they should be" in caplog.text
    monkeypatch.setattr(int8, "HAS_VNNI", False)
    assert not build_llama(*tiny_llama(0), kernel="int8").is_int8


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel cuda: must be one of auto, int8, numba, numpy"):
        build_llama(*tiny_llama(0), kernel="cuda")

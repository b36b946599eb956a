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


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel cuda: must be one of auto, numba, numpy"):
        build_llama(*tiny_llama(0), kernel="cuda")

"""The roofline: worked by hand, and what processors and models may be."""

import numpy as np
import pytest

from plans.errors import PlanError
from plans.hardware import HARDWARE, MODELS, Hardware, ModelShape, find
from plans.roofline import Roofline

CHIP = Hardware(
    name="chip", memory_gb_s=100, tflops=1, memory_efficiency=0.5, arithmetic_efficiency=0.5, pass_us=100, layer_us=10
)
MODEL = ModelShape(name="model", params_b=1, layers=20, kv_bytes=1000, bits=8)


def test_a_pass_is_overhead_reading_and_arithmetic():
    #   1 GB of weights at 50 GB/s; 20 us an id against 2e9 operations at 0.5e12 a second = 4 ms a row
    few = Roofline(CHIP, MODEL).parts(np.array([1.0]), 1, 500)
    assert few.overhead == pytest.approx(300e-6)
    assert few.linear == pytest.approx(0.02)
    assert few.attention == pytest.approx(1e-5)
    many = Roofline(CHIP, MODEL).parts(np.array([10.0]), 2, 500)
    assert many.linear == pytest.approx(0.04)
    assert many.attention == pytest.approx(2e-5)
    assert many.total == pytest.approx(0.04 + 300e-6 + 2e-5)


def test_every_known_name_is_one(tmp_path):
    assert all(find(Hardware, HARDWARE, name).name == name for name in HARDWARE)
    assert all(find(ModelShape, MODELS, name).name == name for name in MODELS)
    own = tmp_path / "mine.toml"
    own.write_text("memory_gb_s = 10\ntflops = 0.5\n")
    assert find(Hardware, HARDWARE, str(own)) == Hardware(name="mine", memory_gb_s=10, tflops=0.5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("memory_gb_s = 10", "tflops"),
        ("memory_gb_s = 10\ntflops = 0", "tflops is 0"),
        ("memory_gb_s = 10\ntflops = 1\nmemory = 3", "memory"),
        ("memory_gb_s = ", "mine.toml"),
        ("memory_gb_s = 10\ntflops = 1\npass_us = -1.0", "pass_us is -1"),
        ("memory_gb_s = 10\ntflops = nan", "tflops is nan"),
    ],
)
def test_a_file_that_describes_no_processor_is_refused(tmp_path, text, told):
    own = tmp_path / "mine.toml"
    own.write_text(text)
    with pytest.raises(PlanError, match=told):
        find(Hardware, HARDWARE, str(own))


def test_an_unknown_name_is_told_what_is_known():
    with pytest.raises(PlanError, match=r"'h1000' is not known: a100, cpu, h100, .*, or a file\.toml"):
        find(Hardware, HARDWARE, "h1000")
    with pytest.raises(PlanError, match=r"there.toml: No such file"):
        find(Hardware, HARDWARE, "there.toml")

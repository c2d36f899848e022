"""Files of measurements that the toy family explains exactly, or almost."""

import pytest

HEADER = "hardware,op,m,n,dtype,latency_us"
TRUE = {"A": (20e-6, 2e9), "B": (5e-6, 5e10)}
"""Launch time, s, and rate of the toy's devices."""


def toy_us(device, m, n):
    launch_s, rate = TRUE[device]
    return (launch_s + m * n / rate) * 1e6


def toy_lines(devices=("A", "B"), sizes=(16, 64, 256, 1024, 4096, 16384)):
    return [
        f"{device},gelu,{m},{n},fp16,{toy_us(device, m, n):.9g}" for device in devices for m in sizes for n in (8, 128, 512)
    ]


@pytest.fixture
def write_csv(tmp_path):
    """Writes a CSV file and gives its path."""

    def write(lines, *, header=HEADER, name="op_llmcompass.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        return path

    return write

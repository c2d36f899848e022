"""Times that no machine can have had are refused, with the unit that they are likely in."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.row_times import MEASURED, measured_seconds, time_limits_s

STEPS = "hardware,n_devices,layers,hidden,heads,kv_heads,ffn,mlp_matrices,vocab,seq,global_batch,tp,pp,iter_time_s"
STEP = "h100,512,80,8192,64,8,28672,3,128256,8192,512,4,8,"
MATMULS = "hardware,op,m,n,k,dtype,latency_us"
MATMUL = "h100,matmul,8192,8192,8192,bf16,"
REDUCTIONS = "hardware,n_devices,bytes,latency_us"
REDUCTION = "A100-SXM,8,1073741824,"
LAYERS = "hardware,hidden,heads,seq,tp,micro_batch,backward_ms,forward_ms"
LAYER = "a100-80g,12288,96,2048,8,1,"
MODELS = "hardware,mode,layers,hidden,heads,seq,batch,e2e_ms"
MODEL = "a100-pcie-40g,train,24,1024,16,512,8,"


def read(tmp_path, header, *rows):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return read_dataset(path)


def test_all_published_measurements_are_plausible():
    judged = 0
    for dataset in read_datasets(None)[0]:
        odd = []
        for row in dataset.rows if dataset.schema.kind in MEASURED else ():
            least, most = time_limits_s(row, dataset.schema.kind)
            judged += 1
            if not least <= measured_seconds(row, dataset.schema.kind) <= most:
                odd.append((row.source, row.line))
        # Triton's experts on L40S took a hundred times as long as others in three rows.
        assert len(odd) <= 3 * (dataset.name == "moe_modern"), odd
    assert judged > 3000


@pytest.mark.parametrize(
    ("header", "row", "good", "bad", "unit"),
    [
        (STEPS, STEP, "8.6", "8600", "milliseconds"),
        (STEPS, STEP, "8.6", "8600000", "microseconds"),
        (STEPS, STEP, "8.6", "0.0086", None),
        (MATMULS, MATMUL, "1650", "1.65", "milliseconds"),
        (MATMULS, MATMUL, "1650", "0.00165", "seconds"),
        (MATMULS, MATMUL, "1650", "1650000", "nanoseconds"),
        (MATMULS, "h100,matmul,16,16,16,bf16,", "5", "0.005", "milliseconds"),
        (REDUCTIONS, REDUCTION, "8000", "8", "milliseconds"),
        (REDUCTIONS, "A100-SXM,8,1024,", "12", "0.000012", "seconds"),
        (LAYERS, LAYER, "20,10", "0.02,0.01", "seconds"),
        (LAYERS, LAYER, "20,10", "20000,10000", "microseconds"),
        (MODELS, MODEL, "500", "0.5", "seconds"),
        (MODELS, MODEL, "500", "500000", "microseconds"),
    ],
)
def test_a_time_in_another_unit_is_refused_with_line_column_and_unit(tmp_path, header, row, good, bad, unit):
    read(tmp_path, header, row + good)
    with pytest.raises(InputError) as caught:
        read(tmp_path, header, row + good, row + bad)
    assert caught.value.line == 3
    column = "forward_ms" if header is LAYERS else header.rpartition(",")[2]
    assert f"column '{column}'" in str(caught.value)
    assert (f"looks like {unit}:" if unit else f"check that it is in {'seconds'}") in str(caught.value)


def test_a_machine_that_is_not_known_is_not_judged(tmp_path):
    assert len(read(tmp_path, STEPS, f"mystery{STEP[4:]}8600").rows) == 1

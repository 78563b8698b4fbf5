"""The kernels of a step, counted and grouped."""

import torch
from torch import nn

from racecar.bench import kernels

KERNELS = {
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT": True,
    "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc": True,
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized>": True,
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128>>": True,
    "aten::addmm": True,
    "aten::convolution_backward": True,
    "triton_poi_fused_add_native_batch_norm_relu_7": False,
    "triton_red_fused_sum_11": False,
    "Memcpy DtoD (Device -> Device)": False,
    "aten::native_layer_norm": False,
}


def test_what_is_a_product():
    for name, product in KERNELS.items():
        assert kernels.summary([(name, 1000.0)])["product_ms"] == float(product), name
    found = kernels.summary([(name, 1000.0) for name in KERNELS])
    assert (found["kernels"], found["kernel_ms"], found["product_ms"]) == (10, 10.0, 6.0)


def test_kinds_of_kernels():
    """One row for kernels that differ in a number or in template arguments, the longest first."""
    times = {"triton_red_fused_sum_11": 1.0, "triton_red_fused_sum_2": 2.5, "void cutlass::Kernel<a<1>>": 9.0}
    found = kernels.summary([*times.items(), ("void cutlass::Kernel<b>", 500.0)])
    assert found["largest"] == [["void cutlass::Kernel", 2, 0.509], ["triton_red_fused_sum", 2, 0.0035]]


def test_a_step():
    """Three products; on a CPU operators are counted."""
    layer, x = nn.Linear(256, 256), torch.randn(256, 256, requires_grad=True)
    found = kernels.profile(lambda: layer(x).sum().backward(), cuda=False)
    assert found["kernels"] > 3
    assert 0 < found["product_ms"] < found["kernel_ms"]


def test_rows():
    def step(name, kernels, whole, products, every=1):
        return {"step": name, "every": every, "kernels": kernels, "kernel_ms": whole, "product_ms": products}

    steps = [step("plain", 10, 2.0, 1.5), step("racecar 1", 25, 4.0, 3.0), step("racecar 1 every 4", 25, 4.0, 3.0, 4)]
    steps.append({"step": "srip", "every": 1})
    found = kernels.rows({"models": [{"model": "net", "steps": steps}, {"model": "broken", "error": "no"}]})
    assert found == [
        ["net", "plain", "10", "2.00", "1.50", "0.50", "+0", "+0.00", "+0.00"],
        ["", "racecar 1", "25", "4.00", "3.00", "1.00", "+15", "+1.50", "+0.50"],
    ]
    assert {len(row) for row in found} == {len(kernels.HEAD)}
    (alone,) = kernels.rows({"models": [{"model": "net", "steps": steps[1:2]}]})
    assert alone[-3:] == ["–", "–", "–"]

"""FP8 tiles: the error law, the bytes, and values that E4M3 lacks."""

import pytest
import torch

from reference.kernels.fp8 import TILE, dequantize, dequantize_blocks, quantize

TINY = torch.finfo(torch.float32).tiny


def round_trip(x):
    return dequantize(quantize(x), x.dtype)


@pytest.mark.parametrize("width", [1, 96, 128, 300, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_normal_value_comes_back_within_a_sixteenth_of_itself(width, dtype):
    x = (torch.randn(64, width) * torch.logspace(-4, 4, 64)[:, None]).to(dtype)
    largest = torch.stack([t.abs().amax(-1) for t in x.float().split(TILE, -1)], -1)
    largest = largest.repeat_interleave(TILE, -1)[:, :width]
    error = (round_trip(x).float() - x.float()).abs()
    own = torch.finfo(dtype).eps  # rounding of the scale and of the result
    normal = x.float().abs() >= largest * 2**-6 / 448
    assert normal.float().mean() > 0.9
    assert (error <= x.float().abs() * (2**-4 + 2 * own))[normal].all()
    assert (error <= largest * (2**-10 / 448) * (1 + 2 * own))[~normal].all()


def test_the_error_law_is_reached_so_that_no_smaller_one_holds():
    x = torch.linspace(1, 448, 100_000).reshape(-1, 100)
    x[:, 0] = 448  # the scale is one
    worst = ((round_trip(x) - x).abs() / x).max()
    assert 0.99 / 17 < worst <= 1 / 17  # half a step of 2^-3 above a power of two: 1/16 of 17/16


def test_a_tile_keeps_its_largest_value_and_zero_stays_zero():
    x = torch.zeros(3, 256)
    x[0, 5], x[1, 200], x[2, 255] = 3.7, -1e-30, 1e30
    torch.testing.assert_close(round_trip(x), x, rtol=2**-22, atol=0)


def test_a_value_of_one_tile_does_not_change_another():
    x = torch.randn(4, 256)
    y = x.clone()
    y[:, 0] = 1e6
    assert torch.equal(round_trip(x)[:, TILE:], round_trip(y)[:, TILE:])


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_tile_that_is_not_finite_comes_back_as_nan_and_its_neighbours_do_not(value):
    x = torch.randn(2, 256)
    x[0, 3] = value
    back = round_trip(x)
    assert back[0, :TILE].isnan().all()
    assert back[0, TILE:].isfinite().all()
    assert back[1].isfinite().all()


@pytest.mark.parametrize("size", [TINY, 2**-140, 3e38])
def test_the_smallest_and_largest_numbers_neither_vanish_into_nan_nor_overflow(size):
    x = torch.full((1, 128), size)
    back = round_trip(x)
    assert (back - x).abs().max() <= max(2**-10 * TINY, size * 2**-4)


def test_bytes_are_one_and_four_for_128():
    packed = quantize(torch.randn(7, 3, 512))
    assert packed.values_XD.shape == (7, 3, 512)
    assert packed.scales_XJ.shape == (7, 3, 4)
    assert sum(part.nbytes for part in packed) == 7 * 3 * 512 * (1 + 4 / 128)
    assert quantize(torch.randn(2, 300)).scales_XJ.shape == (2, 3)


def test_the_meta_device_gives_shapes():
    packed = quantize(torch.randn(4, 300, device="meta", dtype=torch.bfloat16))
    assert (packed.values_XD.shape, packed.scales_XJ.shape) == ((4, 300), (4, 3))
    assert dequantize(packed, torch.bfloat16).shape == (4, 300)


def test_blocks_of_a_weight_are_multiplied_by_their_scale():
    weight = torch.randn(130, 257).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    out = dequantize_blocks(weight, scale, torch.float32)
    for row, column, factor in (
        (0, 0, 1),
        (127, 128, 2),
        (128, 127, 4),
        (129, 255, 5),
        (5, 256, 3),
    ):
        assert out[row, column] == weight[row, column].float() * factor
    assert dequantize_blocks(weight, scale, torch.bfloat16).dtype == torch.bfloat16

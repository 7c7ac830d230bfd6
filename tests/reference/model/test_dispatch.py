"""Rows to experts and back: permutations, and their gradients."""

from __future__ import annotations

import torch
from torch.autograd import gradcheck

from reference.model.dispatch import gather, order_of, spread


def test_rows_stand_in_order_of_expert_and_then_of_token() -> None:
    order = order_of(torch.tensor([[2, 0], [0, 1], [2, 1]]), 4)
    assert order.copies_R.tolist() == [1, 2, 3, 5, 0, 4]
    assert order.load_E.tolist() == [2, 2, 2, 0]
    assert order.ends_E.tolist() == [2, 4, 6, 6]


def test_the_row_of_a_copy_is_the_inverse_of_the_copy_of_a_row() -> None:
    order = order_of(torch.randint(0, 16, (50, 4)), 16)
    assert order.copies_R[order.rows_R].tolist() == list(range(200))


def test_a_token_s_copies_come_back_summed() -> None:
    x_ND = torch.randn(7, 5)
    order = order_of(torch.randint(0, 3, (7, 2)), 3)
    torch.testing.assert_close(gather(spread(x_ND, order, 2), order, 2), 2 * x_ND)


def test_gradients_of_both_ways_are_right() -> None:
    order = order_of(torch.randint(0, 3, (4, 2)), 3)
    x_ND = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y_RD = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: spread(x, order, 2), x_ND)
    assert gradcheck(lambda y: gather(y, order, 2), y_RD)


def test_copies_in_bf16_are_summed_in_fp32() -> None:
    copies = 64
    order = order_of(torch.zeros(1, copies, dtype=torch.int64), 1)
    rows = torch.full((copies, 1), 1 / 256, dtype=torch.bfloat16)
    rows[0] = 1.0  # a sum in bf16 would stay at 1: half of its last place is 1 / 256
    assert gather(rows, order, copies).item() == torch.tensor(1 + 63 / 256).bfloat16().item()

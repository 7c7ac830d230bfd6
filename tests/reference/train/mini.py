"""The text of a run small enough to play many times: 2 layers, 4 experts, a vocabulary of bytes."""

from collections.abc import Callable

from reference.config import RunSpec

MINI = """\
model:
  name: mini
  layers: 2
  hidden: 32
  vocab: 272
  attention:
    kind: mla
    heads: 2
    q_lora_rank: 16
    kv_lora_rank: 16
    qk_nope_head_dim: 16
    qk_rope_head_dim: 8
    v_head_dim: 16
  ffn:
    kind: swiglu
    width: 48
  moe:
    experts: 4
    top_k: 2
    width: 16
    shared_experts: 1
    first_dense_layers: 1
    correction_bias: true
    scores: sigmoid
train:
  steps: 12
  sequence: 16
  micro_batch: 2
  precision: fp32
  output: {out}
  checkpoint_every: 4
  evaluate_every: 5
  evaluate_sequences: 2
  final_sequences: 3
optimizer:
  lr: 0.003
schedule:
  warmup_steps: 2
  constant_steps: 6
  decay_steps: 4
  final_lr: 0.0003
data:
  source: {texts}
  held_out: 0.2
  cache: {cache}
  tokenizer:
    kind: bytes
"""

Load = Callable[..., RunSpec]

"""Options of Megatron-LM that no field of a scenario takes, by what leaving them out means.

Names are those of NVIDIA/Megatron-LM, megatron/training/arguments.py at 000c4ac2 (late 2025), and
of the dataclasses that later versions make options of (`ArgumentGroupFactory`:
megatron/core/transformer/transformer_config.py at 002526d8, 2026); those of torchrun beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = (
    "adam-", "adlr-", "app-tag-", "async-", "auto-detect-", "ckpt-", "config-logger", "data-",
    "dataloader-", "dist-ckpt-", "error-injection-", "eval-", "exit-", "ft-", "ict-", "inference-",
    "inprocess-", "log-", "lr-", "master", "memory-snapshot", "muon-", "non-persistent-", "no-load",
    "no-log", "no-one-logger", "no-save", "object-storage", "one-logger", "override-opt",
    "per-split-", "profile", "rdzv", "replication", "rerun-", "result-", "save", "straggler-",
    "tensorboard-", "test-", "tiktoken-", "timing-", "tokenizer", "train-data",
    "use-checkpoint-opt", "use-persistent-ckpt", "use-pytorch-profiler", "valid-", "wandb-",
    "weight-decay",
)  # fmt: skip
"""Beginnings of options about data, checkpoints, logs, schedules of learning rates and restarts."""

HARMLESS = frozenset(
    {
        # launcher, names, numbers, initialisation
        "calc-ft-timeouts", "deterministic-mode", "disable-msc", "distributed-backend",
        "distributed-timeout-minutes", "distributed-timeout-seconds-after-init",
        "embedding-init-method-std", "enable-experimental", "enable-ft-package", "finetune",
        "init-method-std", "init-method-xavier-uniform", "init-model-with-meta-device",
        "local-rank", "module", "node-rank", "no-python", "nnodes", "nproc-per-node", "seed", "tee",
        "transformer-impl", "use-cpu-initialization", "use-mcore-models", "use-dist-ckpt", "load",
        "pretrained-checkpoint", "ckpt-format", "data-parallel-random-init", "local-addr",
        "no-initialization", "no-use-tokenizer-model-from-checkpoint-args",
        "attention-softmax-in-fp32",
        # learning
        "clip-grad", "calculate-per-token-loss", "decoupled-lr", "decoupled-min-lr",
        "end-weight-decay", "eod-mask-loss", "hysteresis", "initial-loss-scale", "loss-scale",
        "loss-scale-window", "lr", "min-loss-scale", "min-lr", "mtp-loss-scaling-factor",
        "moe-aux-loss-coeff", "moe-input-jitter-eps", "moe-router-bias-update-rate",
        "moe-router-load-balancing-type", "moe-z-loss-coeff", "qk-clip-alpha", "qk-clip-threshold",
        "reset-attention-mask", "reset-position-ids", "sgd-momentum", "start-weight-decay",
        "ckpt-step",
        # data
        "legacy-tokenizer", "merge-file", "mock-data", "no-create-attention-mask-in-dataloader",
        "no-mmap-bin-files", "num-dataset-builder-threads", "num-workers", "split",
        "trust-remote-code", "vocab-file", "mid-level-dataset-surplus", "mmap-bin-files",
        # kernels that are counted as fused, or as they are
        "apply-layernorm-1p", "apply-query-key-layer-scaling", "disable-gloo-process-groups",
        "enable-gloo-process-groups", "high-priority-stream-groups", "moe-grouped-gemm",
        "moe-per-layer-logging", "moe-permute-fusion", "moe-router-dtype", "moe-router-fusion",
        "moe-router-padding-for-fp8", "moe-router-padding-for-quantization",
        "no-async-tensor-model-parallel-allreduce", "no-check-for-nan-in-loss-and-grad",
        "no-masked-softmax-fusion", "no-scatter-gather-tensors-in-pipeline", "rotary-interleaved",
        "fp8-amax-compute-algo", "fp8-amax-history-len", "fp8-interval", "fp8-margin",
        "rotary-seq-len-interpolation-factor", "te-rng-tracker", "use-te-rng-tracker",
        "cross-entropy-fusion-impl", "cross-entropy-loss-fusion", "no-position-embedding",
        "accumulate-allreduce-grads-in-fp32", "check-for-nan-in-loss-and-grad",
        "ddp-average-in-collective", "ddp-bucket-size", "ddp-num-buckets",
        "ddp-pad-buckets-for-high-nccl-busbw", "manual-gc", "manual-gc-interval",
        "no-manual-gc-eval", "empty-unused-memory-level", "min-offloaded-tensor-size",
        "moe-deepep-num-sms", "moe-flex-dispatcher-num-sms", "tp-comm-bootstrap-backend",
        "tp-comm-overlap-cfg", "max-position-embeddings", "overlap-cpu-optimizer-d2h-h2d",
        "use-precision-aware-optimizer", "use-torch-optimizer-for-cpu-offload", "no-pin-cpu-grads",
        "no-pin-cpu-params", "train-sync-interval", "barrier-with-l1-time",
        "no-barrier-with-level-1-timing", "moe-token-drop-policy",
    }
)  # fmt: skip
"""Options that change neither counts, nor times by more than what is fitted anyway."""

UNCOUNTED: Mapping[str, str] = {
    "add-bias-linear": "biases are told by `--disable-bias-linear`",
    "activation-offload-fraction": "all activations go to the host here",
    "cuda-graph-impl": "launches are counted one by one here, without CUDA graphs",
    "cuda-graph-scope": "launches are counted one by one here, without CUDA graphs",
    "cuda-graph-modules": "launches are counted one by one here, without CUDA graphs",
    "enable-cuda-graph": "launches are counted one by one here, without CUDA graphs",
    "external-cuda-graph": "launches are counted one by one here, without CUDA graphs",
    "cp-comm-type": "context ranks gather keys and values here, whatever their order",
    "hierarchical-context-parallel-sizes": "context ranks are one group here",
    "ddp-reduce-scatter-with-fp32-accumulation": "gradients go by reduce-scatter here",
    "defer-embedding-wgrad-compute": "the head's weight gradients are made in their pass here",
    "wgrad-deferral-limit": "the head's weight gradients are made in their pass here",
    "distribute-saved-activations": "saved activations are whole on every tensor rank here",
    "first-last-layers-bf16": "FP8 is in every layer here",
    "num-layers-at-start-in-bf16": "FP8 is in every layer here",
    "num-layers-at-end-in-bf16": "FP8 is in every layer here",
    "fp32-residual-connection": "residuals are bf16 here",
    "fp8-param-gather": "new weights are gathered in bf16 here",
    "keep-fp8-transpose-cache": "new weights are gathered in bf16 here",
    "reuse-grad-buf-for-mxfp8-param-ag": "new weights are gathered in bf16 here",
    "fsdp-double-buffer": "buffers of parameters are not counted apart here",
    "microbatch-group-size-per-virtual-pipeline-stage": "rounds are as long as the pipeline here",
    "moe-expert-capacity-factor": "no token is dropped here, and none padded",
    "moe-expert-rank-capacity-factor": "no token is dropped here, and none padded",
    "moe-pad-expert-input-to-capacity": "no token is dropped here, and none padded",
    "moe-apply-probs-on-input": "routing weights multiply inside of experts here",
    "moe-router-force-load-balancing": "loads are balanced here, as this makes them",
    "moe-router-force-biased": "loads are balanced here; `train.routing` says otherwise",
    "main-params-dtype": "master weights are fp32 here",
    "moe-paged-stash": "activations of experts stay where the others are here",
    "nccl-communicator-config-path": "one profile says how collectives run here",
    "no-align-grad-reduce": "stages reduce gradients when they are done here",
    "no-align-param-gather": "stages gather weights when they are done here",
    "no-bias-dropout-fusion": "kernels between products are fused here",
    "no-bias-gelu-fusion": "kernels between products are fused here",
    "no-bias-swiglu-fusion": "kernels between products are fused here",
    "no-gradient-accumulation-fusion": "gradients are added up by the products here",
    "no-fp8-wgrad": "weight gradients are in FP8 here, too",
    "no-overlap-p2p-communication": "stages send while they compute here",
    "no-persist-layer-norm": "a norm is one kernel here",
    "no-rope-fusion": "rotation is one kernel here",
    "num-distributed-optimizer-instances": "states are sharded over all data ranks here",
    "overlap-grad-reduce": "gradients are reduced behind the last backward pass here",
    "overlap-p2p-communication-warmup-flush": "stages send while they compute here",
    "overlap-param-gather-with-optimizer-step": "new weights are gathered behind the update here",
    "overlap-dispatch-backward-with-experts-wgrad": "no weight gradient waits for a dispatch here",
    "rampup-batch-size": "every step has the whole batch here",
    "step-batch-size-schedule": "every step has the whole batch here",
    "decrease-batch-size-if-needed": "every step has the whole batch here",
    "suggested-communication-unit-size": "parameters are gathered layer by layer here",
    "tp-comm-overlap-rs-dgrad": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-overlap-ag": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-overlap-rs": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-bulk-dgrad": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-bulk-wgrad": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-split-ag": "overlap of tensor ranks is all or nothing here",
    "disable-tp-comm-split-rs": "overlap of tensor ranks is all or nothing here",
    "use-legacy-models": "models are Megatron-Core's here",
    "use-nccl-ub": "collectives hold their SMs here",
    "use-sharp": "switches between nodes add nothing up here",
    "sharp-enabled-group": "switches between nodes add nothing up here",
    "use-transformer-engine-op-fuser": "kernels are those of the profile here",
    "window-attn-skip-freq": "attention is counted over all tokens before here",
    "window-size": "attention is counted over all tokens before here",
    "no-rope-freq": "positions rotate in every layer here, or in none",
}
"""Options that change times or memory, and what is counted instead."""

_OTHER = "it is another architecture"
REFUSED: Mapping[str, str] = {
    "apply-residual-connection-post-layernorm": _OTHER,
    "attention-output-gate": _OTHER,
    "decoder-num-layers": "only decoders are counted; write `--num-layers`",
    "dsa-indexer-topk": _OTHER,
    "encoder-num-layers": "only decoders are counted; write `--num-layers`",
    "experimental-attention-variant": _OTHER,
    "fp4-format": "products are in bf16 or FP8",
    "head-wise-attn-gate": _OTHER,
    "heterogeneous-layers-config-encoded-json": "all layers of a kind are alike",
    "heterogeneous-layers-config-path": "all layers of a kind are alike",
    "hybrid-attention-ratio": "layers are transformer layers",
    "hybrid-layer-pattern": "layers are transformer layers",
    "hybrid-mlp-ratio": "layers are transformer layers",
    "hybrid-override-pattern": "layers are transformer layers",
    "is-hybrid-model": "layers are transformer layers",
    "linear-attention-freq": _OTHER,
    "enable-hyper-connections": _OTHER,
    "moe-latent-size": _OTHER,
    "moe-n-hash-layers": _OTHER,
    "mtp-use-repeated-layer": "prediction modules have weights of their own",
    "quick-geglu": "gated blocks are SwiGLU",
    "retro-add-retriever": _OTHER,
    "spec": "what a specification builds is not in the arguments",
    "use-checkpoint-args": "the sizes are in the checkpoint",
    "vision-pretraining": _OTHER,
    "yaml-cfg": "more arguments are in that file; import it",
}
"""Options that change the architecture, and why it has no fields."""

#!/bin/bash
# The arguments of NVIDIA/Megatron-LM, examples/llama/train_llama3_8b_h100_fp8.sh at 157006d6.
TOKENIZER=${3:-"MOCK"}
DTYPE="fp8"
NUM_LAYERS=32
SEQ_LENGTH=8192

MODEL=(
    --num-layers $NUM_LAYERS --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length $SEQ_LENGTH --max-position-embeddings $SEQ_LENGTH
    --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0
    --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --init-method-std 0.0134
    --attention-backend fused --apply-layernorm-1p
    --untie-embeddings-and-output-weights --disable-bias-linear
)
TRAINING=(
    --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000
    --lr 0.00015 --min-lr 0.00001 --decoupled-lr 5.0e-4 --lr-decay-style cosine
    --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss
    --manual-gc --empty-unused-memory-level 1 --exit-duration-in-mins 235
)
NUMBERS=()
if [[ "$DTYPE" == "fp8" ]]; then
    NUMBERS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-amax-compute-algo max"
        "--fp8-param-gather"
    )
fi
SHARDING=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
TRAINING+=("${SHARDING[@]}")
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 128256" "--num-workers 1")
else
    DATA+=("--tokenizer-type HuggingFaceTokenizer" "--tokenizer-model $TOKENIZER")
fi

torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py ${MODEL[@]} ${TRAINING[@]} ${NUMBERS[@]} \
    --tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel \
    ${DATA[@]} --log-throughput

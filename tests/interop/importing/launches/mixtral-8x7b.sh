#!/bin/bash
# The arguments of NVIDIA/Megatron-LM, examples/mixtral/train_mixtral_8x7b_distributed.sh at 9b8acfd0.
GPUS=8
NODES=${SLURM_NNODES:-"1"}
WORLD_SIZE=$(($GPUS*$NODES))
CHECKPOINT=$1

MODEL="--use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768"
MODEL="${MODEL} --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
MODEL+=" --init-method-std 0.01 --attention-dropout 0.0 --hidden-dropout 0.0"
MODEL+=" --normalization RMSNorm --position-embedding-type rope --swiglu"
MODEL+=" --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8"
MODEL+=" --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000"

EXPERTS=(
    --num-experts=8 --moe-router-topk=2
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall
    --overlap-param-gather --overlap-grad-reduce
)
LOGS=(
    --log-interval 1 \
    --save "$CHECKPOINT" \
    --no-load-optim --no-load-rng
)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGS+=(--wandb-project ${WANDB_PROJECT:-"Mixtral"} --wandb-exp-name ${WANDB_NAME:-"Mixtral_8x7B"})
fi

torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py $MODEL "${EXPERTS[@]}" \
    --tokenizer-type Llama2Tokenizer --split 99990,8,2 \
    --micro-batch-size 1 --global-batch-size 256 --train-iters 500000 --bf16 \
    --lr 1e-4 --lr-decay-iters 320000 --lr-decay-style cosine --min-lr 1.0e-5 \
    --weight-decay 0.1 --lr-warmup-iters 500 --clip-grad 1.0 \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 \
    --expert-model-parallel-size 8 --use-distributed-optimizer --sequence-parallel \
    ${LOGS[@]}

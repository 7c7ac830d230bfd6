#!/bin/bash
# The arguments of NVIDIA/Megatron-LM, examples/gpt3/train_gpt3_175b_distributed.sh at 157006d6.
GPUS_PER_NODE=8
NUM_NODES=1
DATA_PATH=$5

LAUNCHER=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --master_addr localhost)

SIZES=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # or flash, fused, unfused, local
)

LEARNING=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
    --init-method-std 0.006 --clip-grad 1.0 --fp16
    --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6
    --lr-warmup-fraction .001 --lr-decay-iters 430000
)

CUT=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16
)

torchrun ${LAUNCHER[@]} pretrain_gpt.py \
    ${SIZES[@]} ${LEARNING[@]} ${CUT[@]} \
    --data-path $DATA_PATH --split 949,50,1 \
    --log-interval 100 --save-interval 10000 --eval-interval 1000 --eval-iters 10

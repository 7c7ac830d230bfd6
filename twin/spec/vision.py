"""Images: the encoder before a language model, and what of them a training run has."""

from __future__ import annotations

from typing import Annotated, Literal

from twin.spec.base import UNWRITTEN, Count, Flag, Ratio, Spec, Whole


class VisionSpec(Spec):
    """A vision transformer that makes patches of images into tokens of the language model."""

    layers: Count
    """layers of the encoder"""
    hidden: Count
    """width of a patch between blocks"""
    heads: Count
    """attention heads, which share the width out"""
    ffn: Literal["swiglu", "gelu"]
    """feed-forward block: swiglu has three matrices, gelu two"""
    width: Count
    """hidden width of that block"""
    bias: Flag = True
    """matrices of the layers add a bias"""
    norm: Literal["rmsnorm", "layernorm"] = "layernorm"
    """norm before attention and feed-forward block"""
    values: Count
    """numbers in a patch: channels x frames x height x width"""
    patch_bias: Annotated[Flag, UNWRITTEN] = False
    """the matrix that reads patches adds a bias"""
    positions: Annotated[Whole, UNWRITTEN] = 0
    """learned positions of patches; 0: positions rotate"""
    merge: Count = 1
    """neighbouring patches that become one token"""
    window: Annotated[Count | None, UNWRITTEN] = None
    """patches that a patch attends to; null: all of its image"""
    full_every: Annotated[Count | None, UNWRITTEN] = None
    """where there is a window: each n-th layer has none"""


class ImagesSpec(Spec):
    """Images of a training run that has an encoder for them (`model.vision`)."""

    patches: Count
    """patches of the mean sequence, of all its images"""
    image: Count
    """patches of one image, which attend to each other"""
    fullest: Ratio = 1.0
    """patches of the rank, or encoding GPU, that has most in a micro-batch over those of the mean
    one; all wait for it"""
    tensor: Literal["cut", "whole", "shared"] = "whole"
    """what tensor ranks do: cut each matrix of the encoder; whole: all do the same with whole ones;
    shared: each encodes a part of the images with whole ones, and tokens are gathered"""
    gpus: Annotated[Count | None, UNWRITTEN] = None
    """GPUs that only encode, as the first of `parallel.pipeline` stages; images of all sequences
    that run at a time are dealt out over them. null: GPUs of the first stage encode, too"""
    frozen: Flag = False
    """the encoder is not trained: no gradients, and nothing is kept for them; the projection to the
    language model is trained all the same"""
    recompute: Flag = False
    """layers of the encoder are computed again in the backward pass"""

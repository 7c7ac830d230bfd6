"""The operations that decide a step's time and memory, each a function with its own backward.

One file per operation: causal attention that also reports the largest logit of every head
(`attention`), expert matrix multiplications (`grouped`), weighted SwiGLU (`swiglu`), RMSNorm
(`norm`) and FP8 tiles (`fp8`). Each saves for its backward exactly the tensors that its docstring
names, through autograd's hooks, so that a memory policy can account for and replace every one.

The device of the tensors chooses the path: PyTorch on a CPU, `*_triton` on CUDA, shapes alone on
the meta device. Imported by path (`from reference.kernels.attention import attention`).
"""

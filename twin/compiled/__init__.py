"""Hot loops as machine code: `player` and `turns` say what they do, `build` compiles them by numba,
`machine` keeps and loads the code by llvmlite."""

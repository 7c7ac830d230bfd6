"""The event player as machine code: `kernel` says what it does, `build` compiles that by numba,
`machine` keeps and loads the code by llvmlite, `player` calls it."""

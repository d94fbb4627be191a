HAS_AVX2: bool
HAS_AVX512: bool

def multiply(
    source: tuple[int, int, bool],
    norm: tuple[int, float],
    weights: tuple[int, int, int, int],
    result: tuple[int, int],
    wide: bool,
    threads: int,
) -> None: ...
def attend(
    queries: tuple[int, int, int, int],
    cache: int,
    sizes: tuple[int, int, int, int],
    scale: float,
    to: int,
    threads: int,
) -> None: ...

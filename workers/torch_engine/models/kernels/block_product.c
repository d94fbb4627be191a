// Products of float32 inputs and weights of 4 or 8 bits in groups of 32 (see block_product.py).
//
// Inputs are rounded to 8 bits, each group of 32 by its own largest value, and codes are multiplied
// as integers. Sums of integers are exact and every kernel adds the groups of a row in one order, so
// that a row's result depends neither on the other rows nor on the threads nor on the kernel.
//
// The functions of OpenMP come from the library that torch has loaded, whose threads are used.
#include "kernels.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 32,
    QUADS = GROUP / 4,  // the kernels multiply four codes at once
    OUTPUTS = 16,       // output features of a block
    CODES = GROUP * OUTPUTS,
    MIDDLE = 128,       // the 8-bit code of zero
};

// codes [rows, inputs]; scales, and scales times sums of codes, and sums of codes [rows, groups]
typedef struct {
    int8_t *codes;
    float *scales, *sums;
    int32_t *totals;
} Inputs;

INLINE size_t code_bytes(int bits) { return CODES * bits / 8; }

INLINE size_t group_bytes(int bits) {
    return code_bytes(bits) + OUTPUTS * sizeof(uint16_t) * (bits == 4 ? 2 : 1);
}

INLINE int32_t quad(const int8_t *codes) {
    int32_t four;
    memcpy(&four, codes, sizeof four);
    return four;
}

AVX2 INLINE float total_of(__m256 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

AVX2 static float inverse_root_mean_square(const float *x, int inputs, float eps) {
    __m256 squares = _mm256_setzero_ps();
    for (int i = 0; i < inputs; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        squares = _mm256_fmadd_ps(v, v, squares);
    }
    return 1.0f / sqrtf(total_of(squares) / (float)inputs + eps);
}

// Read a group's 32 inputs. by: the row's inverse root mean square.
AVX2 INLINE void read_group(Source source, int row, int group, float by, __m256 v[4]) {
    const int inputs = source.groups * GROUP, at = group * GROUP;
    const float *x = source.x + (size_t)row * inputs * (source.gated ? 2 : 1) + at;
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        if (source.norm) {
            const __m256 scale = _mm256_loadu_ps(source.norm + at + 8 * i);
            v[i] = _mm256_mul_ps(_mm256_mul_ps(v[i], _mm256_set1_ps(by)), scale);
        }
        if (source.gated) {
            const __m256 e = exponential(_mm256_sub_ps(_mm256_setzero_ps(), v[i]));
            const __m256 up = _mm256_loadu_ps(x + inputs + 8 * i);
            const __m256 fed = _mm256_div_ps(v[i], _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
            v[i] = _mm256_mul_ps(fed, up);
        }
    }
}

// Round a group to codes -127 .. 127. NaN or infinity makes the scale NaN, and with it the row.
AVX2 INLINE void round_group(const __m256 v[4], Inputs in, size_t group) {
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    __m256 size = zero, finite = zero;
    for (int i = 0; i < 4; i++) {
        size = _mm256_max_ps(size, _mm256_andnot_ps(sign, v[i]));
        finite = _mm256_fmadd_ps(v[i], zero, finite);
    }
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(size), _mm256_extractf128_ps(size, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    const float largest = _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
    const __m256 by = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], by));
    const __m256i pairs = _mm256_packs_epi32(q[0], q[1]), others = _mm256_packs_epi32(q[2], q[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(pairs, others), order);
    _mm256_storeu_si256((__m256i *)(in.codes + group * GROUP), codes);
    const __m256i sum = _mm256_madd_epi16(_mm256_add_epi16(pairs, others), _mm256_set1_epi16(1));
    const int total = (int)total_of(_mm256_cvtepi32_ps(sum));
    in.scales[group] = largest / 127.0f + total_of(finite);
    in.sums[group] = in.scales[group] * (float)total;
    in.totals[group] = total;
}

AVX2 static void round_inputs(Source source, Inputs in, size_t first, size_t end) {
    int known = -1;
    float by = 1.0f;
    for (size_t i = first; i < end; i++) {
        const int row = (int)(i / source.groups), group = (int)(i % source.groups);
        if (source.norm && row != known) {
            const int inputs = source.groups * GROUP;
            by = inverse_root_mean_square(source.x + (size_t)row * inputs, inputs, source.eps);
            known = row;
        }
        __m256 v[4];
        read_group(source, row, group, by, v);
        round_group(v, in, i);
    }
}

// Each kernel computes `rows` rows from `row` on of one block. rows and bits are constants where it
// is inlined.

AVX512 INLINE void scale512(
    __m512 *sum, __m512i product, const uint8_t *numbers, Inputs in, int bits, size_t at
) {
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)numbers));
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(in.scales[at]));
    *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), both, *sum);
    if (bits == 4) {
        const __m256i offsets = _mm256_loadu_si256((const __m256i *)(numbers + 2 * OUTPUTS));
        *sum = _mm512_fmadd_ps(_mm512_cvtph_ps(offsets), _mm512_set1_ps(in.sums[at]), *sum);
    }
}

AVX512 INLINE void write512(Result result, size_t at, __m512 sum) {
    if (result.residual) sum = _mm512_add_ps(_mm512_loadu_ps(result.residual + at), sum);
    _mm512_storeu_ps(result.to + at, sum);
}

AVX512 INLINE void avx512_rows(
    Weights w, int bits, Inputs in, int block, int row, int rows, Result result
) {
    const uint8_t *codes = w.packed + block * group_bytes(bits) * w.groups;
    const __m512i low = _mm512_set1_epi8(15);
    const size_t inputs = (size_t)w.groups * GROUP;
    __m512 sums[8];
    for (int r = 0; r < rows; r++) sums[r] = _mm512_setzero_ps();
    for (int g = 0; g < w.groups; g++, codes += group_bytes(bits)) {
        const int8_t *x = in.codes + row * inputs + (size_t)g * GROUP;
        __m512i product[8], second = _mm512_setzero_si512();
        for (int r = 0; r < rows; r++) {
            const int32_t total = in.totals[(size_t)(row + r) * w.groups + g];
            product[r] = _mm512_set1_epi32(bits == 4 ? 0 : -MIDDLE * total);
        }
#pragma GCC unroll 4
        for (int q = 0; q < QUADS / 2; q++) {
            __m512i a = _mm512_loadu_si512(codes + 64 * q), b;
            if (bits == 4) {
                b = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
                a = _mm512_and_si512(a, low);
            } else {
                b = _mm512_loadu_si512(codes + 64 * (q + QUADS / 2));
            }
            for (int r = 0; r < rows; r++) {
                const __m512i xa = _mm512_set1_epi32(quad(x + r * inputs + 4 * q));
                const __m512i xb = _mm512_set1_epi32(quad(x + r * inputs + 4 * (q + QUADS / 2)));
                product[r] = _mm512_dpbusd_epi32(product[r], a, xa);
                // One row alone would wait for its own sum.
                if (rows == 1) second = _mm512_dpbusd_epi32(second, b, xb);
                else product[r] = _mm512_dpbusd_epi32(product[r], b, xb);
            }
        }
        if (rows == 1) product[0] = _mm512_add_epi32(product[0], second);
        for (int r = 0; r < rows; r++)
            scale512(sums + r, product[r], codes + code_bytes(bits), in, bits,
                     (size_t)(row + r) * w.groups + g);
    }
    for (int r = 0; r < rows; r++)
        write512(result, (size_t)(row + r) * w.outputs + block * OUTPUTS, sums[r]);
}

// Products of pairs fit 16 bits: of 4-bit codes all eight of a group together, of 8-bit codes one.
AVX2 INLINE void avx2_rows(
    Weights w, int bits, Inputs in, int block, int row, int rows, Result result
) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const size_t inputs = (size_t)w.groups * GROUP;
    for (int half = 0; half < 2; half++) {
        const uint8_t *codes = w.packed + block * group_bytes(bits) * w.groups;
        __m256 sums[4];
        for (int r = 0; r < rows; r++) sums[r] = _mm256_setzero_ps();
        for (int g = 0; g < w.groups; g++, codes += group_bytes(bits)) {
            const int8_t *x = in.codes + row * inputs + (size_t)g * GROUP;
            __m256i product[4];
            for (int r = 0; r < rows; r++) product[r] = _mm256_setzero_si256();
            const int quads = bits == 4 ? QUADS / 2 : QUADS;
#pragma GCC unroll 8
            for (int q = 0; q < quads; q++) {
                const __m256i a = _mm256_loadu_si256((const __m256i *)(codes + 64 * q + 32 * half));
                const __m256i first = _mm256_and_si256(a, low);
                const __m256i second = _mm256_and_si256(_mm256_srli_epi16(a, 4), low);
                const __m256i weight = _mm256_sub_epi8(a, _mm256_set1_epi8((char)MIDDLE));
                const __m256i size = _mm256_abs_epi8(weight);
                for (int r = 0; r < rows; r++) {
                    const int8_t *at = x + r * inputs + 4 * q;
                    const __m256i xa = _mm256_set1_epi32(quad(at));
                    if (bits == 4) {
                        const __m256i xb = _mm256_set1_epi32(quad(at + GROUP / 2));
                        product[r] = _mm256_add_epi16(product[r], _mm256_maddubs_epi16(first, xa));
                        product[r] = _mm256_add_epi16(product[r], _mm256_maddubs_epi16(second, xb));
                    } else {
                        const __m256i pairs =
                            _mm256_maddubs_epi16(size, _mm256_sign_epi8(xa, weight));
                        product[r] = _mm256_add_epi32(product[r], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            const uint8_t *numbers = codes + code_bytes(bits) + OUTPUTS * half;
            const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)numbers));
            for (int r = 0; r < rows; r++) {
                const size_t at = (size_t)(row + r) * w.groups + g;
                if (bits == 4) product[r] = _mm256_madd_epi16(product[r], ones);
                const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(in.scales[at]));
                sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product[r]), both, sums[r]);
                if (bits == 4) {
                    const __m128i offsets =
                        _mm_loadu_si128((const __m128i *)(numbers + 2 * OUTPUTS));
                    const __m256 sum = _mm256_set1_ps(in.sums[at]);
                    sums[r] = _mm256_fmadd_ps(_mm256_cvtph_ps(offsets), sum, sums[r]);
                }
            }
        }
        for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)(row + r) * w.outputs + block * OUTPUTS + 8 * half;
            if (result.residual)
                sums[r] = _mm256_add_ps(_mm256_loadu_ps(result.residual + at), sums[r]);
            _mm256_storeu_ps(result.to + at, sums[r]);
        }
    }
}

// The rows of a block in runs that a kernel holds in registers.
#define RUN(KERNEL, N)                                                                             \
    case N:                                                                                        \
        if (w.bits == 4) KERNEL(w, 4, in, block, row, N, result);                                  \
        else KERNEL(w, 8, in, block, row, N, result);                                              \
        row += N;                                                                                  \
        break;

AVX2 static void avx2_block(Weights w, Inputs in, int block, int rows, Result result) {
    for (int row = 0; row < rows;) {
        switch (rows - row) {
            RUN(avx2_rows, 1)
            RUN(avx2_rows, 2)
            RUN(avx2_rows, 3)
        default:
            RUN(avx2_rows, 4)
        }
    }
}

AVX512 static void avx512_block(Weights w, Inputs in, int block, int rows, Result result) {
    for (int row = 0; row < rows;) {
        switch (rows - row) {
            RUN(avx512_rows, 1)
            RUN(avx512_rows, 2)
            RUN(avx512_rows, 3)
            RUN(avx512_rows, 4)
            RUN(avx512_rows, 5)
            RUN(avx512_rows, 6)
            RUN(avx512_rows, 7)
        default:
            RUN(avx512_rows, 8)
        }
    }
}

void *kept_room(size_t bytes) {
    static _Thread_local void *room;
    static _Thread_local size_t size;
    if (bytes > size) {
        free(room);
        size = bytes + bytes / 2;
        room = aligned_alloc(64, (size + 63) / 64 * 64);
        if (!room) size = 0;
    }
    return room;
}

int multiply(Source source, Weights w, Result result, int wide, int threads) {
    const size_t groups = (size_t)source.rows * source.groups;
    char *room = kept_room(groups * (GROUP + 2 * sizeof(float) + sizeof(int32_t)));
    if (!room) return 0;
    float *scales = (float *)room, *sums = scales + groups;
    const Inputs in = {(int8_t *)(sums + 2 * groups), scales, sums, (int32_t *)(sums + groups)};
    const int blocks = w.outputs / OUTPUTS, rows = source.rows;
#pragma omp parallel num_threads(threads)
    {
        const int count = omp_get_num_threads(), me = omp_get_thread_num();
        round_inputs(source, in, groups * me / count, groups * (me + 1) / count);
#pragma omp barrier
        for (int block = blocks * me / count; block < blocks * (me + 1) / count; block++) {
            if (wide) avx512_block(w, in, block, rows, result);
            else avx2_block(w, in, block, rows, result);
        }
    }
    return 1;
}

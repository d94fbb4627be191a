// What the kernels share.
#ifndef KERNELS_H
#define KERNELS_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define AVX2_TARGET "avx2,fma,f16c"
#define AVX512_TARGET AVX2_TARGET ",avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#define AVX2 __attribute__((target(AVX2_TARGET)))
#define AVX512 __attribute__((target(AVX512_TARGET)))
#define INLINE static inline __attribute__((always_inline))

// What is multiplied: x [rows, inputs] float32; divided by its root mean square and multiplied by
// norm [inputs] if that is given; or [rows, 2 * inputs], of which silu(first half) * second half.
typedef struct {
    const float *x, *norm;
    float eps;
    int gated, rows, groups;
} Source;

// Blocks of 16 output features, each a run of groups. A group is its codes, four of each output
// feature in turn (of 4 bits: two such runs in the two halves of 64 bytes), then 16 scales and, of 4
// bits, 16 offsets, in float16: weight = code * scale + offset, or (code - 128) * scale.
typedef struct {
    const uint8_t *packed;
    int bits, groups, outputs;
} Weights;

typedef struct {
    const float *residual;  // [rows, outputs], added to the product; may be NULL
    float *to;              // [rows, outputs]
} Result;

// Return 0 if there is no memory. wide: with AVX-512.
int multiply(Source source, Weights weights, Result result, int wide, int threads);

// A layer's keys and values [rows, 2 * kv_heads, stride, dim]; keys before values.
typedef struct {
    float *data;
    int kv_heads, stride, dim;
} Cache;

// A token of a forward: its row and slot in the cache; it sees the slots before `committed`, and of
// the 64 slots from there on those whose bit is set.
typedef struct {
    int64_t row, slot, committed;
    uint64_t seen;
} Place;

// qkv [tokens, heads + 2 * kv_heads, dim]: queries and keys are turned in place by `turns`
// [tokens, dim / 2] complex; keys and values are written to the cache.
typedef struct {
    float *qkv;
    const float *turns;
    const Place *places;
    int tokens, heads;
} Queries;

// Write what the queries hear to [tokens, heads, dim]. Return 0 if there is no memory.
int attend(Queries queries, Cache cache, float scale, float *to, int threads);

// Memory that a thread keeps for its next call; NULL if there is none.
void *kept_room(size_t bytes);

// Cephes' polynomial, within 2e-7 of the exponential.
AVX2 INLINE __m256 exponential(__m256 x) {
    // x is the second operand, which is the result where it is NaN.
    x = _mm256_min_ps(_mm256_set1_ps(87.0f), _mm256_max_ps(_mm256_set1_ps(-87.0f), x));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), 8);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

#endif

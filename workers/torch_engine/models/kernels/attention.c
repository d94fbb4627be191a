// Attention of a few tokens over a pool of keys and values in float32.
//
// A token's result is summed over the slots that it sees in their order, so that it depends neither
// on the other tokens nor on slots between that it does not see. A token of a tree is therefore
// computed to the bit as it is in plain decoding.
#include "kernels.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { LANES = 8, KEYS = 4, WIDEST = 256 / LANES };

// x [dim] times turns [dim / 2], as complex numbers.
AVX2 static void turn(float *x, const float *turns, int dim) {
    for (int i = 0; i < dim; i += LANES) {
        const __m256 v = _mm256_loadu_ps(x + i), by = _mm256_loadu_ps(turns + i);
        const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), _mm256_movehdup_ps(by));
        _mm256_storeu_ps(x + i, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(by), crossed));
    }
}

INLINE float *slot_of(Cache cache, int64_t row, int head, int64_t slot) {
    return cache.data + ((row * 2 * cache.kv_heads + head) * cache.stride + slot) * cache.dim;
}

AVX2 static void write_token(Queries queries, Cache cache, int token) {
    const int dim = cache.dim, turning = queries.heads + cache.kv_heads;
    const Place place = queries.places[token];
    float *fused = queries.qkv + (size_t)token * (turning + cache.kv_heads) * dim;
    const float *turns = queries.turns + (size_t)token * dim;
    for (int head = 0; head < turning; head++) turn(fused + (size_t)head * dim, turns, dim);
    for (int head = 0; head < 2 * cache.kv_heads; head++)
        memcpy(slot_of(cache, place.row, head, place.slot),
               fused + (size_t)(queries.heads + head) * dim, dim * sizeof(float));
}

// The products of a query with four keys.
AVX2 INLINE __m128 four_scores(const float *query, const float *const key[KEYS], int lanes) {
    __m256 sum[KEYS];
    for (int k = 0; k < KEYS; k++) sum[k] = _mm256_setzero_ps();
    for (int i = 0; i < lanes; i++) {
        const __m256 q = _mm256_loadu_ps(query + i * LANES);
        for (int k = 0; k < KEYS; k++)
            sum[k] = _mm256_fmadd_ps(q, _mm256_loadu_ps(key[k] + i * LANES), sum[k]);
    }
    const __m256 pairs =
        _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
    return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

// List the slots that a token sees, in ascending order.
static int seen_slots(Place place, int32_t *slots) {
    int count = 0;
    for (; count < place.committed; count++) slots[count] = count;
    for (uint64_t rest = place.seen; rest; rest &= rest - 1)
        slots[count++] = (int32_t)place.committed + __builtin_ctzll(rest);
    return count;
}

// Turn scores [count] into exponentials, with room for 8 more numbers.
AVX2 static void exponentials(float *scores, int count, float scale) {
    __m256 largest = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < LANES; i++) scores[count + i] = -INFINITY;
    for (int i = 0; i < count; i += LANES)
        largest = _mm256_max_ps(largest, _mm256_loadu_ps(scores + i));
    float lanes[LANES], top = -INFINITY;
    _mm256_storeu_ps(lanes, largest);
    for (int i = 0; i < LANES; i++) top = lanes[i] > top ? lanes[i] : top;
    for (int i = 0; i < count; i += LANES) {
        const __m256 below = _mm256_sub_ps(_mm256_loadu_ps(scores + i), _mm256_set1_ps(top));
        _mm256_storeu_ps(scores + i, exponential(_mm256_mul_ps(below, _mm256_set1_ps(scale))));
    }
}

// Write what one query hears of `count` slots. lanes is a constant where this is inlined.
AVX2 INLINE void hear(
    const float *query, Cache cache, int64_t row, int head, const int32_t *slots, int count,
    float scale, float *scores, int lanes, float *to
) {
    const float *keys = slot_of(cache, row, head, 0);
    const float *values = slot_of(cache, row, cache.kv_heads + head, 0);
    const int dim = lanes * LANES;
    for (int i = 0; i < count; i += KEYS) {
        const float *key[KEYS];
        for (int k = 0; k < KEYS; k++)
            key[k] = keys + (size_t)slots[i + k < count ? i + k : count - 1] * dim;
        _mm_storeu_ps(scores + i, four_scores(query, key, lanes));
    }
    exponentials(scores, count, scale);
    __m256 heard[WIDEST];
    for (int i = 0; i < lanes; i++) heard[i] = _mm256_setzero_ps();
    float total = 0.0f;
    for (int j = 0; j < count; j++) {
        const float *value = values + (size_t)slots[j] * dim;
        const __m256 weight = _mm256_set1_ps(scores[j]);
        for (int i = 0; i < lanes; i++)
            heard[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(value + i * LANES), heard[i]);
        total += scores[j];
    }
    const __m256 share = _mm256_set1_ps(1.0f / total);
    for (int i = 0; i < lanes; i++)
        _mm256_storeu_ps(to + i * LANES, _mm256_mul_ps(heard[i], share));
}

// scores, slots: room for the row and 8 more numbers.
AVX2 static void hear_token(
    Queries queries, Cache cache, int token, int head, float scale, float *scores, int32_t *slots,
    float *to
) {
    const int dim = cache.dim, all = queries.heads + 2 * cache.kv_heads;
    const Place place = queries.places[token];
    const float *query = queries.qkv + ((size_t)token * all + head) * dim;
    const int kv_head = head / (queries.heads / cache.kv_heads);
    const int count = seen_slots(place, slots);
    float *own = to + ((size_t)token * queries.heads + head) * dim;
#define HEAR(LANES_OF_DIM)                                                                         \
    hear(query, cache, place.row, kv_head, slots, count, scale, scores, LANES_OF_DIM, own)
    if (dim == 64) HEAR(8);
    else if (dim == 128) HEAR(16);
    else HEAR(dim / LANES);
#undef HEAR
}

int attend(Queries queries, Cache cache, float scale, float *to, int threads) {
    const size_t each = (size_t)cache.stride + LANES;
    int enough = 1;
#pragma omp parallel num_threads(threads)
    {
        const int count = omp_get_num_threads(), me = omp_get_thread_num();
        for (int t = queries.tokens * me / count; t < queries.tokens * (me + 1) / count; t++)
            write_token(queries, cache, t);
        float *scores = kept_room(each * (sizeof(float) + sizeof(int32_t)));
        if (!scores) {
#pragma omp atomic write
            enough = 0;
        }
#pragma omp barrier
        // Tokens of a head in turn, since they read the same keys and values.
        const int tasks = scores ? queries.tokens * queries.heads : 0;
        for (int t = tasks * me / count; t < tasks * (me + 1) / count; t++)
            hear_token(queries, cache, t % queries.tokens, t / queries.tokens, scale, scores,
                       (int32_t *)(scores + each), to);
    }
    return enough;
}

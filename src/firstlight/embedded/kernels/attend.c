/* Attention over pages: `place` puts the new keys and values into them, `attend` reads them.
 *
 * A row of qkv is [heads | kv_heads | kv_heads] of head_dim numbers. What a row gets depends on its own position and
 * pages alone: it goes through them in order, some pages at a time, with the running maximum and sum of the softmax.
 */

#include <math.h>

#include "ops.h"

enum {
    CHUNK = 32, /* pages taken at a time: their scores stay in the first cache */
    HEADS = LANES == 16 ? 4 : 3, /* query heads taken together: their sums stay in registers */
    AHEAD = 2, /* pages between what is read and what is fetched */
    WIDE = 4 /* vectors of a value that are summed up at once */
};

static long query_heads(const struct op *op) { return op->x.width / op->cache.head_dim - 2 * op->cache.kv_heads; }

/* Where a page of a row's sequence begins in keys or values, for one key-value head. */
static char *page_at(const struct cache *c, void *base, const struct rows *rows, long row, long page, long kv_head) {
    long number = rows->tables[rows->starts[rows->sequences[row]] + page];
    return (char *)base + (number * c->kv_heads + kv_head) * PAGE * c->head_dim * size_of(c->kind);
}

static void norm_head(float *head, long size, const float *weight, float eps) {
    float inverse = 1.0f / sqrtf(sum_of_squares(head, size) / size + eps);
    for (long i = 0; i < size; i++) head[i] = head[i] * inverse * weight[i];
}

/* Halves are paired: number i turns with number i + half. */
static void turn_head(float *head, long half, const float *cos, const float *sin) {
    for (long i = 0; i < half; i++) {
        float first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

static void place_head(const struct op *op, const struct rows *rows, long row, long head) {
    const struct cache *c = &op->cache;
    long size = c->head_dim, position = rows->positions[row], kv_head = head - query_heads(op);
    int is_query = kv_head < 0, is_value = kv_head >= c->kv_heads;
    float *x = row_of(&op->x, row) + head * size;
    const float *norm = is_query ? op->q_norm : op->k_norm;
    if (!is_value) {
        if (norm) norm_head(x, size, norm, op->eps);
        turn_head(x, size / 2, op->cos + position * (size / 2), op->sin + position * (size / 2));
    }
    if (is_query) return;
    char *page = page_at(c, is_value ? c->values : c->keys, rows, row, position / PAGE, kv_head % c->kv_heads);
    narrow(x, size, c->kind, page + position % PAGE * size * size_of(c->kind));
}

void place(const struct op *op, const struct rows *rows, const struct worker *me) {
    long heads = query_heads(op) + 2 * op->cache.kv_heads;
    struct range mine = share(me, rows->count * heads);
    for (long i = mine.from; i < mine.to; i++) place_head(op, rows, i / heads, i % heads);
}

struct view { /* what some query heads of one row attend to */
    const struct cache *cache;
    const char *keys[CHUNK], *values[CHUNK]; /* the pages of a chunk */
    long from, to;                           /* of the chunk's positions, those that count */
    float scores[HEADS][CHUNK * PAGE];
    float most[HEADS], sum[HEADS], shrink[HEADS];
};

/* Pages lie anywhere, so the processor cannot guess the next one: while one is read, the lines at the same place in one
 * a little further on are fetched. */
static void fetch_pages(const struct view *v, long at, long bytes) {
    long last = (v->to - 1) / PAGE, page = at / PAGE + AHEAD < last ? at / PAGE + AHEAD : last;
    if (at % PAGE == 0) {
        touch(v->keys[page]);
        touch(v->values[page]);
    }
    for (long i = at % PAGE * bytes; i < (at % PAGE + STRIP) * bytes; i += 64) {
        __builtin_prefetch(v->keys[page] + i, 0, 2);
        __builtin_prefetch(v->values[page] + i, 0, 2);
    }
}

/* Scores of the chunk's positions: a product of the queries with the keys, four at a time. */
static void score(struct view *v, int heads, const float *queries) {
    long size = v->cache->head_dim, bytes = size * size_of(v->cache->kind);
    for (long at = v->from / STRIP * STRIP; at < v->to; at += STRIP) {
        float totals[HEADS][STRIP];
        fetch_pages(v, at, bytes);
        struct strip keys = {v->keys[at / PAGE] + at % PAGE * bytes, bytes, NULL, NULL, 0, size};
        multiply_strip(v->cache->kind, heads, &keys, queries, size, totals);
        for (int h = 0; h < heads; h++) memcpy(&v->scores[h][at], totals[h], sizeof totals[h]);
    }
}

/* Which of LANES positions from `at` on count. */
INLINE ints counting(const struct view *v, long at) {
    ints lane = iota() + (int)at;
    return (lane >= (int)v->from) & (lane < (int)v->to);
}

/* Scores of one head become weights relative to the maximum so far; `shrink` is what older ones are worth by now. */
static void weigh(struct view *v, int head, float scale) {
    float *scores = v->scores[head];
    vec most = all(v->most[head]), sum = {};
    long first = v->from / LANES * LANES;
    for (long at = first; at < v->to; at += LANES) {
        vec here = load(scores + at) * scale;
        store(scores + at, here);
        most = choose(counting(v, at) & (here > most), here, most);
    }
    float now = greatest(most);
    for (long at = first; at < v->to; at += LANES) {
        vec weight = choose(counting(v, at), exponential(load(scores + at) - now), (vec){});
        store(scores + at, weight);
        sum += weight;
    }
    v->shrink[head] = exponential(all(v->most[head] - now))[0];
    v->most[head] = now;
    v->sum[head] = v->sum[head] * v->shrink[head] + total(sum);
}

/* Numbers [d, d + wide * LANES) of the values, weighed and added to what `mixed` has; `some` are there of the last. */
INLINE void mix_part(enum number kind, int heads, const struct view *v, long d, int wide, long some, float *mixed) {
    long size = v->cache->head_dim;
    vec sums[HEADS][WIDE];
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) sums[h][i] = load(mixed + h * padded(size, LANES) + d + i * LANES) * v->shrink[h];
    for (long at = v->from; at < v->to; at++) {
        const char *value = v->values[at / PAGE] + (at % PAGE * size + d) * size_of(kind);
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) {
            vec number = some == LANES ? load_as(kind, value, i * LANES) : load_some_as(kind, value, some);
#pragma GCC unroll 4
            for (int h = 0; h < heads; h++) sums[h][i] += v->scores[h][at] * number;
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) store(mixed + h * padded(size, LANES) + d + i * LANES, sums[h][i]);
}

INLINE void mix(enum number kind, int heads, const struct view *v, float *mixed) {
    long size = v->cache->head_dim, d = 0;
    for (; d + WIDE * LANES <= size; d += WIDE * LANES) mix_part(kind, heads, v, d, WIDE, LANES, mixed);
    for (; d + LANES <= size; d += LANES) mix_part(kind, heads, v, d, 1, LANES, mixed);
    if (d < size) mix_part(kind, heads, v, d, 1, size - d, mixed);
}

/* A function for each kind and number of heads, as in linear.c. */
#define MIX(kind, heads) \
    static void mix_##kind##_##heads(const struct view *v, float *mixed) { mix(kind, heads, v, mixed); }
#define MIX_ENTRY(kind, heads) [kind][heads] = mix_##kind##_##heads,
#if LANES == 16
#define EACH_HEADS(kind, DO) DO(kind, 1) DO(kind, 2) DO(kind, 3) DO(kind, 4)
#else
#define EACH_HEADS(kind, DO) DO(kind, 1) DO(kind, 2) DO(kind, 3)
#endif
#define EACH_MIX(DO) EACH_HEADS(F32, DO) EACH_HEADS(BF16, DO) EACH_HEADS(F16, DO)
EACH_MIX(MIX)
typedef void mix_fn(const struct view *, float *);
static mix_fn *const MIXERS[3][HEADS + 1] = {EACH_MIX(MIX_ENTRY)};

/* A thread's scratch: results of the heads that go together. */
long attend_scratch(const struct op *op) { return 4 * HEADS * padded(op->cache.head_dim, LANES); }

/* `heads` query heads from `first` on, all of which share `kv_head`, of one row. */
static void attend_heads(const struct op *op, const struct rows *rows, long row, long kv_head, long first, int heads, float *mixed) {
    const struct cache *c = &op->cache;
    long size = c->head_dim, width = padded(size, LANES), position = rows->positions[row];
    long begin = op->window && position >= op->window ? position - op->window + 1 : 0;
    struct view v;
    v.cache = c;
    memset(mixed, 0, 4 * heads * width);
    for (int h = 0; h < heads; h++) v.most[h] = -1e30f, v.sum[h] = 0;
    for (long chunk = begin / (CHUNK * PAGE) * CHUNK; chunk * PAGE <= position; chunk += CHUNK) {
        long at = chunk * PAGE;
        v.from = begin > at ? begin - at : 0;
        v.to = position - at < CHUNK * PAGE ? position - at + 1 : CHUNK * PAGE;
        for (long i = v.from / PAGE; i * PAGE < v.to; i++) {
            v.keys[i] = page_at(c, c->keys, rows, row, chunk + i, kv_head);
            v.values[i] = page_at(c, c->values, rows, row, chunk + i, kv_head);
        }
        score(&v, heads, row_of(&op->x, row) + first * size);
        for (int h = 0; h < heads; h++) weigh(&v, h, op->scale);
        MIXERS[c->kind][heads](&v, mixed);
    }
    for (int h = 0; h < heads; h++)
        for (long d = 0; d < size; d++) row_of(&op->out, row)[(first + h) * size + d] = mixed[h * width + d] / v.sum[h];
}

/* Heads that share keys go together as far as registers allow, and as far as there is work for every thread.
 * The numbers are the same either way. */
void attend(const struct op *op, const struct rows *rows, const struct worker *me) {
    long kv_heads = op->cache.kv_heads, sharing = query_heads(op) / kv_heads;
    long parts = (sharing + HEADS - 1) / HEADS;
    while (parts < sharing && rows->count * kv_heads * parts < me->count) parts++;
    for (long i = me->index; i < rows->count * kv_heads * parts; i += me->count) {
        long kv_head = i / parts % kv_heads;
        struct range own = {sharing * (i % parts) / parts, sharing * (i % parts + 1) / parts};
        long first = kv_head * sharing + own.from;
        attend_heads(op, rows, i / parts / kv_heads, kv_head, first, own.to - own.from, (float *)me->scratch);
    }
}

/* Attention over pages: `place` puts the new keys and values into them, `attend` reads them.
 *
 * A row of qkv is [heads | kv_heads | kv_heads] of head_dim numbers. What a row gets depends on its own position and
 * pages alone: it goes through them in order, with the running greatest score and sum of the softmax.
 */

#include <math.h>

#include "ops.h"

static long query_heads(const struct op *op) { return op->x.width / op->cache.head_dim - 2 * op->cache.kv_heads; }

/* Where the page of a position begins in keys or values, for one key-value head. */
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
    long size = c->head_dim, heads = query_heads(op), position = rows->positions[row];
    float *x = row_of(&op->x, row) + head * size;
    const float *norm = head < heads ? op->q_norm : op->k_norm;
    long kv_head = head - heads;
    if (kv_head < c->kv_heads) {
        if (norm) norm_head(x, size, norm, op->eps);
        turn_head(x, size / 2, op->cos + position * (size / 2), op->sin + position * (size / 2));
        if (kv_head < 0) return;
    }
    int is_value = kv_head >= c->kv_heads;
    char *page = page_at(c, is_value ? c->values : c->keys, rows, row, position / PAGE, kv_head % c->kv_heads);
    narrow(x, size, c->kind, page + position % PAGE * size * size_of(c->kind));
}

void place(const struct op *op, const struct rows *rows, const struct worker *me) {
    long heads = query_heads(op) + 2 * op->cache.kv_heads;
    struct range mine = share(me, rows->count * heads);
    for (long i = mine.from; i < mine.to; i++) place_head(op, rows, i / heads, i % heads);
}

struct span { /* of the 16 positions of a page, those that count */
    long from, to;
};

/* One page of keys or values as float32, `width` apart; zeros where no position counts. */
static void widen_page(const struct cache *c, const char *page, struct span span, long width, float *to) {
    if (span.to - span.from < PAGE || width != c->head_dim) memset(to, 0, 4 * PAGE * width);
    for (long j = span.from; j < span.to; j++)
        widen(c->kind, page + j * c->head_dim * size_of(c->kind), c->head_dim, to + j * width);
}

struct softmax { /* of one query head, so far */
    float greatest, sum;
    float *query, *mixed; /* [width] */
};

/* Scores of the page's positions against the query; those that do not count are far below all others. */
static void score_page(const float *query, const float *keys, long width, struct span span, float scale, float *scores) {
    for (int j = 0; j < PAGE; j += 4) {
        vec acc[4] = {{}, {}, {}, {}};
        for (long d = 0; d < width; d += LANES) {
            vec q = load(query + d);
            for (int i = 0; i < 4; i++) acc[i] += q * load(keys + (j + i) * width + d);
        }
        four_totals(acc, scores + j);
    }
    for (int j = 0; j < PAGE; j++) scores[j] = j >= span.from && j < span.to ? scores[j] * scale : -INFINITY;
}

/* Scores become weights relative to the new greatest; returns by how much the older ones shrink. */
static float weigh_page(struct softmax *s, struct span span, float *scores) {
    vec most = all(s->greatest), sum = {};
    for (int j = 0; j < PAGE; j += LANES) {
        vec here = load(scores + j);
        most = choose(here > most, here, most);
    }
    float now = greatest(most);
    float shrink = exponential(all(s->greatest - now))[0];
    for (int j = 0; j < PAGE; j += LANES) {
        ints lane = iota() + j;
        vec weight = exponential(load(scores + j) - now);
        weight = choose((lane >= (int)span.from) & (lane < (int)span.to), weight, (vec){});
        store(scores + j, weight);
        sum += weight;
    }
    s->greatest = now;
    s->sum = s->sum * shrink + total(sum);
    return shrink;
}

static void mix_page(struct softmax *s, float shrink, const float *scores, const float *values, long width) {
    for (long d = 0; d < width; d += LANES) {
        vec mixed = load(s->mixed + d) * shrink;
        for (int j = 0; j < PAGE; j++) mixed += scores[j] * load(values + j * width + d);
        store(s->mixed + d, mixed);
    }
}

static long head_width(const struct op *op) { return padded(op->cache.head_dim, LANES); }

/* A thread's scratch: a page of keys, a page of values, then query and result of each head that shares them. */
long attend_scratch(const struct op *op) {
    return 4 * head_width(op) * (2 * PAGE + 2 * (query_heads(op) / op->cache.kv_heads));
}

/* The `count` query heads from `first` on, all of which share `kv_head`, of one row. */
static void attend_heads(const struct op *op, const struct rows *rows, long row, long kv_head, long first, long count, float *scratch) {
    const struct cache *c = &op->cache;
    long size = c->head_dim, width = head_width(op), position = rows->positions[row];
    long begin = op->window && position >= op->window ? position - op->window + 1 : 0;
    float *keys = scratch, *values = keys + PAGE * width, *queries = values + PAGE * width, *mixed = queries + count * width;
    struct softmax state[count];
    for (long h = 0; h < count; h++) {
        state[h] = (struct softmax){-1e30f, 0, queries + h * width, mixed + h * width};
        memset(state[h].query, 0, 4 * width);
        memset(state[h].mixed, 0, 4 * width);
        memcpy(state[h].query, row_of(&op->x, row) + (first + h) * size, 4 * size);
    }
    for (long page = begin / PAGE; page <= position / PAGE; page++) {
        long at = page * PAGE;
        struct span span = {begin > at ? begin - at : 0, position - at < PAGE ? position - at + 1 : PAGE};
        widen_page(c, page_at(c, c->keys, rows, row, page, kv_head), span, width, keys);
        widen_page(c, page_at(c, c->values, rows, row, page, kv_head), span, width, values);
        for (long h = 0; h < count; h++) {
            float scores[PAGE];
            score_page(state[h].query, keys, width, span, op->scale, scores);
            mix_page(&state[h], weigh_page(&state[h], span, scores), scores, values, width);
        }
    }
    for (long h = 0; h < count; h++)
        for (long d = 0; d < size; d++) row_of(&op->out, row)[(first + h) * size + d] = state[h].mixed[d] / state[h].sum;
}

/* Heads that share keys go together, so that a page is turned to float32 once; with few rows each goes alone, so that
 * no thread is idle. The numbers are the same either way. */
void attend(const struct op *op, const struct rows *rows, const struct worker *me) {
    long kv_heads = op->cache.kv_heads, heads = query_heads(op), sharing = heads / kv_heads;
    long together = me->count == 1 || rows->count * kv_heads >= 4 * me->count ? sharing : 1;
    long items = heads / together;
    for (long i = me->index; i < rows->count * items; i += me->count) {
        long first = i % items * together;
        attend_heads(op, rows, i / items, first / sharing, first, together, (float *)me->scratch);
    }
}

/* Products of a few rows with a weight: out[m, n] = sum over k of x[m, k] * w[n, k], plus a bias.
 *
 * A row's numbers are the same bit for bit however many rows there are and whoever computes them: each sum has one
 * accumulator of LANES lanes that takes k in order, whatever tile it is part of, and the lanes are added in one order.
 * Four rows of the weight are a strip. With few rows of x a strip is turned to float32 in registers, as it is read;
 * with many it is turned once, into a panel that stays in the cache, and all rows of x meet it there.
 */

#include "ops.h"

enum {
    BLOCK = 64, /* columns worked on at a time, and to which quantised rows are padded */
    STRIP = 4,
    TILE = LANES == 16 ? 6 : 3 /* rows of x at once: STRIP * TILE accumulators stay in registers */
};

struct strip {
    const struct weight *weight;
    const char *row[STRIP];       /* at the end of a weight the last row is repeated */
    const float *scale[STRIP];    /* float32, by group */
    const float *minimum[STRIP];
};

struct levels { /* the numbers that the 16 values of a nibble stand for, in one group of one row */
#if LANES == 16
    vec table;
#else
    vec scale, minimum;
#endif
};

INLINE struct levels levels_of(float scale, float minimum) {
#if LANES == 16
    return (struct levels){__builtin_convertvector(iota(), vec) * scale + minimum};
#else
    return (struct levels){all(scale), all(minimum)};
#endif
}

/* Nibble `index` of each word, as a number: a look-up where a register holds all sixteen, else q * scale + minimum. */
INLINE vec look_up(words packed, int index, struct levels levels) {
    packed >>= 4 * index;
#if LANES == 16
    return __builtin_shuffle(levels.table, (ints)packed); /* only the low four bits of an index count */
#else
    return __builtin_convertvector((ints)(packed & 15), vec) * levels.scale + levels.minimum;
#endif
}

INLINE long group_at(const struct weight *w, long k) {
    long group = k >> w->group_shift;
    return group < w->groups ? group : w->groups - 1; /* padding behind the last group: x is zero there */
}

/* LANES numbers of one row, `lane` numbers into the block at k; `at` is where the block begins in memory. */
INLINE vec weights(enum number kind, const struct strip *s, int r, const char *at, long k, int lane) {
    if (kind == Q4) {
        long group = group_at(s->weight, k + lane);
        words packed = __builtin_convertvector(load_halves((const uint16_t *)at + lane % 16), words);
        return look_up(packed, lane / 16, levels_of(s->scale[r][group], s->minimum[r][group]));
    }
    if (kind == Q8) {
        bytes q;
        memcpy(&q, at + lane, sizeof q);
        return __builtin_convertvector(__builtin_convertvector(q, ints), vec) * s->scale[r][group_at(s->weight, k + lane)];
    }
    return load_as(kind, at, lane);
}

INLINE long block_bytes(enum number kind) { return kind == Q4 ? BLOCK / 2 : BLOCK * size_of(kind); }

/* acc[m][r] += x[m, k .. k + 64) * w[r, k .. k + 64), lane by lane. `w` and `x` point at the block. */
INLINE void add_block(
    enum number kind, int tile, const struct strip *s, const char *const *w, long k,
    const float *x, long stride, vec acc[TILE][STRIP]
) {
#pragma GCC unroll 16
    for (int lane = 0; lane < BLOCK; lane += LANES) {
        vec number[STRIP];
#pragma GCC unroll 4
        for (int r = 0; r < STRIP; r++) number[r] = weights(kind, s, r, w[r], k, lane);
#pragma GCC unroll 6
        for (int m = 0; m < tile; m++) {
            vec v = load(x + m * stride + lane);
#pragma GCC unroll 4
            for (int r = 0; r < STRIP; r++) acc[m][r] += number[r] * v;
        }
    }
}

/* The columns behind the last whole block: copies padded with zeros, so that nothing is read beyond its end. */
INLINE void add_rest(
    enum number kind, int tile, const struct strip *s, long k, const float *x, long stride, vec acc[TILE][STRIP]
) {
    long rest = s->weight->columns - k;
    float x_rest[TILE * BLOCK] = {0};
    char w_rest[STRIP][4 * BLOCK] = {{0}};
    const char *w[STRIP];
    for (int m = 0; m < tile; m++) memcpy(x_rest + m * BLOCK, x + m * stride + k, 4 * rest);
    for (int r = 0; r < STRIP; r++) {
        memcpy(w_rest[r], s->row[r] + k / BLOCK * block_bytes(kind), kind == Q4 ? BLOCK / 2 : rest * size_of(kind));
        w[r] = w_rest[r];
    }
    add_block(kind, tile, s, w, k, x_rest, BLOCK, acc);
}

/* `tile` rows of x with one strip: sums[m][r]. */
INLINE void multiply(enum number kind, int tile, const struct strip *s, const float *x, long stride, float sums[TILE][STRIP]) {
    vec acc[TILE][STRIP];
    const char *w[STRIP];
    long k = 0, columns = s->weight->columns;
    for (int r = 0; r < STRIP; r++) w[r] = s->row[r];
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++)
#pragma GCC unroll 4
        for (int r = 0; r < STRIP; r++) acc[m][r] = (vec){};
    for (; k + BLOCK <= columns; k += BLOCK) {
        add_block(kind, tile, s, w, k, x + k, stride, acc);
        for (int r = 0; r < STRIP; r++) w[r] += block_bytes(kind);
    }
    if (k < columns) add_rest(kind, tile, s, k, x, stride, acc);
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++) four_totals(acc[m], sums[m]);
}

/* A function for each kind and tile, so that the compiler knows both and keeps the accumulators in registers. */
typedef void multiply_fn(const struct strip *, const float *, long, float[TILE][STRIP]);
#define MULTIPLY(kind, tile) \
    static void multiply_##kind##_##tile(const struct strip *s, const float *x, long stride, float sums[TILE][STRIP]) { \
        multiply(kind, tile, s, x, stride, sums); \
    }
#if LANES == 16
#define EACH_TILE(kind, DO) DO(kind, 1) DO(kind, 2) DO(kind, 3) DO(kind, 4) DO(kind, 5) DO(kind, 6)
#else
#define EACH_TILE(kind, DO) DO(kind, 1) DO(kind, 2) DO(kind, 3)
#endif
#define EACH_KIND(DO) EACH_TILE(F32, DO) EACH_TILE(BF16, DO) EACH_TILE(F16, DO) EACH_TILE(Q4, DO) EACH_TILE(Q8, DO)
EACH_KIND(MULTIPLY)
#define ENTRY(kind, tile) [kind][tile] = multiply_##kind##_##tile,
static multiply_fn *const MULTIPLIERS[5][TILE + 1] = {EACH_KIND(ENTRY)};

/* A thread's scratch: scales and minima of a strip as float32, then the panel. */
static long scales_size(const struct weight *w) { return padded(STRIP * w->groups, LANES); }

static long panel_width(const struct weight *w) { return padded(w->columns, BLOCK); }

long linear_scratch(const struct weight *w) { return 4 * (2 * scales_size(w) + STRIP * panel_width(w)); }

/* The strip that begins at row n, with its scales in float32. */
static struct strip strip_at(const struct weight *w, long n, float *scratch) {
    struct strip s = {.weight = w};
    float *scale = scratch, *minimum = scratch + scales_size(w);
    long have = w->rows - n < STRIP ? w->rows - n : STRIP;
    long first = n * w->groups * size_of(w->scale_kind);
    if (w->scale) widen(w->scale_kind, (const char *)w->scale + first, have * w->groups, scale);
    if (w->minimum) widen(w->scale_kind, (const char *)w->minimum + first, have * w->groups, minimum);
    else memset(minimum, 0, 4 * have * w->groups);
    for (int r = 0; r < STRIP; r++) {
        long own = r < have ? r : have - 1;
        s.row[r] = (const char *)w->data + (n + own) * w->row_bytes;
        s.scale[r] = scale + own * w->groups;
        s.minimum[r] = minimum + own * w->groups;
    }
    return s;
}

/* Row r of a quantised strip as float32, in whole blocks; what the padding stands for does not matter. */
INLINE void unpack_row(enum number kind, const struct strip *s, int r, float *to) {
    long columns = s->weight->columns;
    const char *at = s->row[r];
    char rest[BLOCK];
    for (long k = 0; k < columns; k += BLOCK, at += block_bytes(kind)) {
        if (kind == Q8 && k + BLOCK > columns) at = memcpy(rest, at, columns - k);
#pragma GCC unroll 16
        for (int lane = 0; lane < BLOCK; lane += LANES) store(to + k + lane, weights(kind, s, r, at, k, lane));
    }
}

/* The strip as float32, rows `panel_width` apart. */
static void unpack(const struct strip *s, float *panel) {
    const struct weight *w = s->weight;
    for (int r = 0; r < STRIP; r++, panel += panel_width(w)) {
        if (w->kind == Q4) unpack_row(Q4, s, r, panel);
        else if (w->kind == Q8) unpack_row(Q8, s, r, panel);
        else widen(w->kind, s->row[r], w->columns, panel);
    }
}

static void put(const struct op *op, long m, long n, const float *sums) {
    float *out = row_of(&op->out, m);
    for (int r = 0; r < STRIP && n + r < op->weight.rows; r++) out[n + r] = op->bias ? sums[r] + op->bias[n + r] : sums[r];
}

/* All rows of x with one strip. */
static void strip_product(const struct op *op, long count, long n, float *scratch) {
    const struct weight *w = &op->weight;
    struct strip s = strip_at(w, n, scratch);
    struct weight as_panel = {.columns = w->columns};
    enum number kind = w->kind;
    if (count > TILE && kind != F32) {
        float *panel = scratch + 2 * scales_size(w);
        unpack(&s, panel);
        s = (struct strip){.weight = &as_panel};
        for (int r = 0; r < STRIP; r++) s.row[r] = (const char *)(panel + r * panel_width(w));
        kind = F32;
    }
    for (long m = 0; m < count; m += TILE) {
        float sums[TILE][STRIP];
        int tile = count - m < TILE ? count - m : TILE;
        MULTIPLIERS[kind][tile](&s, row_of(&op->x, m), op->x.stride, sums);
        for (int i = 0; i < tile; i++) put(op, m + i, n, sums[i]);
    }
}

void linear(const struct op *op, const struct rows *rows, const struct worker *me) {
    struct range mine = share(me, (op->weight.rows + STRIP - 1) / STRIP);
    for (long strip = mine.from; strip < mine.to; strip++)
        strip_product(op, rows->count, strip * STRIP, (float *)me->scratch);
}

/* A quantised weight as a plain one, [N, K] of `kind` without padding. */
void dequantise(const struct weight *w, const struct worker *me, enum number kind, void *out) {
    float *scratch = (float *)me->scratch, *panel = scratch + 2 * scales_size(w);
    struct range mine = share(me, (w->rows + STRIP - 1) / STRIP);
    for (long n = mine.from * STRIP; n < mine.to * STRIP && n < w->rows; n += STRIP) {
        struct strip s = strip_at(w, n, scratch);
        unpack(&s, panel);
        for (long r = 0; r < STRIP && n + r < w->rows; r++)
            narrow(panel + r * panel_width(w), w->columns, kind, (char *)out + (n + r) * w->columns * size_of(kind));
    }
}

/* Products of a few rows with a weight: out[m, n] = sum over k of x[m, k] * w[n, k], plus a bias.
 *
 * A row's numbers are the same bit for bit however many rows there are and whoever computes them: each sum has one
 * accumulator of LANES lanes that takes k in order, whatever tile it is part of, and the lanes are added in one order.
 * Four rows of the weight are a strip, and meet a tile of rows of x while all their sums stay in registers. Numbers
 * become float32 as they are read; quantised ones only once, into a panel, where they meet many tiles.
 *
 * Where the processor multiplies bfloat16 in pairs (AVX512-BF16), it does so for weights that are bfloat16: x is rounded
 * to it, as torch's own product does, and twice as much is multiplied at once. Sums are float32 all the same.
 */

#include "ops.h"

enum {
    BLOCK = 64, /* columns worked on at a time, and to which rows of 4-bit numbers are filled up */
    HALF = 32,  /* columns that surely share a scale */
    MEMORY_PAGE = 4096,
    PAIRED_ROWS = 64, /* rows of x rounded to bfloat16 at once */
    AHEAD = 8192 /* bytes between what is read and what is fetched: the processor's own guess stops at each row's end */
};

/* Sixteen numbers that a nibble may stand for: q * scale + minimum. */
struct levels {
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

/* What nibble `index` of each word stands for: a look-up where a register holds all sixteen numbers. */
INLINE vec look_up(words packed, int index, struct levels levels) {
    packed >>= 4 * index;
#if LANES == 16
    return __builtin_shuffle(levels.table, (ints)packed); /* only the low four bits of an index count */
#else
    return __builtin_convertvector((ints)(packed & 15), vec) * levels.scale + levels.minimum;
#endif
}

/* LANES numbers of a block, from number `lane` on. `block`, `scale` and `minimum` are those of the block. */
INLINE vec numbers(enum number kind, const char *block, const float *scale, const float *minimum, int lane) {
    if (kind == Q8) return load_bytes(block + lane) * scale[lane / HALF];
    if (kind != Q4) return load_as(kind, block, lane);
    words packed = load_words((const uint16_t *)block + lane % 16);
    return look_up(packed, lane / 16, levels_of(scale[lane / HALF], minimum[lane / HALF]));
}

INLINE long block_bytes(enum number kind) { return kind == Q4 ? BLOCK / 2 : BLOCK * size_of(kind); }

/* sums[m][r] += x[m, block] * w[r, block], lane by lane. What s and x point at is the block. */
INLINE void add_block(enum number kind, int tile, struct strip s, const float *x, long stride, vec sums[TILE][STRIP]) {
#pragma GCC unroll 16
    for (int lane = 0; lane < BLOCK; lane += LANES) {
        vec w[STRIP];
#pragma GCC unroll 4
        for (int r = 0; r < STRIP; r++) {
            long scale = r * s.scale_stride;
            w[r] = numbers(kind, s.rows + r * s.stride, s.scale + scale, s.minimum + scale, lane);
        }
#pragma GCC unroll 6
        for (int m = 0; m < tile; m++) {
            vec v = load(x + m * stride + lane);
            pin(&v);
#pragma GCC unroll 4
            for (int r = 0; r < STRIP; r++) sums[m][r] += w[r] * v;
        }
    }
}

/* `count` rows of which only the first `bytes` of a block exist, filled up with zeros, so that nothing behind is read. */
static __attribute__((noinline)) void fill_up(const void *rows, long stride, long bytes, int count, long block, char *to) {
    memset(to, 0, count * block);
    for (int i = 0; i < count; i++) memcpy(to + i * block, (const char *)rows + i * stride, bytes);
}

/* Rows lie one behind the other, so what follows a strip at this distance is what this thread reads next. */
INLINE void fetch_ahead(struct strip s, long bytes) {
#pragma GCC unroll 4
    for (int r = 0; r < STRIP; r++)
#pragma GCC unroll 4
        for (long at = 0; at < bytes; at += 64) __builtin_prefetch(s.rows + r * s.stride + at + AHEAD, 0, 2);
}

/* A tile of rows of x with a strip. */
INLINE void multiply(enum number kind, int tile, struct strip s, const float *x, long stride, float totals[TILE][STRIP]) {
    vec sums[TILE][STRIP];
    char w_rest[STRIP * BLOCK * 4];
    float x_rest[TILE * BLOCK];
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++)
#pragma GCC unroll 4
        for (int r = 0; r < STRIP; r++) sums[m][r] = (vec){};
    for (long left = s.columns; left > 0; left -= BLOCK) {
        if (left < BLOCK) {
            long bytes = kind == Q4 ? BLOCK / 2 : left * size_of(kind);
            fill_up(s.rows, s.stride, bytes, STRIP, block_bytes(kind), w_rest);
            fill_up(x, 4 * stride, 4 * left, tile, 4 * BLOCK, (char *)x_rest);
            s.rows = w_rest, s.stride = block_bytes(kind), x = x_rest, stride = BLOCK;
        }
        fetch_ahead(s, block_bytes(kind));
        add_block(kind, tile, s, x, stride, sums);
        s.rows += block_bytes(kind), x += BLOCK;
        s.scale += BLOCK / HALF, s.minimum += BLOCK / HALF;
    }
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++) four_totals(sums[m], totals[m]);
}

/* A function for each kind and tile, so that the compiler knows both and keeps the sums in registers. */
typedef void multiply_fn(const struct strip *, const float *, long, float[TILE][STRIP]);
#define MULTIPLY(kind, tile) \
    static void multiply_##kind##_##tile(const struct strip *s, const float *x, long stride, float totals[TILE][STRIP]) { \
        multiply(kind, tile, *s, x, stride, totals); \
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

#ifdef __AVX512BF16__
INLINE __m512bh load_pairs(const void *from) { return (__m512bh)_mm512_loadu_si512(from); }

/* The same for weights in bfloat16 and rows of x in bfloat16, filled up with zeros to whole blocks. */
INLINE void multiply_pairs(int tile, struct strip s, const uint16_t *x, long stride, float totals[TILE][STRIP]) {
    __m512 sums[TILE][STRIP];
    char w_rest[STRIP * BLOCK * 2];
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++)
#pragma GCC unroll 4
        for (int r = 0; r < STRIP; r++) sums[m][r] = _mm512_setzero_ps();
    for (long left = s.columns; left > 0; left -= BLOCK, s.rows += 2 * BLOCK, x += BLOCK) {
        if (left < BLOCK) {
            fill_up(s.rows, s.stride, 2 * left, STRIP, 2 * BLOCK, w_rest);
            s.rows = w_rest, s.stride = 2 * BLOCK;
        }
        fetch_ahead(s, 2 * BLOCK);
#pragma GCC unroll 2
        for (int lane = 0; lane < BLOCK; lane += 32) {
            __m512bh w[STRIP];
#pragma GCC unroll 4
            for (int r = 0; r < STRIP; r++) w[r] = load_pairs(s.rows + r * s.stride + 2 * lane);
#pragma GCC unroll 6
            for (int m = 0; m < tile; m++) {
                __m512bh v = load_pairs(x + m * stride + lane);
#pragma GCC unroll 4
                for (int r = 0; r < STRIP; r++) sums[m][r] = _mm512_dpbf16_ps(sums[m][r], w[r], v);
            }
        }
    }
#pragma GCC unroll 6
    for (int m = 0; m < tile; m++) four_totals((const vec *)sums[m], totals[m]);
}

#define PAIRS(kind, tile) \
    static void multiply_##kind##_##tile(const struct strip *s, const float *x, long stride, float totals[TILE][STRIP]) { \
        multiply_pairs(tile, *s, (const uint16_t *)x, stride, totals); \
    }
EACH_TILE(pairs, PAIRS)
#define PAIRS_ENTRY(kind, tile) [tile] = multiply_##kind##_##tile,
static multiply_fn *const PAIR_MULTIPLIERS[TILE + 1] = {EACH_TILE(pairs, PAIRS_ENTRY)};

INLINE int in_pairs(const struct weight *w) { return w->kind == BF16; }
#else
static multiply_fn *const PAIR_MULTIPLIERS[TILE + 1] = {0};

INLINE int in_pairs(const struct weight *w) { return 0 * w->kind; }
#endif

void multiply_strip(enum number kind, int tile, const struct strip *s, const float *x, long stride, float totals[][STRIP]) {
    MULTIPLIERS[kind][tile](s, x, stride, totals);
}

/* A thread's scratch: scales and minima of a strip, then the panel, all float32; or rows of x in bfloat16. */
static long scales_of_row(const struct weight *w) { return padded(w->columns, BLOCK) / HALF; }

static long scales_size(const struct weight *w) { return padded(STRIP * scales_of_row(w), LANES); }

static long panel_width(const struct weight *w) { return padded(w->columns, BLOCK); }

static float *panel_in(const struct weight *w, float *scratch) { return scratch + 2 * scales_size(w); }

long linear_scratch(const struct weight *w) {
    if (in_pairs(w)) return 2 * PAIRED_ROWS * panel_width(w);
    return 4 * (2 * scales_size(w) + STRIP * panel_width(w));
}

/* Rows of x from `first` on, as they are multiplied: where they lie and how many numbers they are apart. */
struct part {
    const void *data;
    long stride, first, count;
};

static struct part part_of(const struct op *op, long first, long count, void *scratch) {
    if (!in_pairs(&op->weight)) return (struct part){row_of(&op->x, first), op->x.stride, first, count};
    long width = panel_width(&op->weight);
    uint16_t *rounded = scratch;
    for (long m = 0; m < count; m++) {
        narrow(row_of(&op->x, first + m), op->weight.columns, BF16, rounded + m * width);
        memset(rounded + m * width + op->weight.columns, 0, 2 * (width - op->weight.columns));
    }
    return (struct part){rounded, width, first, count};
}

/* Scales (or minima) of `count` rows, one for each HALF. Behind the last group the last one is repeated. */
static void spread(const struct weight *w, const void *from, long n, long count, float *to) {
    const char *first = (const char *)from + n * w->groups * size_of(w->scale_kind);
    if (w->groups == scales_of_row(w)) {
        widen(w->scale_kind, first, count * w->groups, to);
        return;
    }
    for (long r = 0; r < count; r++, first += w->groups * size_of(w->scale_kind)) {
        float own[w->groups];
        widen(w->scale_kind, first, w->groups, own);
        for (long half = 0; half < scales_of_row(w); half++) {
            long group = half * HALF >> w->group_shift;
            *to++ = own[group < w->groups ? group : w->groups - 1];
        }
    }
}

/* The `count` rows from n on: four, or one. */
static struct strip strip_at(const struct weight *w, long n, long count, float *scratch) {
    float *scale = scratch, *minimum = scratch + scales_size(w);
    if (w->scale) spread(w, w->scale, n, count, scale);
    if (w->minimum) spread(w, w->minimum, n, count, minimum);
    else if (w->kind == Q4) memset(minimum, 0, 4 * scales_size(w));
    const char *rows = (const char *)w->data + n * w->row_bytes;
    if (count == 1) return (struct strip){rows, 0, scale, minimum, 0, w->columns};
    return (struct strip){rows, w->row_bytes, scale, minimum, scales_of_row(w), w->columns};
}

/* `count` rows of a quantised strip as float32, `width` apart; what their padding stands for does not matter. */
INLINE void unpack(enum number kind, const struct strip *s, long count, long width, float *to) {
    for (long r = 0; r < count; r++, to += width) {
        const char *block = s->rows + r * s->stride;
        const float *scale = s->scale + r * s->scale_stride, *minimum = s->minimum + r * s->scale_stride;
        char rest[BLOCK];
        for (long k = 0; k < s->columns; k += BLOCK) {
            if (kind == Q8 && k + BLOCK > s->columns) block = memcpy(rest, block, s->columns - k);
#pragma GCC unroll 16
            for (int lane = 0; lane < BLOCK; lane += LANES) store(to + k + lane, numbers(kind, block, scale, minimum, lane));
            block += block_bytes(kind), scale += BLOCK / HALF, minimum += BLOCK / HALF;
        }
    }
}

static void unpack_strip(const struct weight *w, const struct strip *s, long count, float *to) {
    if (w->kind == Q4) unpack(Q4, s, count, panel_width(w), to);
    else unpack(Q8, s, count, panel_width(w), to);
}

/* Reads the first line of each page of memory (not of the cache) of which the strip at `rows` will fetch lines. */
static void touch_ahead(const struct weight *w, const char *rows, long bytes) {
    const char *end = (const char *)w->data + w->rows * w->row_bytes, *from = rows + AHEAD, *to = from + bytes;
    const char *page = from + (-(uintptr_t)from & (MEMORY_PAGE - 1));
    for (; page < to && page < end; page += MEMORY_PAGE) touch(page);
}

static void put(const struct op *op, long m, long n, long count, const float *totals) {
    float *out = row_of(&op->out, m) + n;
    for (long r = 0; r < count; r++) out[r] = op->bias ? totals[r] + op->bias[n + r] : totals[r];
}

/* Rows of x with the `count` rows of the weight from n on. */
static void strip_product(const struct op *op, const struct part *x, long n, long count, float *scratch) {
    const struct weight *w = &op->weight;
    struct strip s = strip_at(w, n, count, scratch);
    enum number kind = w->kind;
    touch_ahead(w, s.rows, count * w->row_bytes);
    if (x->count > 2 * TILE && (kind == Q4 || kind == Q8)) {
        unpack_strip(w, &s, count, panel_in(w, scratch));
        s.rows = (const char *)panel_in(w, scratch);
        s.stride = count == 1 ? 0 : 4 * panel_width(w);
        kind = F32;
    }
    multiply_fn *const *multiply = in_pairs(w) ? PAIR_MULTIPLIERS : MULTIPLIERS[kind];
    long bytes = x->stride * (in_pairs(w) ? 2 : 4), tiles = (x->count + TILE - 1) / TILE;
    for (long i = 0, m = 0; i < tiles; i++) {
        float totals[TILE][STRIP];
        int tile = x->count * (i + 1) / tiles - m; /* tiles alike, since small ones are less efficient */
        multiply[tile](&s, (const float *)((const char *)x->data + m * bytes), x->stride, totals);
        for (int own = 0; own < tile; own++, m++) put(op, x->first + m, n, count, totals[own]);
    }
}

/* Strips of a weight, and this thread's share of them: whole ones, then single rows. */
static struct range my_strips(const struct weight *w, const struct worker *me) {
    return share(me, w->rows / STRIP + w->rows % STRIP);
}

static struct range rows_of(const struct weight *w, long strip) {
    long whole = w->rows / STRIP, first = strip < whole ? strip * STRIP : whole * STRIP + strip - whole;
    return (struct range){first, first + (strip < whole ? STRIP : 1)};
}

void linear(const struct op *op, const struct rows *rows, const struct worker *me) {
    struct range mine = my_strips(&op->weight, me);
    long at_once = in_pairs(&op->weight) ? PAIRED_ROWS : rows->count;
    for (long first = 0; first < rows->count; first += at_once) {
        long count = rows->count - first < at_once ? rows->count - first : at_once;
        struct part x = part_of(op, first, count, me->scratch);
        for (long strip = mine.from; strip < mine.to; strip++) {
            struct range n = rows_of(&op->weight, strip);
            strip_product(op, &x, n.from, n.to - n.from, (float *)me->scratch);
        }
    }
}

/* A quantised weight as a plain one, [N, K] of `kind` without padding. */
void dequantise(const struct weight *w, const struct worker *me, enum number kind, void *out) {
    float *scratch = (float *)me->scratch, *panel = panel_in(w, scratch);
    struct range mine = my_strips(w, me);
    for (long strip = mine.from; strip < mine.to; strip++) {
        struct range n = rows_of(w, strip);
        struct strip s = strip_at(w, n.from, n.to - n.from, scratch);
        unpack_strip(w, &s, n.to - n.from, panel);
        for (long row = n.from; row < n.to; row++, panel += panel_width(w))
            narrow(panel, w->columns, kind, (char *)out + row * w->columns * size_of(kind));
        panel = panel_in(w, scratch);
    }
}

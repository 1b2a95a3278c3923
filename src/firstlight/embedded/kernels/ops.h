/* What Python hands over, and what the operations share. native.py has the same structures, field by field. */

#ifndef FIRSTLIGHT_OPS_H
#define FIRSTLIGHT_OPS_H

#include "vectors.h"

enum { PAGE = 16 }; /* positions of a page, as in model/passes.py */

enum op_kind { ADD_NORM, LINEAR, PLACE, ATTEND, SWIGLU, COPY };

struct matrix { /* float32; consecutive rows are `stride` numbers apart */
    float *data;
    int64_t stride;
    int64_t width;
};

struct weight { /* N rows of K numbers; rows of 4-bit numbers are filled up to whole blocks of 64 */
    int64_t rows, columns;
    int64_t row_bytes;
    const void *data;
    const void *scale, *minimum; /* [N, groups] of `scale_kind`; minimum may be absent */
    int64_t groups;
    int32_t kind, scale_kind;
    int32_t group_shift; /* log2 of a group's length */
};

struct cache { /* keys and values of one layer: [pages, kv_heads, PAGE, head_dim] */
    void *keys, *values;
    int64_t pages, kv_heads, head_dim;
    int32_t kind;
};

struct op { /* which fields count is up to `kind` */
    int32_t kind;
    float eps;
    struct matrix x, delta, out;
    const float *norm, *bias;
    struct weight weight;
    struct cache cache;
    const float *q_norm, *k_norm;
    const float *cos, *sin; /* [positions, head_dim / 2] */
    int64_t positions;
    int64_t window; /* 0: none */
    float scale;
};

struct rows { /* the rows of one run */
    int64_t count;
    const int32_t *positions; /* [count] */
    const int32_t *sequences; /* [count], which table */
    const int32_t *tables;    /* the page tables, one after the other */
    const int32_t *starts;    /* [sequences + 1], where each table begins */
    int64_t sequence_count;
};

struct worker { /* one thread's part of the work */
    int index, count;
    char *scratch;
};

struct range {
    long from, to;
};

/* This thread's share of `total` things. Who computes a number never changes it. */
INLINE struct range share(const struct worker *me, long total) {
    return (struct range){total * me->index / me->count, total * (me->index + 1) / me->count};
}

INLINE float *row_of(const struct matrix *m, long row) { return m->data + row * m->stride; }

INLINE long padded(long count, long to) { return (count + to - 1) / to * to; }

/* A fetch is dropped where the processor would first have to look up the address; a read is not. */
INLINE void touch(const char *at) { (void)*(const volatile char *)at; }

float sum_of_squares(const float *x, long count);

enum {
    STRIP = 4,
    TILE = LANES == 16 ? 6 : 3 /* STRIP * TILE sums fit the registers */
};

struct strip { /* four rows of a weight, or one row four times, with strides of zero */
    const char *rows;
    long stride;                  /* bytes */
    const float *scale, *minimum; /* of each 32 columns */
    long scale_stride;
    long columns;
};

/* The products of `tile` rows of x, `stride` numbers apart, with the four rows of a strip. */
void multiply_strip(enum number kind, int tile, const struct strip *s, const float *x, long stride, float totals[][STRIP]);

long linear_scratch(const struct weight *w);
void linear(const struct op *op, const struct rows *rows, const struct worker *me);
void dequantise(const struct weight *w, const struct worker *me, enum number kind, void *out);

long attend_scratch(const struct op *op);
void place(const struct op *op, const struct rows *rows, const struct worker *me);
void attend(const struct op *op, const struct rows *rows, const struct worker *me);

#endif

/* A program of operations on a few rows, run by a team of threads in one call: the decoder's forward pass.
 *
 * The threads meet after each operation. They wait awake for a while, since operations take microseconds, then asleep,
 * since a thread that has lost its CPU may need the very one on which another waits.
 */

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "ops.h"

float sum_of_squares(const float *x, long count) {
    vec acc = {};
    long k = 0;
    for (; k + LANES <= count; k += LANES) acc += load(x + k) * load(x + k);
    if (k < count) acc += load_some(x + k, count - k) * load_some(x + k, count - k);
    return total(acc);
}

/* x += delta; out = x / rms(x) * norm. */
static void add_norm(const struct op *op, const struct rows *rows, const struct worker *me) {
    struct range mine = share(me, rows->count);
    long width = op->x.width;
    for (long row = mine.from; row < mine.to; row++) {
        float *x = row_of(&op->x, row), *out = row_of(&op->out, row);
        if (op->delta.data)
            for (long i = 0; i < width; i++) x[i] += row_of(&op->delta, row)[i];
        float inverse = 1.0f / sqrtf(sum_of_squares(x, width) / width + op->eps);
        for (long i = 0; i < width; i++) out[i] = x[i] * inverse * op->norm[i];
    }
}

/* out = gate / (1 + e^-gate) * up, where a row of x is [gate | up]. */
static void swiglu(const struct op *op, const struct rows *rows, const struct worker *me) {
    long width = op->x.width / 2;
    struct range mine = share(me, (width + LANES - 1) / LANES);
    for (long row = 0; row < rows->count; row++)
        for (long at = mine.from * LANES; at < mine.to * LANES; at += LANES) {
            long some = width - at < LANES ? width - at : LANES;
            const float *gate = row_of(&op->x, row) + at;
            vec g = load_some(gate, some), u = load_some(gate + width, some);
            store_some(row_of(&op->out, row) + at, g / (1.0f + exponential(-g)) * u, some);
        }
}

/* out = x + delta. */
static void copy(const struct op *op, const struct rows *rows, const struct worker *me) {
    struct range mine = share(me, rows->count);
    for (long row = mine.from; row < mine.to; row++)
        for (long i = 0; i < op->x.width; i++)
            row_of(&op->out, row)[i] = row_of(&op->x, row)[i] + (op->delta.data ? row_of(&op->delta, row)[i] : 0.0f);
}

static void perform(const struct op *op, const struct rows *rows, const struct worker *me) {
    switch (op->kind) {
    case ADD_NORM: add_norm(op, rows, me); break;
    case LINEAR: linear(op, rows, me); break;
    case PLACE: place(op, rows, me); break;
    case ATTEND: attend(op, rows, me); break;
    case SWIGLU: swiglu(op, rows, me); break;
    case COPY: copy(op, rows, me); break;
    }
}

struct meeting {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int round; /* goes up when all have arrived; sleepers wait for it to change */
    _Alignas(64) atomic_int sleepers;
};

enum { LEAST_LOOKS = 50, MOST_LOOKS = 4000 }; /* before sleeping: about one, and some tens of microseconds */

/* A thread's looks: more after a wait that ended awake, fewer after one that did not, as where both share a CPU. */
static _Thread_local int patience = MOST_LOOKS;

INLINE void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_until_changed(struct meeting *m, int round) {
    atomic_fetch_add(&m->sleepers, 1);
    while (atomic_load(&m->round) == round) syscall(SYS_futex, &m->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
    atomic_fetch_sub(&m->sleepers, 1);
}

/* Returns when all `count` threads have come here. */
static void meet(struct meeting *m, int count) {
    if (count == 1) return;
    int round = atomic_load(&m->round);
    if (atomic_fetch_add(&m->arrived, 1) == count - 1) {
        atomic_store(&m->arrived, 0);
        atomic_store(&m->round, round + 1);
        if (atomic_load(&m->sleepers)) syscall(SYS_futex, &m->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (int looks = 0; looks < patience; looks++) {
        if (atomic_load_explicit(&m->round, memory_order_acquire) != round) {
            patience = patience < MOST_LOOKS / 2 ? 2 * patience : MOST_LOOKS;
            return;
        }
        breathe();
    }
    patience = patience > 2 * LEAST_LOOKS ? patience / 2 : LEAST_LOOKS;
    sleep_until_changed(m, round);
}

static struct worker this_worker(char *scratch, long scratch_each) {
    struct worker me = {0, 1, scratch};
#ifdef _OPENMP
    me.index = omp_get_thread_num();
    me.count = omp_get_num_threads();
    me.scratch += me.index * scratch_each;
#endif
    return me;
}

/* Bytes of scratch that each thread needs for an operation. */
int64_t firstlight_scratch(const struct op *op) {
    return op->kind == LINEAR ? linear_scratch(&op->weight) : op->kind == ATTEND ? attend_scratch(op) : 0;
}

/* Whether this library was built so that it can use more than one thread. */
int32_t firstlight_threaded(void) {
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

int64_t firstlight_op_size(void) { return sizeof(struct op); }

/* Whether every page and position of the rows lies inside the tensors of a `place` or `attend`. */
static int inside(const struct op *op, const struct rows *rows) {
    if (op->kind != PLACE && op->kind != ATTEND) return 1;
    for (long i = 0; i < rows->starts[rows->sequence_count]; i++)
        if (rows->tables[i] < 0 || rows->tables[i] >= op->cache.pages) return 0;
    for (long i = 0; i < rows->count; i++) {
        const int32_t *start = rows->starts + rows->sequences[i];
        int32_t position = rows->positions[i];
        if (position < 0 || position / PAGE >= start[1] - start[0]) return 0;
        if (op->kind == PLACE && position >= op->positions) return 0;
    }
    return 1;
}

/* Runs all operations in order. `scratch` has `scratch_each` bytes for each of `threads`.
 * Returns -1, or without having done anything the first operation that would go outside its pages. */
int64_t firstlight_run(
    const struct op *ops, int64_t count, const struct rows *rows, char *scratch, int64_t scratch_each, int32_t threads
) {
    struct meeting meeting = {0};
    for (int64_t i = 0; i < count; i++)
        if (!inside(&ops[i], rows)) return i;
#pragma omp parallel num_threads(threads)
    {
        struct worker me = this_worker(scratch, scratch_each);
        for (int64_t i = 0; i < count; i++) {
            perform(&ops[i], rows, &me);
            if (i + 1 < count) meet(&meeting, me.count);
        }
    }
    return -1;
}

/* A quantised weight as a plain one, [N, K] of `kind` (float32, bfloat16, float16), without padding. */
void firstlight_dequantise(
    const struct weight *weight, int32_t kind, void *out, char *scratch, int64_t scratch_each, int32_t threads
) {
#pragma omp parallel num_threads(threads)
    {
        struct worker me = this_worker(scratch, scratch_each);
        dequantise(weight, &me, kind, out);
    }
}

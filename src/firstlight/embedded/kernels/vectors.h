/* Vectors as wide as the machine's registers, in GCC's own notation, and what it has no notation for. */

#ifndef FIRSTLIGHT_VECTORS_H
#define FIRSTLIGHT_VECTORS_H

#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h> /* for what the compiler would do in many steps */
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

enum number { F32, BF16, F16, Q4, Q8 };

INLINE vec all(float x) { return x - (vec){}; }

INLINE ints iota(void) {
#if LANES == 16
    return (ints){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif LANES == 8
    return (ints){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (ints){0, 1, 2, 3};
#endif
}

INLINE vec choose(ints where, vec yes, vec no) { return (vec)((where & (ints)yes) | (~where & (ints)no)); }

INLINE vec load(const float *from) {
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, vec v) { memcpy(to, &v, sizeof v); }

INLINE halves load_halves(const void *from) {
    halves v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* The first `count` lanes from memory, zeros behind them. */
INLINE vec load_some(const float *from, long count) {
    if (count == LANES) return load(from);
    vec v = {};
    memcpy(&v, from, 4 * count);
    return v;
}

INLINE void store_some(float *to, vec v, long count) {
    if (count == LANES) store(to, v);
    else memcpy(to, &v, 4 * count);
}

/* LANES numbers of 16 bits, each in a word of 32. */
INLINE words load_words(const void *from) {
#if LANES == 16
    return (words)_mm512_cvtepu16_epi32(_mm256_loadu_si256(from));
#elif LANES == 8
    return (words)_mm256_cvtepu16_epi32(_mm_loadu_si128(from));
#else
    return __builtin_convertvector(load_halves(from), words);
#endif
}

/* LANES whole numbers of 8 bits. */
INLINE vec load_bytes(const void *from) {
#if LANES == 16
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
#elif LANES == 8
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from)));
#else
    int8_t q[LANES];
    memcpy(q, from, LANES);
    return (vec){q[0], q[1], q[2], q[3]};
#endif
}

INLINE vec load_bf16(const void *from) { return (vec)(load_words(from) << 16); }

INLINE vec load_f16(const void *from) {
#if LANES == 16
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(from));
#elif LANES == 8 && defined(__F16C__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(from));
#else
    words bits = load_words(from);
    vec magnitude = (vec)((bits & 0x7fff) << 13) * 0x1p112f; /* also right for numbers below the least normal one */
    words infinite = (words)((bits & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vec)((words)magnitude | infinite | (bits & 0x8000) << 16);
#endif
}

/* To nearest, ties to even, as torch rounds. */
INLINE halves to_bf16(vec v) {
    words bits = (words)v;
    words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    words nan = (words)(v != v);
    return __builtin_convertvector((nan & 0x7fc0) | (~nan & rounded), halves);
}

INLINE halves to_f16(vec v) {
    words sign = (words)v & 0x80000000, bits = (words)v ^ sign;
    words normal = (bits - (112u << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    words small = (words)((vec)bits + 0.5f) - 0x3f000000; /* adding 0.5 lets the unit shift and round the fraction */
    words is_small = (words)(bits < 0x38800000), is_large = (words)(bits >= 0x47800000);
    words large = 0x7c00 | ((words)(v != v) & 0x200);
    words chosen = (is_small & small) | (is_large & large) | (~(is_small | is_large) & normal);
    return __builtin_convertvector(chosen | sign >> 16, halves);
}

INLINE halves narrowed(enum number kind, vec v) { return kind == BF16 ? to_bf16(v) : to_f16(v); }

/* Numbers [at, at + LANES) of an array of float32, bfloat16 or float16. */
INLINE vec load_as(enum number kind, const void *from, long at) {
    if (kind == F32) return load((const float *)from + at);
    const uint16_t *half = (const uint16_t *)from + at;
    return kind == BF16 ? load_bf16(half) : load_f16(half);
}

/* Bytes of a number; four bits have no such thing. */
INLINE long size_of(enum number kind) { return kind == F32 ? 4 : kind == Q8 ? 1 : 2; }

/* Fewer than LANES numbers, zeros behind them. */
INLINE vec load_some_as(enum number kind, const void *from, long count) {
    char few[4 * LANES] = {0};
    memcpy(few, from, count * size_of(kind));
    return load_as(kind, few, 0);
}

/* `count` numbers of one kind, to float32. The last vector may overlap the one before it. */
__attribute__((unused)) static void widen(enum number kind, const void *from, long count, float *to) {
    if (count >= LANES) {
        for (long at = 0; at + LANES <= count; at += LANES) store(to + at, load_as(kind, from, at));
        store(to + count - LANES, load_as(kind, from, count - LANES));
    } else {
        vec v = load_some_as(kind, from, count);
        memcpy(to, &v, 4 * count);
    }
}

/* `count` numbers of float32 to another kind. */
__attribute__((unused)) static void narrow(const float *from, long count, enum number kind, void *to) {
    if (kind == F32) {
        memcpy(to, from, 4 * count);
        return;
    }
    uint16_t *out = to;
    long at = 0;
    for (; at + LANES <= count; at += LANES) {
        halves h = narrowed(kind, load(from + at));
        memcpy(out + at, &h, sizeof h);
    }
    halves rest = narrowed(kind, load_some(from + at, count - at));
    memcpy(out + at, &rest, 2 * (count - at));
}

/* Keeps a vector in its register: the compiler would rather read it from memory for each use, and loads are scarce. */
INLINE void pin(vec *v) {
#if LANES >= 8
    __asm__("" : "+v"(*v));
#else
    (void)v;
#endif
}

/* Sum of all lanes: halves are added to halves, so the order is the same everywhere. */
INLINE float total(vec v) {
    for (int half = LANES / 2; half; half /= 2) v += __builtin_shuffle(v, iota() ^ half);
    return v[0];
}

INLINE float greatest(vec v) {
    for (int half = LANES / 2; half; half /= 2) {
        vec other = __builtin_shuffle(v, iota() ^ half);
        v = choose(other > v, other, v);
    }
    return v[0];
}

/* Lanes folded to half as many: the groups of `2 * half` lanes of a and b become groups of `half`, a's before b's. */
INLINE vec fold(vec a, vec b, int half) {
    ints group = iota() / half, lane = iota() % half;
    ints source = (group * 2 * half) % LANES + ((group * 2 * half) / LANES) * LANES + lane;
    return __builtin_shuffle(a, b, source) + __builtin_shuffle(a, b, source + half);
}

/* The totals of four vectors, each exactly as `total` has it. */
INLINE void four_totals(const vec *v, float *to) {
    vec ab = fold(v[0], v[1], LANES / 2), cd = fold(v[2], v[3], LANES / 2);
    vec abcd = fold(ab, cd, LANES / 4);
    for (int half = LANES / 8; half; half /= 2) abcd += __builtin_shuffle(abcd, iota() ^ half);
    abcd = __builtin_shuffle(abcd, (iota() % 4) * (LANES / 4));
    memcpy(to, &abcd, 16);
}

/* e to the x, within two units of the last place; what is too small becomes about 1e-38, too large about 1e38. */
INLINE vec exponential(vec x) {
    x = choose(x < all(-87.0f), all(-87.0f), x);
    x = choose(x > all(88.0f), all(88.0f), x);
    vec turns = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    ints whole = (ints)turns - (ints)all(12582912.0f);
    turns -= 12582912.0f;
    vec r = x - turns * 0.693145752f; /* ln 2 in two parts, the first short enough that its product is exact */
    r -= turns * 1.42860677e-6f;
    vec p = all(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (vec)((whole + 127) << 23);
}

#endif

/* Which bytes have arrived, against a table with one entry per byte. */
#include "core/util/sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gb_test.h"

enum { TOTAL = 97, ROUNDS = 4000 };

static unsigned random_below(unsigned *state, unsigned n) {
    *state = *state * 1103515245u + 12345u;
    return (*state >> 8) % n;
}

/* Each byte's entry: the number of the piece that brought it, 0: none. */
struct model {
    unsigned owner[TOTAL];
    unsigned last;
};

static bool model_free(const struct model *m, unsigned at, unsigned n) {
    unsigned i;

    for (i = at; i < at + n; i++) {
        if (m->owner[i])
            return false;
    }
    return true;
}

static bool model_full(const struct model *m, unsigned at, unsigned n) {
    unsigned i;

    for (i = at; i < at + n; i++) {
        if (!m->owner[i])
            return false;
    }
    return true;
}

static bool model_cuts(const struct model *m, unsigned at, unsigned n) {
    bool first = at > 0 && m->owner[at] && m->owner[at] == m->owner[at - 1];
    bool last = at + n < TOTAL && m->owner[at + n] && m->owner[at + n] == m->owner[at + n - 1];

    return first || last;
}

static void compare(const struct gb_ranges *r, const struct model *m, const char *data) {
    struct gb_gap gaps[TOTAL];
    unsigned count = 0;
    unsigned prefix = 0;
    unsigned gap = 0;
    unsigned i;

    for (i = 0; i < TOTAL; i++) {
        count += m->owner[i] != 0;
        prefix += prefix == i && m->owner[i];
    }
    ck_assert_uint_eq(r->bytes, count);
    ck_assert_uint_eq(gb_ranges_prefix(r), prefix);
    count = (unsigned)gb_ranges_missing(r, TOTAL, gaps, TOTAL);
    for (i = 0; i < TOTAL; i++) {
        bool inside = gap < count && i >= gaps[gap].offset;

        ck_assert_int_eq(inside, m->owner[i] == 0);
        gap += inside && i + 1 == gaps[gap].offset + gaps[gap].bytes;
    }
    ck_assert_uint_eq(gap, count);
    if (count > 1)
        ck_assert_uint_eq(gb_ranges_missing(r, TOTAL, gaps, 1), count);
    if (count == 0)
        ck_assert_uint_eq(gb_ranges_crc(r), gb_crc32c(0, data, TOTAL));
}

static void add(struct gb_ranges *r, struct model *m, unsigned at, unsigned n, bool join, const char *data) {
    unsigned owner = ++m->last;
    unsigned i;

    ck_assert_int_eq(gb_ranges_reserve(r, r->count + 1), 0);
    gb_ranges_add(r, at, n, gb_crc32c(0, data + at, n), join);
    if (join && at > 0 && n > 0 && m->owner[at - 1])
        owner = m->owner[at - 1];
    for (i = at; i < at + n; i++)
        m->owner[i] = owner;
}

START_TEST(any_order_of_pieces) {
    struct gb_ranges r = {0};
    struct model m = {.last = 0};
    char data[TOTAL];
    unsigned state = 77 + (unsigned)_i;
    unsigned i;

    for (i = 0; i < TOTAL; i++)
        data[i] = (char)random_below(&state, 256);
    for (i = 0; i < ROUNDS / gb_test_stride(); i++) {
        unsigned at = random_below(&state, TOTAL);
        unsigned n = 1 + random_below(&state, TOTAL - at < 20 ? TOTAL - at : 20);

        if (n > TOTAL - at)
            n = TOTAL - at;
        if (model_free(&m, at, n)) {
            ck_assert(!gb_ranges_meet(&r, at, n));
            add(&r, &m, at, n, random_below(&state, 2), data);
        } else if (random_below(&state, 3) == 0) {
            bool cuts = model_cuts(&m, at, n);
            uint32_t crc;

            ck_assert(gb_ranges_meet(&r, at, n));
            ck_assert_int_eq(gb_ranges_cover(&r, at, n, &crc), !cuts && model_full(&m, at, n));
            if (!cuts && model_full(&m, at, n))
                ck_assert_uint_eq(crc, gb_crc32c(0, data + at, n));
            ck_assert_int_eq(gb_ranges_take(&r, at, n), !cuts);
            if (!cuts)
                memset(m.owner + at, 0, n * sizeof(m.owner[0]));
        }
        compare(&r, &m, data);
    }
    /* The holes that are left, from the last to the first. */
    for (i = TOTAL; i-- > 0;) {
        if (!m.owner[i])
            add(&r, &m, i, 1, false, data);
    }
    compare(&r, &m, data);
    ck_assert(gb_ranges_take(&r, 0, TOTAL));
    ck_assert_uint_eq(r.count + r.bytes, 0);
    gb_ranges_done(&r);
}
END_TEST

START_TEST(nothing_of_nothing) {
    struct gb_ranges r = {0};
    struct gb_gap gap;

    ck_assert_uint_eq(gb_ranges_missing(&r, 0, &gap, 1), 0);
    ck_assert_uint_eq(gb_ranges_missing(&r, 5, &gap, 1), 1);
    ck_assert_uint_eq(gap.bytes, 5);
    ck_assert_uint_eq(gb_ranges_missing(&r, 5, NULL, 0), 1);
    gb_ranges_add(&r, 0, 0, 0, true);
    ck_assert_uint_eq(r.count, 0);
    ck_assert(gb_ranges_take(&r, 0, 5));
    ck_assert_uint_eq(gb_ranges_crc(&r), 0);
    gb_ranges_done(&r);
}
END_TEST

START_TEST(checksums_join) {
    static char data[70000];
    unsigned state = 5;
    unsigned cut;
    size_t i;

    for (i = 0; i < sizeof(data); i++)
        data[i] = (char)random_below(&state, 256);
    for (cut = 0; cut <= sizeof(data); cut += cut < 70 ? 1 : 9973) {
        uint32_t a = gb_crc32c(0, data, cut);
        uint32_t b = gb_crc32c(0, data + cut, sizeof(data) - cut);

        ck_assert_uint_eq(gb_crc32c_join(a, b, sizeof(data) - cut), gb_crc32c(0, data, sizeof(data)));
    }
    ck_assert_uint_eq(gb_crc32c_join(gb_crc32c(0, "12345", 5), gb_crc32c(0, "6789", 4), 4), 0xe3069283);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: ranges");

    gb_test_add_loop(suite, "any order", any_order_of_pieces, 60, 8);
    gb_test_add(suite, "nothing", nothing_of_nothing, 10);
    gb_test_add(suite, "checksums join", checksums_join, 30);
    return gb_test_run(suite);
}

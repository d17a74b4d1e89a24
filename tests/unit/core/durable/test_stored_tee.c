/* Pieces of an upload on their way to a file. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/durable/stored.h"
#include "core_fixture.h"
#include "gb_test.h"

#define MIB (1024u * 1024u)
#define PIECES_MAX 24

static struct core_fixture f;
static unsigned char *data;

static struct pieces {
    struct gb_tee_piece piece[PIECES_MAX];
    pthread_mutex_t lock;
    pthread_cond_t ended;
    size_t done;
    size_t failed;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void done(struct gb_tee_piece *piece, const struct gb_error *error) {
    (void)piece;
    pthread_mutex_lock(&all.lock);
    all.done++;
    all.failed += error != NULL;
    pthread_cond_signal(&all.ended);
    pthread_mutex_unlock(&all.lock);
}

/* Gives all bytes in pieces of these lengths, over and over, and waits for their ends. Returns how many there were. */
static size_t give(struct gb_tee *tee, uint64_t bytes, const size_t *lengths, size_t count) {
    uint64_t at = 0;
    size_t i;

    all.done = all.failed = 0;
    for (i = 0; at < bytes; i++) {
        size_t n = lengths[i % count];

        ck_assert_uint_lt(i, PIECES_MAX);
        if (n > bytes - at)
            n = (size_t)(bytes - at);
        all.piece[i] = (struct gb_tee_piece){.ptr = data + at, .n = n, .at = at, .done = done};
        gb_tee_write(tee, &all.piece[i]);
        at += n;
    }
    pthread_mutex_lock(&all.lock);
    while (all.done < i)
        pthread_cond_wait(&all.ended, &all.lock);
    pthread_mutex_unlock(&all.lock);
    return i;
}

static void begin(const char *rules) {
    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.disk_faults = rules;
    core_fixture_open(&f);
    data = aligned_alloc(4096, 16 * MIB);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < 16 * MIB; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 12) * 3 + (i >> 20));
}

static void end(void) {
    free(data);
    core_fixture_done(&f);
}

static const struct {
    uint64_t bytes;
    size_t lengths[3];
} ways[] = {
    {16 * MIB, {MIB, MIB, MIB}},         {13 * MIB + 5, {4 * MIB, MIB, 2 * MIB}},
    {9 * MIB + 5, {MIB, 2 * MIB, 4096}}, /* whole blocks, and one that is none: all behind it are in turn */
    {3 * MIB + 5, {1000, MIB, 300000}},  {100, {100, 100, 100}},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

START_TEST(all_bytes_are_in_the_file) {
    uint64_t n = ways[_i].bytes;
    struct gb_buffer_rec buffer = {.id = 77,
                                   .bytes = n,
                                   .shape = {.dims = 1, .dim = {n}},
                                   .dtype = GB_DTYPE_UINT8,
                                   .kind = GB_KIND_DEVICE,
                                   .name = {"b"}};
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    struct gb_disk_name name = {.buffer_id = 77, .generation = 3, .run = 1};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_disk_writer *file;
    struct gb_tee *tee;
    uint32_t blocks[17];
    uint32_t crc;
    size_t i;

    begin(NULL);
    tee = gb_tee_new(f.core, 77, n);
    ck_assert_ptr_nonnull(tee);
    give(tee, n, ways[_i].lengths, 3);
    ck_assert_uint_eq(all.failed, 0);
    file = gb_tee_take(tee);
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_null(gb_tee_take(tee));
    gb_tee_free(tee);
    gb_disk_name_as(file, &name);
    gb_assert_ok(gb_disk_complete(file, &meta, &crc, blocks, &err), err);
    ck_assert_uint_eq(crc, gb_crc32c(0, data, n));
    for (i = 0; i < gb_stored_block_count(n); i++)
        ck_assert_uint_eq(blocks[i], gb_crc32c(0, data + i * MIB, n - i * MIB < MIB ? n - i * MIB : MIB));
    end();
}
END_TEST

START_TEST(bytes_that_are_missing_are_no_file) {
    static const size_t lengths[] = {MIB};
    struct gb_tee *tee;

    begin(NULL);
    tee = gb_tee_new(f.core, 77, 5 * MIB);
    give(tee, 4 * MIB, lengths, 1);
    ck_assert_uint_eq(all.failed, 0);
    ck_assert_ptr_null(gb_tee_take(tee));
    gb_tee_free(tee);
    tee = gb_tee_new(f.core, 78, 5 * MIB);
    gb_tee_free(tee); /* nothing was written */
    gb_tee_free(NULL);
    end();
}
END_TEST

START_TEST(one_failure_is_that_of_all_behind_it) {
    static const size_t lengths[] = {MIB};
    struct gb_tee *tee;
    size_t count;

    begin(_i == 0 ? "write@4+=EIO" : "create=EIO");
    tee = gb_tee_new(f.core, 77, 16 * MIB);
    count = give(tee, 16 * MIB, lengths, 1);
    ck_assert_uint_ge(all.failed, _i == 0 ? 1 : count);
    ck_assert_ptr_null(gb_tee_take(tee));
    gb_tee_free(tee);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core tee");

    gb_test_add_loop(suite, "bytes", all_bytes_are_in_the_file, 60, (int)WAYS);
    gb_test_add(suite, "missing", bytes_that_are_missing_are_no_file, 30);
    gb_test_add_loop(suite, "failure", one_failure_is_that_of_all_behind_it, 30, 2);
    return gb_test_run(suite);
}

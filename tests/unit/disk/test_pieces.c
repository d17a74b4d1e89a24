/* Pieces of a file that several threads write side by side. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "disk_fixture.h"
#include "gb_test.h"

#define MIB (1024u * 1024u)
#define THREADS 4

static struct disk_fixture f;
static struct gb_error err;

/* What the threads take in turns: pieces in an order that is not theirs. */
static struct job {
    pthread_mutex_t lock;
    struct gb_disk_writer *writer;
    const unsigned char *data;
    uint64_t bytes;
    size_t piece;
    size_t count;
    size_t next;
    int failed;
    enum gb_code code;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *write_some(void *arg) {
    (void)arg;
    for (;;) {
        struct gb_error why = GB_ERROR_INIT;
        size_t i;
        uint64_t at;
        size_t n;
        int r;

        pthread_mutex_lock(&job.lock);
        i = job.next++;
        pthread_mutex_unlock(&job.lock);
        if (i >= job.count)
            return NULL;
        at = (i * 5 + 3) % job.count * job.piece; /* each once, as 5 divides no count of the tests */
        n = job.bytes - at < job.piece ? (size_t)(job.bytes - at) : job.piece;
        r = gb_disk_write_piece(job.writer, job.data + at, n, at, &why);
        pthread_mutex_lock(&job.lock);
        job.failed += r < 0;
        if (r < 0)
            job.code = why.code;
        pthread_mutex_unlock(&job.lock);
    }
}

static void write_all(struct gb_disk_writer *w, const unsigned char *data, uint64_t bytes, size_t piece) {
    pthread_t threads[THREADS];
    int i;

    job.writer = w;
    job.data = data;
    job.bytes = bytes;
    job.piece = piece;
    job.count = (size_t)((bytes + piece - 1) / piece);
    job.next = 0;
    job.failed = 0;
    ck_assert_uint_ne(job.count % 5, 0);
    for (i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_some, NULL), 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void begin(const char *rules, const struct gb_disk_name *name, uint64_t bytes, struct gb_disk_writer **ret) {
    err = GB_ERROR_INIT;
    disk_fixture_init(&f, "/tmp", rules);
    gb_assert_ok(gb_disk_create(f.disk, name, bytes, ret, &err), err);
}

static const struct {
    uint64_t bytes;
    size_t piece;
    const char *rules;
} files[] = {
    {1, MIB, NULL},
    {MIB + 1, MIB, NULL},
    {11 * MIB + 3, MIB, NULL},
    {16 * MIB, 2 * MIB, NULL},
    {13 * MIB + 4096, 4 * MIB, NULL},
    {11 * MIB + 3, MIB, "direct=EINVAL,fallocate=EOPNOTSUPP"},
    {11 * MIB + 3, MIB, "write@4=EINVAL"},
    {11 * MIB + 3, MIB, "write=short/4096"},
};
#define FILES (sizeof(files) / sizeof(files[0]))

START_TEST(any_order_gives_the_same_file) {
    uint64_t n = files[_i].bytes;
    struct gb_disk_name name = disk_name(298);
    struct gb_buffer_rec buffer = disk_buffer(n);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    unsigned char *data = disk_bytes(n);
    uint32_t blocks[32];
    struct gb_disk_writer *w;
    uint32_t crc;
    size_t i;

    begin(files[_i].rules, &name, n, &w);
    write_all(w, data, n, files[_i].piece);
    ck_assert_int_eq(job.failed, 0);
    gb_assert_ok(gb_disk_complete(w, &meta, &crc, blocks, &err), err);
    ck_assert_uint_eq(crc, gb_crc32c(0, data, n));
    for (i = 0; i < gb_stored_block_count(n); i++)
        ck_assert_uint_eq(blocks[i], gb_crc32c(0, data + i * MIB, n - i * MIB < MIB ? n - i * MIB : MIB));
    ck_assert_uint_eq(f.disk->promised, 0);
    disk_assert_bytes(&f, &name, n);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(one_that_fails_spoils_the_file) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *data = disk_bytes(11 * MIB);
    struct gb_buffer_rec buffer = disk_buffer(11 * MIB);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    uint32_t blocks[12];
    struct gb_disk_writer *w;
    uint32_t crc;

    begin("write@6=ENOSPC", &name, 11 * MIB, &w);
    write_all(w, data, 11 * MIB, MIB);
    ck_assert_int_eq(job.failed, 1);
    ck_assert_int_eq(job.code, GB_ERR_STORAGE_FULL);
    if (_i == 0)
        gb_assert_fails(gb_disk_complete(w, &meta, &crc, blocks, &err), err, GB_ERR_INTERNAL);
    gb_disk_discard(w);
    ck_assert_uint_eq(disk_entries(&f), 1); /* the folder */
    ck_assert_uint_eq(f.disk->promised, 0);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(others_follow_in_their_order) {
    uint64_t n = 3 * MIB + 77;
    struct gb_disk_name name = disk_name(298);
    struct gb_buffer_rec buffer = disk_buffer(n);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    unsigned char *data = disk_bytes(n);
    uint32_t blocks[4];
    struct gb_disk_writer *w;
    uint32_t crc;

    begin(NULL, &name, n, &w);
    gb_assert_ok(gb_disk_write_piece(w, data + MIB, MIB, MIB, &err), err);
    gb_assert_ok(gb_disk_write_piece(w, data, MIB, 0, &err), err);
    gb_assert_ok(gb_disk_write(w, data + 2 * MIB, 1000, &err), err);
    gb_assert_ok(gb_disk_write(w, data + 2 * MIB + 1000, MIB - 923, &err), err);
    gb_assert_ok(gb_disk_complete(w, &meta, &crc, blocks, &err), err);
    ck_assert_uint_eq(crc, gb_crc32c(0, data, n));
    disk_assert_bytes(&f, &name, n);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(what_is_a_piece) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *data = disk_bytes(4 * MIB);
    struct gb_disk_writer *w;

    begin(NULL, &name, 3 * MIB + 77, &w);
    ck_assert(gb_disk_is_piece(w, data, MIB, 0));
    ck_assert(gb_disk_is_piece(w, data, 2 * MIB, MIB));
    ck_assert(gb_disk_is_piece(w, data, 77, 3 * MIB));
    ck_assert(gb_disk_is_piece(w, data, MIB + 77, 2 * MIB));
    ck_assert(!gb_disk_is_piece(w, data + 512, MIB, 0));
    ck_assert(!gb_disk_is_piece(w, data, MIB, 4096));
    ck_assert(!gb_disk_is_piece(w, data, 4096, 0));
    gb_assert_fails(gb_disk_write_piece(w, data, 4096, 0, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_write_piece(w, data, MIB, 3 * MIB, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_write_piece(w, data, MIB, UINT64_MAX / MIB * MIB, &err), err, GB_ERR_INTERNAL);
    gb_disk_discard(w);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk pieces");

    gb_test_add_loop(suite, "order", any_order_gives_the_same_file, 60, (int)FILES);
    gb_test_add_loop(suite, "failure", one_that_fails_spoils_the_file, 30, 2);
    gb_test_add(suite, "behind", others_follow_in_their_order, 30);
    gb_test_add(suite, "piece", what_is_a_piece, 30);
    return gb_test_run(suite);
}

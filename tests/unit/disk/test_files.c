/* Files are written and read, and what is damaged is found. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "disk_fixture.h"
#include "gb_test.h"

#define MIB (1024u * 1024u)
#define DAMAGED_BYTES 100000u

static struct disk_fixture f;
static struct gb_error err;

static void begin_in(const char *folder, const char *rules) {
    err = GB_ERROR_INIT;
    disk_fixture_init(&f, folder, rules);
}

static void begin(void) {
    begin_in("/tmp", NULL);
}

/* --- sizes and pieces --------------------------------------------------------------------------------------------- */

static const uint64_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, MIB - 1, MIB, 8 * MIB + 3};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Lengths of pieces, over and over; the memory that they are in begins `shift` bytes behind an aligned address. */
static const struct {
    size_t shift;
    size_t pieces[4];
} ways[] = {
    {0, {8 * MIB + 3, 8 * MIB + 3, 8 * MIB + 3, 8 * MIB + 3}},
    {0, {4096, 8192, MIB, 4096}},
    {0, {4096, 100, 1, 3 * MIB}},
    {1, {MIB, 777, 65536, 3 * MIB + 5}},
    {512, {4096, MIB - 1, 2 * MIB, 4097}},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void write_in_pieces(struct gb_disk_writer *w, const unsigned char *data, uint64_t n, int way) {
    uint64_t at = 0;
    int i;

    for (i = 0; at < n; i++) {
        size_t piece = ways[way].pieces[i % 4];

        if (piece > n - at)
            piece = n - at;
        gb_assert_ok(gb_disk_write(w, data + at, piece, &err), err);
        at += piece;
    }
}

static void assert_blocks(const unsigned char *data, uint64_t n, const uint32_t *blocks) {
    size_t i;

    for (i = 0; i < gb_stored_block_count(n); i++) {
        uint64_t left = n - (uint64_t)i * MIB;

        ck_assert_uint_eq(blocks[i], gb_crc32c(0, data + i * MIB, left < MIB ? left : MIB));
    }
    ck_assert_uint_eq(blocks[i], 0xdeadbeef); /* and nothing behind them */
}

static void read_in_pieces(const struct gb_disk_name *name, const unsigned char *data, uint64_t n, int way) {
    unsigned char *got = disk_bytes(n + 4096);
    struct gb_disk_reader *r;
    uint64_t at = 0;
    int i;

    memset(got, 0xee, n + 4096);
    gb_assert_ok(gb_disk_read_open(f.disk, name, n, &r, &err), err);
    for (i = 0; at < n; i++) {
        size_t piece = ways[way].pieces[i % 4];

        if (piece > n - at)
            piece = n - at;
        gb_assert_ok(gb_disk_read(r, got + ways[way].shift + at, piece, at, &err), err);
        at += piece;
    }
    ck_assert(memcmp(got + ways[way].shift, data, n) == 0);
    ck_assert_uint_eq(got[ways[way].shift + n], 0xee); /* nothing is written behind what was asked for */
    gb_assert_ok(gb_disk_read(r, got, 0, n, &err), err);
    gb_assert_fails(gb_disk_read(r, got, 1, n, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_read(r, got, n + 1, 0, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_read(r, got, 1, UINT64_MAX, &err), err, GB_ERR_INTERNAL);
    gb_disk_read_close(r);
    free(got);
}

/* Writes and reads a file of that size in that way. */
static void round_trip(uint64_t n, int way) {
    unsigned char *data = disk_bytes(n);
    unsigned char *moved = disk_bytes(n + 4096);
    struct gb_buffer_rec buffer = disk_buffer(n);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    uint32_t blocks[10] = {0};
    struct stat st;
    char path[DISK_PATH_SIZE];
    uint32_t crc;

    memmove(moved + ways[way].shift, data, n);
    blocks[gb_stored_block_count(n)] = 0xdeadbeef;
    gb_assert_ok(gb_disk_create(f.disk, &name, n, &w, &err), err);
    write_in_pieces(w, moved + ways[way].shift, n, way);
    gb_assert_ok(gb_disk_complete(w, &meta, &crc, blocks, &err), err);
    ck_assert_uint_eq(crc, gb_crc32c(0, data, n));
    assert_blocks(data, n, blocks);
    ck_assert_int_eq(stat(disk_path(&f, &name, path), &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, 4096 + n);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_uint_eq(f.disk->promised, 0);
    read_in_pieces(&name, data, n, way);
    free(moved);
    free(data);
}

START_TEST(sizes_and_pieces) {
    struct gb_disk_stat stat;

    begin();
    round_trip(sizes[_i % (int)SIZES], _i / (int)SIZES);
    stat = disk_stat(&f);
    ck_assert_uint_eq(stat.writes, 1);
    ck_assert_uint_eq(stat.written_bytes, sizes[_i % (int)SIZES]);
    ck_assert_uint_eq(stat.reads, 1);
    ck_assert_uint_eq(stat.read_bytes, sizes[_i % (int)SIZES]);
    ck_assert_uint_eq(gb_histogram_count(&stat.write), 1);
    ck_assert_uint_eq(gb_histogram_count(&stat.sync), 1);
    ck_assert_uint_eq(gb_histogram_count(&stat.opening), 1);
    ck_assert_uint_eq(stat.failures, 0);
    disk_fixture_done(&f);
}
END_TEST

/* The ways around O_DIRECT, fallocate and whole writes. */
START_TEST(what_the_file_system_lacks_is_done_without) {
    static const char *const rules[] = {
        "direct=EINVAL",    "fallocate=EOPNOTSUPP", "write@1=EINVAL",  "read@2=EINVAL", "write=short/4096",
        "write=short/1000", "read=short/512",       "read=short/1000", "write=delay/0",
    };
    int way;

    for (way = 0; way < (int)WAYS; way++) {
        begin_in("/tmp", rules[_i]);
        round_trip(300000, way);
        ck_assert_uint_eq(disk_stat(&f).failures, 0);
        ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
        disk_fixture_done(&f);
    }
}
END_TEST

START_TEST(tmpfs_serves_as_well) {
    if (access("/dev/shm", W_OK) != 0)
        return;
    begin_in("/dev/shm", _i == 0 ? NULL : "direct=EINVAL,fallocate=EOPNOTSUPP");
    round_trip(8 * MIB + 3, 3);
    disk_fixture_done(&f);
}
END_TEST

/* Whole pages stay whole pages behind a piece that is none, so that O_DIRECT is kept. The end of the file is read by
 * itself. */
START_TEST(calls_are_as_few_as_can_be) {
    uint64_t n = 4096 + 100 + MIB;
    unsigned char *data = disk_bytes(2 * MIB);
    struct gb_buffer_rec buffer = disk_buffer(n);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    struct gb_disk_reader *r;
    uint32_t blocks[2];
    uint32_t crc;

    begin_in("/tmp", "load=delay/0");
    gb_assert_ok(gb_disk_create(f.disk, &name, n, &w, &err), err);
    gb_assert_ok(gb_disk_write(w, data, 4096, &err), err);
    gb_assert_ok(gb_disk_write(w, data, 100, &err), err);
    gb_assert_ok(gb_disk_write(w, data, MIB, &err), err);
    gb_assert_ok(gb_disk_complete(w, &meta, &crc, blocks, &err), err);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_write), 4); /* a page, a full bounce buffer, the tail, the header */
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_sync), 1);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_read), 1); /* the marker */
    gb_assert_ok(gb_disk_read_open(f.disk, &name, n, &r, &err), err);
    gb_assert_ok(gb_disk_read(r, data, n, 0, &err), err);
    gb_assert_ok(gb_disk_read(r, data, n, 0, &err), err);
    ck_assert_uint_eq(disk_calls(&f, GB_DISK_OP_read), 2 + 2 * 2);
    gb_disk_read_close(r);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

/* --- the life of a file ------------------------------------------------------------------------------------------- */

START_TEST(a_discarded_file_leaves_nothing) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *data = disk_bytes(3 * MIB);
    struct gb_disk_writer *w;

    begin();
    gb_assert_ok(gb_disk_create(f.disk, &name, 3 * MIB, &w, &err), err);
    ck_assert_uint_eq(disk_entries(&f), 2); /* the folder 2a, and the file */
    gb_assert_ok(gb_disk_write(w, data, 2 * MIB + 5, &err), err);
    gb_disk_discard(w);
    ck_assert_uint_eq(disk_entries(&f), 1);
    ck_assert_uint_eq(f.disk->promised, 0);
    ck_assert_uint_eq(disk_stat(&f).failures, 0);
    gb_disk_discard(NULL);
    gb_disk_read_close(NULL);
    gb_disk_close(NULL);
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_file_that_exists_stays_as_it_is) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;

    begin();
    gb_assert_ok(disk_write(&f, &name, 5000, &err), err);
    ck_assert_int_eq(gb_disk_create(f.disk, &name, 5000, &w, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FAILED);
    ck_assert_str_eq(err.native_name, "EEXIST");
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_assert_bytes(&f, &name, 5000);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(no_more_and_no_fewer_bytes_than_were_said) {
    struct gb_buffer_rec buffer = disk_buffer(10);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_writer *w;
    uint32_t block;
    uint32_t crc;

    begin();
    gb_assert_ok(gb_disk_create(f.disk, &name, 10, &w, &err), err);
    gb_assert_ok(gb_disk_write(w, "123456789", 9, &err), err);
    gb_assert_fails(gb_disk_write(w, "12", 2, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_complete(w, &meta, &crc, &block, &err), err, GB_ERR_INTERNAL);
    gb_assert_fails(gb_disk_write(w, "1", 1, &err), err, GB_ERR_INTERNAL);
    ck_assert_uint_eq(disk_entries(&f), 1);
    gb_disk_discard(w);
    disk_fixture_done(&f);
}
END_TEST

/* The bytes come before the name; files of an earlier process do not stand in the way. */
START_TEST(a_file_gets_its_name_when_it_is_complete) {
    struct gb_disk_name left = {.buffer_id = 298, .generation = 0, .run = 1};
    struct gb_buffer_rec buffer = disk_buffer(5000);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    struct gb_disk_name name = disk_name(298);
    unsigned char *data = disk_bytes(5000);
    struct gb_disk_writer *w;
    uint32_t block;
    uint32_t crc;

    begin();
    gb_assert_ok(disk_write(&f, &left, 10, &err), err);
    gb_assert_ok(gb_disk_create_unnamed(f.disk, 298, 5000, &w, &err), err);
    gb_assert_ok(gb_disk_write(w, data, 5000, &err), err);
    ck_assert_uint_eq(disk_entries(&f), 3);
    disk_assert_unreadable(&f, &name, 5000, GB_ERR_CONTENT_LOST);
    gb_disk_name_as(w, &name);
    gb_assert_ok(gb_disk_complete(w, &meta, &crc, &block, &err), err);
    ck_assert_uint_eq(disk_entries(&f), 3);
    disk_assert_bytes(&f, &name, 5000);
    gb_assert_ok(gb_disk_create_unnamed(f.disk, 298, 5000, &w, &err), err);
    gb_disk_discard(w);
    ck_assert_uint_eq(disk_entries(&f), 3);
    free(data);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_removed_file_is_lost) {
    struct gb_disk_name name = disk_name(298);

    begin();
    disk_assert_unreadable(&f, &name, 10, GB_ERR_CONTENT_LOST); /* and there is no folder yet */
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    gb_disk_remove(f.disk, &name);
    gb_disk_remove(f.disk, &name);
    disk_assert_unreadable(&f, &name, 10, GB_ERR_CONTENT_LOST);
    ck_assert_uint_eq(disk_entries(&f), 1);
    ck_assert_uint_eq(disk_stat(&f).failures, 0);
    ck_assert_uint_eq(disk_stat(&f).damaged, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(a_folder_that_was_removed_is_made_again) {
    struct gb_disk_name name = disk_name(298);
    char path[128];

    begin();
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    gb_disk_remove(f.disk, &name);
    snprintf(path, sizeof(path), "%s/2a", f.dir);
    ck_assert_int_eq(rmdir(path), 0);
    gb_assert_ok(disk_write(&f, &name, 10, &err), err);
    disk_assert_bytes(&f, &name, 10);
    disk_fixture_done(&f);
}
END_TEST

#define THREADS 4
#define FILES_EACH 16

static void *write_files(void *arg) {
    int64_t first = *(const int64_t *)arg;
    struct gb_error error = GB_ERROR_INIT;
    int64_t i;

    for (i = first; i < first + FILES_EACH; i++) {
        struct gb_disk_name name = disk_name(i * 128); /* two folders in all */

        if (disk_write(&f, &name, 70000, &error) < 0)
            return arg;
        disk_stat(&f);
    }
    return NULL;
}

START_TEST(many_write_at_one_time) {
    int64_t first[THREADS];
    pthread_t threads[THREADS];
    void *failed;
    int i;

    begin();
    for (i = 0; i < THREADS; i++) {
        first[i] = 1 + i * FILES_EACH;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_files, &first[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(disk_stat(&f).writes, THREADS * FILES_EACH);
    ck_assert_uint_eq(f.disk->promised, 0);
    for (i = 1; i <= THREADS * FILES_EACH; i++) {
        struct gb_disk_name name = disk_name(i * 128);

        disk_assert_bytes(&f, &name, 70000);
    }
    disk_fixture_done(&f);
}
END_TEST

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void flip(const char *path, off_t at) {
    int fd = open(path, O_RDWR);
    unsigned char byte;

    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void cut_short(const char *path) {
    ck_assert_int_eq(truncate(path, 4096 + DAMAGED_BYTES - 1), 0);
}

static void make_longer(const char *path) {
    ck_assert_int_eq(truncate(path, 4096 + DAMAGED_BYTES + 1), 0);
}

static void empty(const char *path) {
    ck_assert_int_eq(truncate(path, 0), 0);
}

static void flip_a_letter(const char *path) {
    flip(path, 100);
}

static void flip_a_space(const char *path) {
    flip(path, 4095);
}

static void flip_the_length(const char *path) {
    flip(path, 1);
}

static void write_zeros(const char *path) {
    static const char zeros[4096];
    int fd = open(path, O_RDWR);

    ck_assert_int_eq(pwrite(fd, zeros, sizeof(zeros), 0), sizeof(zeros));
    close(fd);
}

static void replace_by_link(const char *path) {
    char to[DISK_PATH_SIZE + 8];

    snprintf(to, sizeof(to), "%s.moved", path);
    ck_assert_int_eq(rename(path, to), 0);
    ck_assert_int_eq(symlink(to, path), 0);
}

static void replace_by_folder(const char *path) {
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void replace_by_pipe(const char *path) {
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

static void (*const damages[])(const char *path) = {
    cut_short,       make_longer, empty,           flip_a_letter,     flip_a_space,
    flip_the_length, write_zeros, replace_by_link, replace_by_folder, replace_by_pipe,
};

START_TEST(damage_is_found_and_others_are_untouched) {
    struct gb_disk_name name = disk_name(298);
    struct gb_disk_name other = disk_name(299);
    char path[DISK_PATH_SIZE];

    begin();
    gb_assert_ok(disk_write(&f, &name, DAMAGED_BYTES, &err), err);
    gb_assert_ok(disk_write(&f, &other, DAMAGED_BYTES, &err), err);
    damages[_i](disk_path(&f, &name, path));
    disk_assert_unreadable(&f, &name, DAMAGED_BYTES, GB_ERR_CONTENT_DAMAGED);
    ck_assert_uint_eq(disk_stat(&f).damaged, 0);
    ck_assert_int_eq(disk_stat(&f).state, GB_DISK_READY);
    disk_assert_bytes(&f, &other, DAMAGED_BYTES);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(swapped_files_are_found) {
    struct gb_disk_name names[2] = {disk_name(298), disk_name(298)};
    char a[DISK_PATH_SIZE];
    char b[DISK_PATH_SIZE];
    char c[64];

    begin();
    names[_i > 0].run += _i == 1;
    names[1].generation += _i == 0;
    names[1].buffer_id += _i == 2;
    gb_assert_ok(disk_write(&f, &names[0], DAMAGED_BYTES, &err), err);
    gb_assert_ok(disk_write(&f, &names[1], DAMAGED_BYTES, &err), err);
    snprintf(c, sizeof(c), "%.50s/c", f.top);
    ck_assert_int_eq(rename(disk_path(&f, &names[0], a), c), 0);
    ck_assert_int_eq(rename(disk_path(&f, &names[1], b), a), 0);
    ck_assert_int_eq(rename(c, b), 0);
    disk_assert_unreadable(&f, &names[0], DAMAGED_BYTES, GB_ERR_CONTENT_DAMAGED);
    disk_assert_unreadable(&f, &names[1], DAMAGED_BYTES, GB_ERR_CONTENT_DAMAGED);
    ck_assert_uint_eq(disk_stat(&f).damaged, 0);
    disk_fixture_done(&f);
}
END_TEST

START_TEST(other_bytes_than_expected_are_damage) {
    struct gb_disk_name name = disk_name(298);

    begin();
    gb_assert_ok(disk_write(&f, &name, DAMAGED_BYTES, &err), err);
    disk_assert_unreadable(&f, &name, DAMAGED_BYTES + 1, GB_ERR_CONTENT_DAMAGED);
    disk_fixture_done(&f);
}
END_TEST

/* The file is cut while it is read. */
START_TEST(an_early_end_is_damage) {
    struct gb_disk_name name = disk_name(298);
    unsigned char *got = disk_bytes(DAMAGED_BYTES);
    struct gb_disk_reader *r;
    char path[DISK_PATH_SIZE];

    begin();
    gb_assert_ok(disk_write(&f, &name, DAMAGED_BYTES, &err), err);
    gb_assert_ok(gb_disk_read_open(f.disk, &name, DAMAGED_BYTES, &r, &err), err);
    cut_short(disk_path(&f, &name, path));
    gb_assert_ok(gb_disk_read(r, got, 4096, 0, &err), err);
    gb_assert_fails(gb_disk_read(r, got + _i, DAMAGED_BYTES, 0, &err), err, GB_ERR_CONTENT_DAMAGED);
    ck_assert_uint_eq(disk_stat(&f).damaged, 0);
    gb_disk_read_close(r);
    free(got);
    disk_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk files");

    gb_test_add_loop(suite, "sizes", sizes_and_pieces, 60, (int)(SIZES * WAYS));
    gb_test_add_loop(suite, "without", what_the_file_system_lacks_is_done_without, 60, 9);
    gb_test_add_loop(suite, "tmpfs", tmpfs_serves_as_well, 60, 2);
    gb_test_add(suite, "few", calls_are_as_few_as_can_be, 30);
    gb_test_add(suite, "discard", a_discarded_file_leaves_nothing, 30);
    gb_test_add(suite, "exists", a_file_that_exists_stays_as_it_is, 30);
    gb_test_add(suite, "length", no_more_and_no_fewer_bytes_than_were_said, 30);
    gb_test_add(suite, "named when complete", a_file_gets_its_name_when_it_is_complete, 30);
    gb_test_add(suite, "removed", a_removed_file_is_lost, 30);
    gb_test_add(suite, "folder", a_folder_that_was_removed_is_made_again, 30);
    gb_test_add(suite, "threads", many_write_at_one_time, 60);
    gb_test_add_loop(suite, "damage", damage_is_found_and_others_are_untouched, 30,
                     (int)(sizeof(damages) / sizeof(damages[0])));
    gb_test_add_loop(suite, "swapped", swapped_files_are_found, 30, 3);
    gb_test_add(suite, "expected", other_bytes_than_expected_are_damage, 30);
    gb_test_add_loop(suite, "early", an_early_end_is_damage, 30, 2);
    return gb_test_run(suite);
}

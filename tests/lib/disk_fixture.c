#include "disk_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gb_test.h"

void disk_fixture_open(struct disk_fixture *f, const char *rules) {
    struct gb_error err = GB_ERROR_INIT;

    f->config.faults = rules;
    gb_assert_ok(gb_disk_open(&f->config, &f->disk, &err), err);
}

void disk_fixture_init(struct disk_fixture *f, const char *in, const char *rules) {
    memset(f, 0, sizeof(*f));
    snprintf(f->top, sizeof(f->top), "%s/gb_disk_XXXXXX", in);
    ck_assert_ptr_nonnull(mkdtemp(f->top));
    snprintf(f->dir, sizeof(f->dir), "%s/data", f->top);
    f->config = (struct gb_disk_config){.dir = f->dir, .uuid = DISK_UUID};
    disk_fixture_open(f, rules);
}

void disk_fixture_close(struct disk_fixture *f) {
    gb_disk_close(f->disk);
    f->disk = NULL;
}

void disk_fixture_done(struct disk_fixture *f) {
    disk_fixture_close(f);
    gb_test_remove(f->top);
}

static unsigned found;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    found += ftw->level > 1 && strcmp(path + ftw->base, GB_DISK_MARKER) != 0;
    return 0;
}

unsigned disk_entries(const struct disk_fixture *f) {
    found = 0;
    ck_assert_int_eq(nftw(f->top, count_one, 8, FTW_PHYS), 0);
    return found;
}

const char *disk_path(const struct disk_fixture *f, const struct gb_disk_name *name, char ret[DISK_PATH_SIZE]) {
    char text[GB_DISK_NAME_SIZE];

    gb_disk_name_text(name, text);
    snprintf(ret, DISK_PATH_SIZE, "%s/%s", f->dir, text);
    return ret;
}

struct gb_disk_stat disk_stat(const struct disk_fixture *f) {
    struct gb_disk_stat stat;

    gb_disk_stat(f->disk, &stat);
    return stat;
}

uint64_t disk_calls(const struct disk_fixture *f, enum gb_disk_op op) {
    return f->disk->rules.calls[op];
}

struct gb_disk_name disk_name(int64_t id) {
    return (struct gb_disk_name){.buffer_id = id, .generation = 7, .run = 0xbadcafe};
}

struct gb_buffer_rec disk_buffer(uint64_t bytes) {
    return (struct gb_buffer_rec){.id = 1,
                                  .bytes = bytes,
                                  .shape = {.dims = 1, .dim = {bytes}},
                                  .dtype = GB_DTYPE_UINT8,
                                  .kind = GB_KIND_DEVICE,
                                  .name = {"b"}};
}

unsigned char *disk_bytes(uint64_t n) {
    unsigned char *bytes = aligned_alloc(GB_DISK_ALIGN, (n / GB_DISK_ALIGN + 1) * GB_DISK_ALIGN);
    uint64_t i;

    ck_assert_ptr_nonnull(bytes);
    for (i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i + (i >> 8) * 3 + (i >> 12) * 7 + (i >> 20) * 11 + 1);
    return bytes;
}

int disk_write(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    struct gb_buffer_rec buffer = disk_buffer(bytes);
    struct gb_disk_meta meta = {.session = "s", .buffer = &buffer};
    uint32_t *blocks = calloc(gb_stored_block_count(bytes) + 1, sizeof(*blocks));
    unsigned char *data = disk_bytes(bytes);
    struct gb_disk_writer *writer = NULL;
    uint32_t crc = 0;
    int r = gb_disk_create(f->disk, name, bytes, &writer, err);

    if (r == 0) {
        r = gb_disk_write(writer, data, bytes, err);
        if (r == 0)
            r = gb_disk_complete(writer, &meta, &crc, blocks, err);
        if (r < 0)
            gb_disk_discard(writer);
    }
    if (r == 0)
        ck_assert_uint_eq(crc, gb_crc32c(0, data, bytes));
    free(data);
    free(blocks);
    return r;
}

void disk_assert_bytes(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes) {
    struct gb_error err = GB_ERROR_INIT;
    unsigned char *want = disk_bytes(bytes);
    unsigned char *got = disk_bytes(bytes);
    struct gb_disk_reader *reader;

    memset(got, 0xee, bytes);
    gb_assert_ok(gb_disk_read_open(f->disk, name, bytes, &reader, &err), err);
    gb_assert_ok(gb_disk_read(reader, got, bytes, 0, &err), err);
    ck_assert(memcmp(got, want, bytes) == 0);
    gb_disk_read_close(reader);
    free(want);
    free(got);
}

void disk_assert_unreadable(struct disk_fixture *f, const struct gb_disk_name *name, uint64_t bytes,
                            enum gb_code code) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_disk_reader *reader = NULL;

    gb_assert_fails(gb_disk_read_open(f->disk, name, bytes, &reader, &err), err, code);
    ck_assert_ptr_null(reader);
}

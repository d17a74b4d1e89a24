/* Folders of checkpoints: made, brought, looked at, linked out and removed; then each call of the disk fails once, and
 * each allocation. What fails leaves nothing that counts, and the next attempt succeeds. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "disk/checkpoint.h"
#include "disk/offline.h"
#include "disk_fixture.h"
#include "failing_malloc.h"
#include "gb_test.h"

#define BYTES 100000u
#define SMALL 100u

/* --- one checkpoint: a linked file, and a written one ------------------------------------------------------------- */

static struct disk_fixture f;
static struct gb_error err;
static const struct gb_name c1 = {"c1"};
static const struct gb_name c2 = {"c2"};
static const struct gb_name session = {"default"};

/* As disk_bytes gives them. They are made before an allocation fails. */
static unsigned char small_data[SMALL];
static uint32_t sums[2]; /* of the file's bytes, and of these */

static void begin(const char *rules) {
    unsigned char *data = disk_bytes(BYTES);

    err = GB_ERROR_INIT;
    memcpy(small_data, data, SMALL);
    sums[0] = gb_crc32c(0, data, BYTES);
    sums[1] = gb_crc32c(0, data, SMALL);
    free(data);
    disk_fixture_init(&f, "/tmp", rules);
}

/* The entry of such bytes, without size and file_crc32c. Its blocks are static. */
static struct gb_manifest_entry entry_of(const struct gb_disk_name *name, uint64_t bytes) {
    struct gb_manifest_entry entry = {.buffer = {"b"},
                                      .id = name->buffer_id,
                                      .generation = name->generation,
                                      .run = name->run,
                                      .dtype = GB_DTYPE_UINT8,
                                      .shape = {.dims = 1, .dim = {bytes}},
                                      .bytes = bytes,
                                      .kind = GB_KIND_DEVICE};

    entry.blocks = &sums[bytes == SMALL];
    entry.crc32c = *entry.blocks;
    return entry;
}

static int fill(struct gb_disk_folder *folder, struct gb_manifest *m, const struct gb_disk_name *name,
                struct gb_error *error) {
    struct gb_buffer_rec small = disk_buffer(SMALL);
    const struct gb_disk_meta meta = {"default", &small};

    m->entries[0] = entry_of(name, BYTES);
    m->entries[1] = entry_of(name, SMALL);
    strcpy(m->entries[1].buffer.s, "small");
    strcpy(small.name.s, "small");
    if (gb_disk_folder_link(folder, 0, name, &m->entries[0], error) != 1 ||
        gb_disk_folder_write(folder, 1, &meta, small_data, &m->entries[1], error) < 0)
        return -1;
    m->count = 2;
    m->bytes = BYTES + SMALL;
    return 0;
}

/* Makes the checkpoint c1 of the file of that name. */
static int make(const struct gb_disk_name *name, struct gb_error *error) {
    struct gb_manifest_entry entries[2];
    struct gb_manifest m = {.name = c1, .session = session, .as_of_us = 1764108000000000, .entries = entries};
    struct gb_disk_folder *folder = NULL;

    if (gb_disk_folder_make(f.disk, &c1, &folder, error) < 0)
        return -1;
    if (fill(folder, &m, name, error) == 0 && gb_disk_folder_commit(folder, &m, error) == 0)
        return 0;
    gb_disk_folder_discard(folder);
    return -1;
}

/* --- what is there ------------------------------------------------------------------------------------------------ */

static struct {
    unsigned complete;
    unsigned incomplete;
    struct gb_name session;
} seen;

static int see(void *arg, const struct gb_name *name, bool complete, const struct gb_name *owner, int64_t changed_us,
               struct gb_error *error) {
    (void)error;
    ck_assert_ptr_eq(arg, &seen);
    ck_assert(strcmp(name->s, "c1") == 0 || strcmp(name->s, "c2") == 0);
    ck_assert_int_gt(changed_us, 0);
    seen.complete += complete;
    seen.incomplete += !complete;
    seen.session = *owner;
    return 0;
}

static void look(unsigned complete, unsigned incomplete) {
    memset(&seen, 0, sizeof(seen));
    gb_assert_ok(gb_disk_checkpoints(f.disk, see, &seen, &err), err);
    ck_assert_uint_eq(seen.complete, complete);
    ck_assert_uint_eq(seen.incomplete, incomplete);
}

static void path_of(const char *below, char ret[DISK_PATH_SIZE]) {
    snprintf(ret, DISK_PATH_SIZE, "%s/checkpoints/%s", f.dir, below);
}

static bool exists(const char *below) {
    char path[DISK_PATH_SIZE];
    struct stat st;

    path_of(below, path);
    return lstat(path, &st) == 0;
}

/* The whole file has the checksum that the manifest says. */
static void check_file(const struct gb_name *name, size_t index, const struct gb_manifest_entry *entry) {
    struct gb_disk_reader *reader;
    unsigned char *room = disk_bytes(entry->size);

    gb_assert_ok(gb_disk_checkpoint_examine(f.disk, name, index, entry, &reader, &err), err);
    gb_assert_ok(gb_disk_read(reader, room, entry->size, 0, &err), err);
    ck_assert_uint_eq(gb_crc32c(0, room, entry->size), entry->file_crc32c);
    gb_disk_read_close(reader);
    free(room);
}

static void check_whole(const struct gb_name *name) {
    struct gb_manifest m;
    size_t i;

    gb_assert_ok(gb_disk_checkpoint_manifest(f.disk, name, &m, &err), err);
    ck_assert_uint_eq(m.count, 2);
    ck_assert_uint_eq(m.bytes, BYTES + SMALL);
    for (i = 0; i < m.count; i++)
        check_file(name, i, &m.entries[i]);
    gb_manifest_done(&m);
}

START_TEST(made_found_and_removed) {
    const struct gb_disk_name name = disk_name(1);
    const struct gb_disk_name out = {2, 1 | GB_DISK_LINKED, 7};
    unsigned before;

    begin(NULL);
    look(0, 0);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    before = disk_entries(&f);
    gb_assert_ok(make(&name, &err), err);
    look(1, 0);
    check_whole(&c1);
    ck_assert_uint_ne(gb_disk_shared(f.disk, &name), 0);
    ck_assert_uint_eq(gb_disk_shared(f.disk, &name), gb_disk_checkpoint_shared(f.disk, &c1, 0));
    ck_assert_uint_eq(gb_disk_checkpoint_shared(f.disk, &c1, 1), 0);
    ck_assert_uint_eq(gb_disk_checkpoint_shared(f.disk, &c1, 2), 0);
    gb_assert_ok(gb_disk_checkpoint_link_out(f.disk, &c1, 0, BYTES, &out, &err), err);
    disk_assert_bytes(&f, &out, BYTES);
    gb_assert_ok(gb_disk_checkpoint_remove(f.disk, &c1, &err), err);
    gb_assert_ok(gb_disk_checkpoint_remove(f.disk, &c1, &err), err);
    look(0, 0);
    disk_assert_bytes(&f, &name, BYTES);
    gb_disk_remove(f.disk, &out);
    ck_assert_uint_le(disk_entries(&f), before + 2); /* the folders checkpoints and 02 stay */
    disk_fixture_done(&f);
}
END_TEST

/* --- what cannot be linked ---------------------------------------------------------------------------------------- */

static int link_one(const struct gb_disk_name *name, struct gb_manifest_entry *entry) {
    struct gb_disk_folder *folder;
    int r;

    gb_assert_ok(gb_disk_folder_make(f.disk, &c1, &folder, &err), err);
    r = gb_disk_folder_link(folder, 0, name, entry, &err);
    ck_assert(exists(".c1/00001.safetensors") == (r == 1));
    gb_disk_folder_discard(folder);
    ck_assert(!exists(".c1"));
    return r;
}

START_TEST(what_cannot_be_linked) {
    const struct gb_disk_name name = disk_name(1);
    const struct gb_disk_name absent = disk_name(2);
    struct gb_manifest_entry entry;
    char path[DISK_PATH_SIZE];

    begin(NULL);
    entry = entry_of(&name, BYTES);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    ck_assert_int_eq(link_one(&name, &entry), 1);
    strcpy(entry.buffer.s, "other"); /* what the header says is for other programs */
    ck_assert_int_eq(link_one(&name, &entry), 0);
    entry = entry_of(&name, BYTES);
    entry.dtype = GB_DTYPE_INT8;
    ck_assert_int_eq(link_one(&name, &entry), 0);
    entry = entry_of(&name, BYTES);
    entry.crc32c ^= 1;
    gb_assert_fails(link_one(&name, &entry), err, GB_ERR_CONTENT_DAMAGED);
    entry = entry_of(&name, BYTES);
    gb_assert_fails(link_one(&absent, &entry), err, GB_ERR_CONTENT_LOST);
    ck_assert_int_eq(truncate(disk_path(&f, &name, path), GB_DISK_DATA_AT), 0);
    gb_assert_fails(link_one(&name, &entry), err, GB_ERR_CONTENT_DAMAGED);
    ck_assert_int_eq(truncate(path, 100), 0);
    gb_assert_fails(link_one(&name, &entry), err, GB_ERR_CONTENT_DAMAGED);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    gb_assert_fails(link_one(&name, &entry), err, GB_ERR_CONTENT_DAMAGED);
    disk_fixture_done(&f);
    begin("link=EOPNOTSUPP");
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    ck_assert_int_eq(link_one(&name, &entry), 0);
    disk_fixture_done(&f);
}
END_TEST

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void write_text(const char *below, const char *text) {
    char path[DISK_PATH_SIZE];
    FILE *file;

    path_of(below, path);
    file = fopen(path, "w");
    ck_assert(file && fputs(text, file) != EOF && fclose(file) == 0);
}

static void examine(size_t index, const struct gb_manifest_entry *entry, enum gb_code code) {
    struct gb_disk_reader *reader = NULL;

    gb_assert_fails(gb_disk_checkpoint_examine(f.disk, &c1, index, entry, &reader, &err), err, code);
    ck_assert_ptr_null(reader);
}

START_TEST(what_is_damaged_is_told) {
    const struct gb_disk_name name = disk_name(1);
    const struct gb_disk_name out = disk_name(2);
    struct gb_manifest_entry other;
    char path[DISK_PATH_SIZE];
    struct gb_manifest m;

    begin(NULL);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    gb_assert_ok(make(&name, &err), err);
    gb_assert_ok(gb_disk_checkpoint_manifest(f.disk, &c1, &m, &err), err);
    other = m.entries[0];
    other.crc32c ^= 1;
    examine(0, &other, GB_ERR_CONTENT_DAMAGED);
    other = m.entries[0];
    strcpy(other.buffer.s, "other");
    examine(0, &other, GB_ERR_CONTENT_DAMAGED);
    examine(1, &m.entries[0], GB_ERR_CONTENT_DAMAGED);
    path_of("c1/00001.safetensors", path);
    ck_assert_int_eq(truncate(path, GB_DISK_DATA_AT + BYTES - 1), 0);
    examine(0, &m.entries[0], GB_ERR_CONTENT_DAMAGED);
    gb_assert_fails(gb_disk_checkpoint_link_out(f.disk, &c1, 0, BYTES, &out, &err), err, GB_ERR_CONTENT_DAMAGED);
    ck_assert_int_eq(unlink(path), 0);
    examine(0, &m.entries[0], GB_ERR_CONTENT_LOST);
    gb_assert_fails(gb_disk_checkpoint_link_out(f.disk, &c1, 0, BYTES, &out, &err), err, GB_ERR_CONTENT_LOST);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    gb_assert_fails(gb_disk_checkpoint_link_out(f.disk, &c1, 0, BYTES, &out, &err), err, GB_ERR_CONTENT_DAMAGED);
    write_text("c1/manifest.json", "{\"version\":1");
    gb_manifest_done(&m);
    gb_assert_fails(gb_disk_checkpoint_manifest(f.disk, &c1, &m, &err), err, GB_ERR_CONTENT_DAMAGED);
    gb_assert_fails(gb_disk_checkpoint_manifest(f.disk, &c2, &m, &err), err, GB_ERR_CHECKPOINT_NOT_FOUND);
    look(1, 0);
    disk_fixture_done(&f);
}
END_TEST

static struct { unsigned kinds[GB_DISK_CHECKPOINT_UNFINISHED + 1]; } visited;

static int visit(void *arg, const struct gb_name *name, enum gb_disk_checkpoint_kind kind, const char *folder,
                 struct gb_error *error) {
    char expected[GB_NAME_MAX + 32];

    (void)error;
    ck_assert_ptr_eq(arg, &visited);
    snprintf(expected, sizeof(expected), "checkpoints/%s%s", kind == GB_DISK_CHECKPOINT_UNFINISHED ? "." : "", name->s);
    ck_assert_str_eq(folder, expected);
    visited.kinds[kind]++;
    return 0;
}

/* The offline look changes nothing; the other one removes what a process that died has left. */
START_TEST(what_a_crash_leaves) {
    const struct gb_disk_name name = disk_name(1);
    char path[DISK_PATH_SIZE];

    begin(NULL);
    memset(&visited, 0, sizeof(visited));
    gb_assert_ok(gb_disk_visit_checkpoints(f.disk, visit, &visited, &err), err);
    gb_assert_ok(disk_write(&f, &name, BYTES, &err), err);
    gb_assert_ok(make(&name, &err), err);
    path_of("c2", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_text("c2/.session", "team");
    path_of(".c2", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_text(".c2/00001.safetensors", "x");
    write_text("README", "not ours");
    path_of("no name", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    gb_assert_ok(gb_disk_visit_checkpoints(f.disk, visit, &visited, &err), err);
    ck_assert_uint_eq(visited.kinds[GB_DISK_CHECKPOINT_WHOLE], 1);
    ck_assert_uint_eq(visited.kinds[GB_DISK_CHECKPOINT_PARTIAL], 1);
    ck_assert_uint_eq(visited.kinds[GB_DISK_CHECKPOINT_UNFINISHED], 1);
    ck_assert(exists(".c2/00001.safetensors"));
    look(1, 1);
    ck_assert(!exists(".c2") && exists("README") && exists("no name"));
    ck_assert_int_eq(unlink((path_of("c1/manifest.json", path), path)), 0);
    look(0, 2);
    disk_fixture_done(&f);
}
END_TEST

/* --- files that are brought --------------------------------------------------------------------------------------- */

static int put(const char *file, const void *data, size_t n, uint32_t *ret_crc, bool *ret_replaced,
               struct gb_error *error) {
    struct gb_disk_put *p = NULL;

    if (gb_disk_put_begin(f.disk, &c2, &session, file, n, &p, error) < 0)
        return -1;
    if (gb_disk_put_write(p, data, n / 2, error) == 0 &&
        gb_disk_put_write(p, (const char *)data + n / 2, n - n / 2, error) == 0 &&
        gb_disk_put_sync(p, ret_crc, error) == 0 && gb_disk_put_name(p, ret_replaced, error) == 0)
        return 0;
    gb_disk_put_discard(p);
    return -1;
}

static unsigned char brought[3 * GB_DISK_ALIGN] __attribute__((aligned(4096)));

/* check itself would need memory. */
static int bring(struct gb_error *error) {
    bool replaced;
    uint32_t crc;
    int r = put("00001.safetensors", brought, sizeof(brought), &crc, &replaced, error);

    if (r == 0 && crc != gb_crc32c(0, brought, sizeof(brought)))
        abort();
    return r;
}

static void read_brought(void) {
    struct gb_disk_reader *reader;
    unsigned char *room = disk_bytes(sizeof(brought));
    uint64_t size;

    gb_assert_ok(gb_disk_checkpoint_open(f.disk, &c2, "00001.safetensors", &reader, &size, &err), err);
    ck_assert_uint_eq(size, sizeof(brought));
    gb_assert_ok(gb_disk_read(reader, room, size, 0, &err), err);
    ck_assert_int_eq(memcmp(room, brought, size), 0);
    gb_disk_read_close(reader);
    free(room);
}

START_TEST(files_are_brought) {
    struct gb_disk_put *one;
    struct gb_disk_put *other;
    uint32_t crc;
    bool replaced;

    begin(NULL);
    memset(brought, 5, sizeof(brought));
    gb_assert_ok(put("00001.safetensors", "hello", 5, &crc, &replaced, &err), err);
    ck_assert(!replaced && crc == gb_crc32c(0, "hello", 5));
    gb_assert_ok(put("00001.safetensors", brought, sizeof(brought), &crc, &replaced, &err), err);
    ck_assert(replaced);
    read_brought();
    gb_assert_ok(put("empty", "", 0, &crc, &replaced, &err), err);
    look(0, 1);
    ck_assert_str_eq(seen.session.s, "default");
    gb_assert_ok(gb_disk_put_begin(f.disk, &c2, &session, "00002.safetensors", 10, &one, &err), err);
    gb_assert_ok(gb_disk_put_begin(f.disk, &c2, &session, "00002.safetensors", 10, &other, &err), err);
    gb_assert_ok(gb_disk_put_write(one, "0123456789", 10, &err), err);
    gb_assert_fails(gb_disk_put_sync(other, &crc, &err), err, GB_ERR_INTERNAL); /* it is not complete */
    gb_disk_put_discard(other);
    gb_assert_ok(gb_disk_put_sync(one, &crc, &err), err);
    gb_assert_ok(gb_disk_put_name(one, &replaced, &err), err);
    ck_assert(!replaced && exists("c2/00002.safetensors"));
    gb_assert_ok(gb_disk_put_begin(f.disk, &c2, &session, "00003.safetensors", 0, &one, &err), err);
    gb_assert_ok(gb_disk_put_sync(one, &crc, &err), err);
    gb_assert_ok(gb_disk_checkpoint_remove(f.disk, &c2, &err), err);
    gb_assert_fails(gb_disk_put_name(one, &replaced, &err), err, GB_ERR_CHECKPOINT_NOT_FOUND);
    gb_disk_put_discard(one);
    look(0, 0);
    gb_disk_put_discard(NULL);
    disk_fixture_done(&f);
}
END_TEST

/* The daemon died as it brought that file. */
START_TEST(names_that_are_taken) {
    char path[DISK_PATH_SIZE];
    char below[64];
    struct gb_disk_put *p;
    int i;

    begin(NULL);
    gb_assert_ok(bring(&err), err);
    for (i = 0; i < 100; i++) {
        snprintf(below, sizeof(below), "c2/.00001.safetensors.%d", i);
        write_text(below, "");
    }
    gb_assert_fails(gb_disk_put_begin(f.disk, &c2, &session, "00001.safetensors", 1, &p, &err), err, GB_ERR_SATURATED);
    path_of(below, path);
    ck_assert_int_eq(unlink(path), 0);
    gb_assert_ok(bring(&err), err);
    disk_fixture_done(&f);
}
END_TEST

/* --- each call of the disk fails once ----------------------------------------------------------------------------- */

/* What is done, and what must be there when it has failed, and then when it has succeeded. */
static const struct disk_job {
    const char *name;
    void (*before)(void);
    int (*run)(struct gb_error *error);
    void (*failed)(void); /* nothing of it counts */
    void (*done)(void);
} jobs[];

static const struct gb_disk_name linked = {1, 7, 0x0badcafe};
static const struct gb_disk_name linked_out = {300, 1 | GB_DISK_LINKED, 9};

static void write_first(void) {
    gb_assert_ok(disk_write(&f, &linked, BYTES, &err), err);
}

static void make_first(void) {
    write_first();
    gb_assert_ok(make(&linked, &err), err);
}

static int run_make(struct gb_error *error) {
    return make(&linked, error);
}

static void not_made(void) {
    look(0, 0);
    ck_assert(!exists("c1"));
    disk_assert_bytes(&f, &linked, BYTES);
}

static void made(void) {
    look(1, 0);
    ck_assert(!exists(".c1"));
    check_whole(&c1);
}

static int run_remove(struct gb_error *error) {
    return gb_disk_checkpoint_remove(f.disk, &c1, error);
}

/* It is there as before, or as good as gone: what is left has the name of one that is made. */
static void removed_or_whole(void) {
    if (exists("c1"))
        check_whole(&c1);
    disk_assert_bytes(&f, &linked, BYTES);
}

static void removed(void) {
    look(0, 0);
    disk_assert_bytes(&f, &linked, BYTES);
}

static int run_link_out(struct gb_error *error) {
    return gb_disk_checkpoint_link_out(f.disk, &c1, 0, BYTES, &linked_out, error);
}

static void not_linked(void) {
    disk_assert_unreadable(&f, &linked_out, BYTES, GB_ERR_CONTENT_LOST);
    check_whole(&c1);
}

static void linked_too(void) {
    disk_assert_bytes(&f, &linked_out, BYTES);
    check_whole(&c1);
}

static void fill_brought(void) {
    memset(brought, 9, sizeof(brought));
}

static void not_brought(void) {
    ck_assert(!exists("c2/00001.safetensors") && !exists("c2/.00001.safetensors.0"));
}

static void brought_all(void) {
    read_brought();
    look(0, 1);
}

static int run_read(struct gb_error *error) {
    struct gb_disk_reader *reader = NULL;
    struct gb_manifest m;
    int r;

    if (gb_disk_checkpoint_manifest(f.disk, &c1, &m, error) < 0)
        return -1;
    r = gb_disk_checkpoint_examine(f.disk, &c1, 0, &m.entries[0], &reader, error);
    gb_disk_read_close(reader);
    gb_manifest_done(&m);
    return r;
}

static int run_index(struct gb_error *error) {
    struct gb_manifest m;
    char path[DISK_PATH_SIZE];
    int r;

    path_of("c1/model.safetensors.index.json", path);
    unlink(path);
    if (gb_disk_checkpoint_manifest(f.disk, &c1, &m, error) < 0)
        return -1;
    r = gb_disk_checkpoint_index(f.disk, &c1, &m, error);
    gb_manifest_done(&m);
    return r;
}

static void no_index(void) {
    ck_assert(!exists("c1/model.safetensors.index.json"));
}

static void indexed(void) {
    ck_assert(exists("c1/model.safetensors.index.json"));
    check_whole(&c1);
}

static const struct disk_job jobs[] = {
    {"make", write_first, run_make, not_made, made},
    {"remove", make_first, run_remove, removed_or_whole, removed},
    {"link out", make_first, run_link_out, not_linked, linked_too},
    {"bring", fill_brought, bring, not_brought, brought_all},
    {"read", make_first, run_read, made, made},
    {"index", make_first, run_index, no_index, indexed},
};
#define JOBS ((int)(sizeof(jobs) / sizeof(jobs[0])))

/* Calls whose failure is no failure of the job. */
static bool is_mild(enum gb_disk_op op, int job) {
    return op == GB_DISK_OP_direct || op == GB_DISK_OP_statvfs ||
           jobs[job].run == run_remove; /* what it leaves the next start removes */
}

/* Runs the job with a rule for the call `at` of the operation, counted from the job on. Returns false if there was no
 * such call. */
static bool fail_one(int job, enum gb_disk_op op, uint64_t at, const char *how) {
    char rule[64];
    uint64_t before;
    bool met;
    int r;

    begin("load=delay/0"); /* so that calls are counted */
    jobs[job].before();
    before = disk_calls(&f, op);
    disk_fixture_done(&f);
    snprintf(rule, sizeof(rule), "%s@%llu=%s", gb_disk_op_name(op), (unsigned long long)(before + at), how);
    begin(rule);
    jobs[job].before();
    r = jobs[job].run(&err);
    met = disk_calls(&f, op) >= before + at;
    if (r < 0) {
        ck_assert_msg(met, "%s, %s: %s", jobs[job].name, rule, err.detail);
        ck_assert_msg(err.code == GB_ERR_STORAGE_FAILED || err.code == GB_ERR_STORAGE_FULL ||
                          err.code == GB_ERR_STORAGE_UNAVAILABLE || err.code == GB_ERR_SATURATED,
                      "%s, %s: %s: %s", jobs[job].name, rule, gb_code_slug(err.code), err.detail);
        err = GB_ERROR_INIT;
    } else {
        ck_assert_msg(!met || is_mild(op, job), "%s, %s: it did not fail", jobs[job].name, rule);
    }
    disk_fixture_close(&f);
    disk_fixture_open(&f, NULL);
    if (r < 0)
        jobs[job].failed();
    if (r < 0)
        gb_assert_ok(jobs[job].run(&err), err);
    jobs[job].done();
    disk_fixture_done(&f);
    return met;
}

START_TEST(each_call_of_the_disk_fails_once) {
    unsigned failures = 0;
    enum gb_disk_op op;
    uint64_t at;

    for (op = 0; op < GB_DISK_OP_COUNT; op++) {
        if (gb_disk_op_call(op)[0] == '\0') /* a point of the caller's */
            continue;
        for (at = 1; fail_one(_i, op, at, op == GB_DISK_OP_write ? "ENOSPC" : "EIO"); at++)
            failures++;
        for (at = 1; op == GB_DISK_OP_open && fail_one(_i, op, at, "EMFILE"); at++)
            failures++;
    }
    ck_assert_uint_ge(failures, 2);
}
END_TEST

/* --- short writes, and a disk that refuses what is optional ------------------------------------------------------- */

START_TEST(short_writes_go_on) {
    static const char *const rules[] = {"write=short/1000", "write=short/4096", "direct=EINVAL", "fallocate=EOPNOTSUPP",
                                        "read=short/100"};

    begin(rules[_i]);
    fill_brought();
    write_first();
    gb_assert_ok(make(&linked, &err), err);
    gb_assert_ok(bring(&err), err);
    disk_fixture_close(&f);
    disk_fixture_open(&f, NULL);
    look(1, 1);
    check_whole(&c1);
    read_brought();
    disk_fixture_done(&f);
}
END_TEST

/* --- each allocation fails once ----------------------------------------------------------------------------------- */

#ifdef GB_OWN_MALLOC
START_TEST(each_allocation_fails_once) {
    unsigned failed = 0;
    long at = 0;
    int r;

    do {
        begin(NULL);
        jobs[_i].before();
        atomic_store(&gb_allocations, at++);
        r = jobs[_i].run(&err);
        atomic_store(&gb_allocations, -1);
        failed += r < 0;
        ck_assert_msg(r == 0 || err.code == GB_ERR_SATURATED || err.code == GB_ERR_STORAGE_FAILED ||
                          err.code == GB_ERR_STORAGE_UNAVAILABLE || err.code == GB_ERR_INTERNAL,
                      "%s, allocation %ld: %s: %s", jobs[_i].name, at, gb_code_slug(err.code), err.detail);
        err = GB_ERROR_INIT;
        disk_fixture_close(&f); /* a state of the disk ends with it */
        disk_fixture_open(&f, NULL);
        if (r < 0) {
            jobs[_i].failed();
            gb_assert_ok(jobs[_i].run(&err), err);
        }
        jobs[_i].done();
        disk_fixture_done(&f);
    } while (r < 0 || at < 60);
    if (jobs[_i].run != run_remove && jobs[_i].run != run_link_out)
        ck_assert_uint_ge(failed, 1);
}
END_TEST
#endif

int main(void) {
    Suite *suite = suite_create("disk checkpoint");

    gb_test_add(suite, "made", made_found_and_removed, 30);
    gb_test_add(suite, "links", what_cannot_be_linked, 30);
    gb_test_add(suite, "damage", what_is_damaged_is_told, 30);
    gb_test_add(suite, "crash", what_a_crash_leaves, 30);
    gb_test_add(suite, "brought", files_are_brought, 30);
    gb_test_add(suite, "taken", names_that_are_taken, 30);
    gb_test_add_loop(suite, "faults", each_call_of_the_disk_fails_once, 120, JOBS);
    gb_test_add_loop(suite, "short", short_writes_go_on, 30, 5);
#ifdef GB_OWN_MALLOC
    gb_test_add_loop(suite, "memory", each_allocation_fails_once, 120, JOBS);
#endif
    return gb_test_run(suite);
}

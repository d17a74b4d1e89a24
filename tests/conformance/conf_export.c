/* Memory and events exported to other processes: the way of each kind, and the rights of a descriptor. import.c tests
 * an importer in another process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conf.h"

#define BYTES (3 * MIB + 5)
#define NOBODY 65534

static int open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static struct gb_pool *pool_of(const struct gb_location *place) {
    return place->kind == GB_KIND_DEVICE ? conf.pool : NULL;
}

/* Whether the memory can be exported that way. If not, the error must give a reason, and *ret must be untouched. */
static bool try_export(const struct gb_location *place, enum gb_export_way way, bool writable, struct gb_export *ret) {
    struct gb_export before;
    int r;

    memset(ret, 0x5a, sizeof(*ret));
    before = *ret;
    r = gb_mem_export(conf.be, place, BYTES, pool_of(place), way, writable, ret, &conf.err);
    if (r == 0)
        return true;
    ck_assert_str_eq(gb_code_slug(conf.err.code), gb_code_slug(GB_ERR_UNSUPPORTED));
    ck_assert_str_ne(conf.err.detail, "");
    ck_assert_int_eq(conf.err.native_name[0] != '\0', way != GB_EXPORT_MEMFD);
    ck_assert_mem_eq(&before, ret, sizeof(before));
    conf.err = GB_ERROR_INIT;
    return false;
}

/* The kinds whose memory is a file. */
static bool has_file(int kind) {
    return conf_offered(kind) && (kind == GB_KIND_PINNED || kind == GB_KIND_PAGEABLE ||
                                  (kind == GB_KIND_SHARED && conf.device.compute_major == 0));
}

static struct gb_export exported(const struct gb_location *place, bool writable) {
    struct gb_export got = GB_EXPORT_INIT;

    gb_assert_ok(gb_mem_export(conf.be, place, BYTES, NULL, GB_EXPORT_MEMFD, writable, &got, &conf.err), conf.err);
    ck_assert_int_eq(got.way, GB_EXPORT_MEMFD);
    ck_assert_int_eq(got.device, 0);
    ck_assert_uint_eq(got.handle_bytes, 0);
    ck_assert_uint_eq(got.map_bytes % 4096, 0);
    ck_assert_uint_ge(got.map_bytes, got.offset + BYTES);
    ck_assert_int_ge(got.fd, 0);
    return got;
}

static unsigned char *map_of(const struct gb_export *got, bool writable) {
    void *at = mmap(NULL, got->map_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, got->fd, 0);

    ck_assert_msg(at != MAP_FAILED, "mmap: %s", strerror(errno));
    return at;
}

static void expect_bytes(const unsigned char *at, unsigned seed) {
    uint64_t i;

    for (i = 0; i < BYTES; i++) {
        if (at[i] != conf_byte(seed, i))
            ck_abort_msg("byte %llu is %u, not %u", (unsigned long long)i, at[i], conf_byte(seed, i));
    }
}

START_TEST(every_kind_goes_its_way_or_the_reason_is_said) {
    struct gb_export got;
    int kind;
    int way;

    for (kind = GB_KIND_DEVICE; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;
        int before;

        if (!conf_offered(kind))
            continue;
        place = conf_place((enum gb_kind)kind, BYTES);
        before = open_files();
        for (way = 0; way < GB_EXPORT_WAYS * 2; way++) {
            if (!try_export(&place, (enum gb_export_way)(way / 2), way % 2 != 0, &got)) {
                ck_assert(way / 2 != GB_EXPORT_MEMFD || !has_file(kind));
                continue;
            }
            ck_assert_int_eq(got.way, way / 2);
            ck_assert((got.fd >= 0) == (got.way != GB_EXPORT_LEGACY));
            ck_assert_uint_eq(got.handle_bytes,
                              got.way == GB_EXPORT_POOL || got.way == GB_EXPORT_LEGACY ? GB_EXPORT_HANDLE_BYTES : 0);
            ck_assert(got.fd < 0 || (fcntl(got.fd, F_GETFD) & FD_CLOEXEC) != 0);
            ck_assert_uint_ge(got.map_bytes, got.offset + BYTES);
            gb_export_done(&got);
        }
        ck_assert_int_eq(open_files(), before);
        conf_place_free(&place, BYTES);
    }
}
END_TEST

START_TEST(a_file_shows_the_very_bytes_both_ways) {
    int kind;
    uint64_t i;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        struct gb_export got;
        struct gb_location place;
        unsigned char *at;

        if (!has_file(kind))
            continue;
        place = conf_place((enum gb_kind)kind, BYTES);
        conf_place_write(&place, 3, BYTES, conf.s1);
        got = exported(&place, true);
        at = map_of(&got, true);
        expect_bytes(at + got.offset, 3);
        for (i = 0; i < BYTES; i++)
            at[got.offset + i] = conf_byte(4, i);
        conf_place_expect(&place, 4, BYTES, conf.s1);
        munmap(at, got.map_bytes);
        gb_export_done(&got);
        conf_place_free(&place, BYTES);
    }
}
END_TEST

/* A legacy handle that programs pass on: the bytes begin where the handle's memory begins, and each allocation has its
 * own handle. */
START_TEST(older_handles_name_memory) {
    struct gb_export got[3];
    struct gb_location place[2];
    int i;

    for (i = 0; i < 2 && conf_offered(GB_KIND_IPC); i++)
        place[i] = conf_place(GB_KIND_IPC, BYTES);
    if (i == 2 && try_export(&place[0], GB_EXPORT_LEGACY, false, &got[0])) {
        ck_assert(try_export(&place[0], GB_EXPORT_LEGACY, true, &got[1]));
        ck_assert(try_export(&place[1], GB_EXPORT_LEGACY, true, &got[2]));
        ck_assert_mem_ne(got[0].handle, got[2].handle, GB_EXPORT_HANDLE_BYTES);
        ck_assert(got[0].offset == 0 && got[2].offset == 0 && got[0].device == 0);
    }
    while (i > 0)
        conf_place_free(&place[--i], BYTES);
}
END_TEST

/* --- what a descriptor permits ------------------------------------------------------------------------------------ */

/* Runs as a user that is neither the file's owner nor root. The exit status is 0 if the file opens for reading but not
 * for writing. */
static int open_as_another(int fd) {
    char path[32];
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
            _exit(2);
        (void)prctl(PR_SET_DUMPABLE, 1); /* without this, /proc/self/fd is inaccessible for another reason */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (open(path, O_RDONLY) < 0)
            _exit(3);
        if (open(path, O_RDWR) >= 0 || errno != EACCES)
            _exit(4);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(what_is_for_reading_stays_so) {
    int kind;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        struct gb_export got;
        struct gb_location place;
        void *at;

        if (!has_file(kind))
            continue;
        place = conf_place((enum gb_kind)kind, BYTES);
        conf_place_write(&place, 5, BYTES, conf.s1);
        got = exported(&place, false);
        at = mmap(NULL, got.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, got.fd, 0);
        ck_assert(at == MAP_FAILED && errno == EACCES);
        ck_assert_int_eq(write(got.fd, "x", 1), -1);
        at = map_of(&got, false);
        ck_assert_int_eq(mprotect(at, got.map_bytes, PROT_READ | PROT_WRITE), -1);
        ck_assert_int_eq(open_as_another(got.fd), 0);
        expect_bytes((unsigned char *)at + got.offset, 5);
        munmap(at, got.map_bytes);
        gb_export_done(&got);
        conf_place_free(&place, BYTES);
    }
}
END_TEST

/* Access beyond the end of a shrunken file would kill the daemon. */
START_TEST(its_size_is_fixed_for_ever) {
    int kind;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        struct gb_export got;
        struct gb_location place;

        if (!has_file(kind))
            continue;
        place = conf_place((enum gb_kind)kind, BYTES);
        got = exported(&place, true);
        ck_assert_int_eq(ftruncate(got.fd, 0), -1);
        ck_assert_int_eq(ftruncate(got.fd, (off_t)got.map_bytes + 4096), -1);
        ck_assert_int_eq(fcntl(got.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        ck_assert((fcntl(got.fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0);
        gb_export_done(&got);
        conf_place_free(&place, BYTES);
    }
}
END_TEST

START_TEST(a_mapping_outlives_the_memory) {
    int kind;
    int i;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;
        struct gb_export got;
        unsigned char *at;

        if (!has_file(kind))
            continue;
        place = conf_place((enum gb_kind)kind, BYTES);
        conf_place_write(&place, 6, BYTES, conf.s1);
        got = exported(&place, true);
        at = map_of(&got, true);
        gb_export_done(&got);
        conf_place_free(&place, BYTES);
        for (i = 0; i < 4; i++) {
            place = conf_place((enum gb_kind)kind, BYTES);
            conf_place_write(&place, 7, BYTES, conf.s1);
            expect_bytes(at + got.offset, 6);
            memset(at, 0xee, got.map_bytes);
            conf_place_expect(&place, 7, BYTES, conf.s1);
            conf_place_write(&place, 8, BYTES, conf.s1);
            for (uint64_t j = 0; j < BYTES; j++)
                at[got.offset + j] = conf_byte(6, j);
            conf_place_free(&place, BYTES);
        }
        munmap(at, got.map_bytes);
    }
}
END_TEST

/* --- errors ------------------------------------------------------------------------------------------------------- */

START_TEST(what_cannot_be_exported_leaves_nothing_open) {
    struct gb_location place = conf_place(GB_KIND_PAGEABLE, BYTES);
    struct gb_location wrong = place;
    struct gb_export got = GB_EXPORT_INIT;
    int before = open_files();

    wrong.kind = GB_KIND_COUNT;
    gb_assert_fails(gb_mem_export(conf.be, &wrong, BYTES, NULL, GB_EXPORT_MEMFD, true, &got, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_mem_export(conf.be, &place, BYTES, NULL, GB_EXPORT_WAYS, true, &got, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    wrong.kind = GB_KIND_PINNED;
    ck_assert_int_eq(gb_mem_export(conf.be, &wrong, BYTES, NULL, GB_EXPORT_MEMFD, true, &got, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_mem_export(conf.be, &place, 2 * BYTES, NULL, GB_EXPORT_MEMFD, false, &got, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_mem_export(conf.be, &place, 0, NULL, GB_EXPORT_MEMFD, false, &got, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    ck_assert_int_eq(got.fd, -1);
    ck_assert_int_eq(open_files(), before);
    ck_assert(!gb_backend_dead(conf.be, NULL));
    conf_place_free(&place, BYTES);
    ck_assert_int_eq(gb_mem_export(conf.be, &place, BYTES, NULL, GB_EXPORT_MEMFD, false, &got, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
}
END_TEST

static void limit_files(rlim_t most) {
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(without_descriptors_memory_is_had_but_not_exported) {
    struct gb_location first = conf_place(GB_KIND_PAGEABLE, BYTES);
    struct gb_export got = GB_EXPORT_INIT;
    struct rlimit usual;
    struct gb_location second;
    int before;
    int next;

    conf_place_write(&first, 8, BYTES, conf.s1); /* the device now has open all files that it keeps open */
    next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    before = open_files();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    close(next);
    limit_files((rlim_t)next); /* none is left */
    gb_assert_fails(gb_mem_export(conf.be, &first, BYTES, NULL, GB_EXPORT_MEMFD, false, &got, &conf.err), conf.err,
                    GB_ERR_SATURATED);
    gb_assert_fails(gb_mem_export(conf.be, &first, BYTES, NULL, GB_EXPORT_MEMFD, true, &got, &conf.err), conf.err,
                    GB_ERR_SATURATED);
    limit_files((rlim_t)next + 2); /* more than half are in use */
    second = conf_place(GB_KIND_PAGEABLE, BYTES);
    conf_place_write(&second, 9, BYTES, conf.s1);
    conf_place_expect(&second, 9, BYTES, conf.s1);
    gb_assert_fails(gb_mem_export(conf.be, &second, BYTES, NULL, GB_EXPORT_MEMFD, true, &got, &conf.err), conf.err,
                    GB_ERR_UNSUPPORTED);
    limit_files(usual.rlim_cur);
    ck_assert_int_eq(open_files(), before - 1);
    got = exported(&first, false);
    gb_export_done(&got);
    conf_place_free(&second, BYTES);
    conf_place_free(&first, BYTES);
    ck_assert_int_eq(open_files(), before - 2);
}
END_TEST

/* --- events ------------------------------------------------------------------------------------------------------- */

START_TEST(shared_events_are_events_or_the_reason_is_said) {
    unsigned char handle[GB_EXPORT_HANDLE_BYTES] = {0};
    static const unsigned char nothing[GB_EXPORT_HANDLE_BYTES];
    struct gb_event *plain = conf_event();
    struct gb_event *event = NULL;
    uint64_t ns = 0;

    gb_assert_fails(gb_event_export(conf.be, plain, handle, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_mem_eq(handle, nothing, sizeof(handle));
    ck_assert_int_eq(gb_event_create_shared(conf.be, 99, &event, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    if (gb_event_create_shared(conf.be, 0, &event, &conf.err) < 0) {
        printf("%s: events for other processes: none (%s)\n", conf.spec, conf.err.detail);
        ck_assert_str_eq(gb_code_slug(conf.err.code), gb_code_slug(GB_ERR_UNSUPPORTED));
        ck_assert_str_ne(conf.err.detail, "");
        ck_assert_ptr_null(event);
    } else {
        struct conf_gate gate;

        ck_assert(conf_done(event));
        conf_gate_hold(&gate, conf.s1);
        gb_assert_ok(gb_event_record(conf.be, event, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_event_export(conf.be, event, handle, &conf.err), conf.err);
        ck_assert_mem_ne(handle, nothing, sizeof(handle));
        ck_assert(!conf_done(event));
        gb_assert_ok(gb_stream_wait(conf.be, conf.s2, event, &conf.err), conf.err);
        conf_gate_let_go(&gate);
        conf_wait(event);
        conf_sync(conf.s2);
        ck_assert_int_eq(gb_event_elapsed(conf.be, event, event, &ns, &conf.err), -1);
        conf.err = GB_ERROR_INIT;
        ck_assert(!gb_backend_dead(conf.be, NULL));
        gb_event_destroy(conf.be, event);
    }
    gb_event_destroy(conf.be, plain);
}
END_TEST

void conf_add_export(Suite *suite) {
    conf_add(suite, "ways of every kind", every_kind_goes_its_way_or_the_reason_is_said);
    conf_add(suite, "older handles", older_handles_name_memory);
    conf_add(suite, "files", a_file_shows_the_very_bytes_both_ways);
    conf_add(suite, "files for reading", what_is_for_reading_stays_so);
    conf_add(suite, "size of files", its_size_is_fixed_for_ever);
    conf_add(suite, "mappings that stay", a_mapping_outlives_the_memory);
    conf_add(suite, "wrong exports", what_cannot_be_exported_leaves_nothing_open);
    conf_add(suite, "no descriptors", without_descriptors_memory_is_had_but_not_exported);
    conf_add(suite, "shared events", shared_events_are_events_or_the_reason_is_said);
}

/* Kinds of memory on the host backend: budgets, managed=attach, peers=no, wrong places. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/host/internal.h"
#include "gb_test.h"

#define MIB (1ull << 20)

static struct gb_backend *be;
static struct gb_stream *stream;
static struct gb_error err;

static void open_spec(const char *spec) {
    char note[GB_BACKEND_NOTE_SIZE];

    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open(spec, &be, note, &err), err);
    gb_assert_ok(gb_stream_create(be, 0, &stream, &err), err);
}

static void close_all(void) {
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}

static struct gb_location place_of(enum gb_kind kind, int device, uint64_t bytes) {
    struct gb_location place = {.kind = kind, .device = device};

    gb_assert_ok(gb_mem_kind_alloc(be, device, kind, bytes, &place.ptr, &err), err);
    return place;
}

static uint64_t free_bytes(int device) {
    struct gb_device_rec rec;

    gb_assert_ok(gb_backend_device_get(be, device, &rec, &err), err);
    return rec.free_bytes;
}

START_TEST(shared_and_managed_memory_is_the_devices) {
    struct gb_location shared;
    struct gb_location managed;
    struct gb_location pinned;
    struct gb_location ipc;
    void *none = NULL;

    open_spec("host:devices=2,bytes=64M");
    ipc = place_of(GB_KIND_IPC, 1, 64 * MIB);
    ck_assert_int_eq(gb_mem_kind_alloc(be, 1, GB_KIND_IPC, 1, &none, &err), -1);
    ck_assert_str_eq(err.call, "cudaMalloc");
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_kind_free(be, &ipc, 64 * MIB, &err), err);
    shared = place_of(GB_KIND_SHARED, 1, 40 * MIB);
    managed = place_of(GB_KIND_MANAGED, 1, 20 * MIB);
    pinned = place_of(GB_KIND_PINNED, 1, 100 * MIB);
    ck_assert_uint_eq(free_bytes(0), 64 * MIB);
    ck_assert_uint_eq(free_bytes(1), 4 * MIB);
    ck_assert_int_eq(gb_mem_kind_alloc(be, 1, GB_KIND_SHARED, 5 * MIB, &none, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert_str_eq(err.call, "cuMemCreate");
    ck_assert_uint_eq(err.limit_bytes, 64 * MIB);
    ck_assert_uint_eq(err.used_bytes, 60 * MIB);
    ck_assert_uint_eq(err.requested_bytes, 5 * MIB);
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_kind_free(be, &managed, 20 * MIB, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &shared, 40 * MIB, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &pinned, 100 * MIB, &err), err);
    ck_assert_uint_eq(free_bytes(1), 64 * MIB);
    close_all();
}
END_TEST

START_TEST(wrong_places_are_refused) {
    struct gb_location place;
    struct gb_location wrong;
    struct gb_location other;
    struct gb_stream *second = NULL;
    enum gb_copy_way way;

    open_spec("host:devices=2,bytes=64M");
    place = place_of(GB_KIND_SHARED, 0, 2 * MIB);
    other = place_of(GB_KIND_PINNED, 0, 4 * MIB);
    wrong = place;
    wrong.kind = GB_KIND_MANAGED;
    gb_assert_fails(gb_mem_kind_free(be, &wrong, 2 * MIB, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_move(be, &wrong, &other, 1, stream, &way, &err), err, GB_ERR_DEVICE_ERROR);
    wrong.kind = GB_KIND_DEVICE;
    gb_assert_fails(gb_mem_move(be, &other, &wrong, 1, stream, &way, &err), err, GB_ERR_DEVICE_ERROR);
    wrong.kind = GB_KIND_PINNED;
    gb_assert_fails(gb_location_fill(be, &wrong, 0, 1, 1, stream, &err), err, GB_ERR_DEVICE_ERROR);
    wrong = place;
    wrong.device = 1;
    gb_assert_fails(gb_location_fill(be, &wrong, 0, 1, 1, stream, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(gb_stream_create(be, 1, &second, &err), err);
    gb_assert_fails(gb_location_fill(be, &wrong, 0, 1, 1, second, &err), err, GB_ERR_DEVICE_ERROR);
    gb_stream_destroy(be, second);
    wrong.device = 2;
    gb_assert_fails(gb_location_fill(be, &wrong, 0, 1, 1, stream, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_mem_move(be, &place, &other, 2 * MIB + 1, stream, &way, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_kind_free(be, &place, 3 * MIB, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_mem_kind_free(be, &place, 2 * MIB, &err), err);
    gb_assert_fails(gb_mem_kind_free(be, &place, 2 * MIB, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_location_fill(be, &place, 0, 1, 1, stream, &err), err, GB_ERR_DEVICE_ERROR);
    place.ptr = NULL;
    ck_assert_int_eq(gb_mem_attributes(be, &place, NULL, &(struct gb_mem_attr){.device = 0}, &err), -1);
    close_all(); /* the caller frees the other */
}
END_TEST

START_TEST(managed_memory_is_used_by_one_side_at_a_time) {
    struct gb_location place;
    struct gb_location other;
    struct gb_device_rec rec;
    enum gb_copy_way way;

    open_spec("host:managed=attach,bytes=64M");
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert(rec.managed_attach && rec.kind_cpu[GB_KIND_MANAGED]);
    place = place_of(GB_KIND_MANAGED, 0, 2 * MIB);
    other = place_of(GB_KIND_PINNED, 0, 2 * MIB);
    gb_assert_ok(gb_location_fill(be, &place, 0x42, 1, 2 * MIB, stream, &err), err);
    gb_assert_ok(gb_mem_attach(be, &place, true, stream, &err), err);
    gb_assert_fails(gb_location_fill(be, &place, 0x43, 1, 2 * MIB, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_move(be, &other, &place, 2 * MIB, stream, &way, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    ck_assert_int_eq(*(char *)place.ptr, 0x42);
    memset(place.ptr, 0x44, 2 * MIB);
    gb_assert_ok(gb_mem_attach(be, &place, false, stream, &err), err);
    gb_assert_ok(gb_mem_move(be, &other, &place, 2 * MIB, stream, &way, &err), err);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    ck_assert_int_eq(((char *)other.ptr)[2 * MIB - 1], 0x44);
    gb_assert_ok(gb_mem_attach(be, &other, true, stream, &err), err); /* a no-op */
    place.ptr = (char *)place.ptr + 4096;
    gb_assert_fails(gb_mem_attach(be, &place, true, stream, &err), err, GB_ERR_DEVICE_ERROR);
    close_all();
}
END_TEST

/* Managed memory that the device owns, at the start and after the CPU gave it back; hidden memory of kinds shared and
 * ipc. */
START_TEST(what_the_cpu_may_not_touch_kills) {
    struct gb_location place;

    signal(SIGSEGV, SIG_DFL); /* a sanitizer may have installed its own handler */
    open_spec(_i < 2 ? "host:managed=attach,bytes=64M" : "host:discrete,bytes=64M");
    place = place_of(_i < 2 ? GB_KIND_MANAGED : _i == 2 ? GB_KIND_SHARED : GB_KIND_IPC, 0, MIB);
    if (_i == 1) {
        gb_assert_ok(gb_mem_attach(be, &place, true, stream, &err), err);
        gb_assert_ok(gb_stream_sync(be, stream, &err), err);
        memset(place.ptr, 1, MIB);
        gb_assert_ok(gb_mem_attach(be, &place, false, stream, &err), err);
        gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    }
    *(volatile char *)place.ptr = 1; /* faults here */
}
END_TEST

START_TEST(devices_apart_do_not_open_pools) {
    struct gb_pool *pool = NULL;
    struct gb_peer_rec peer;
    struct gb_device_rec rec;

    open_spec("host:devices=2,peers=no,bytes=64M");
    gb_assert_ok(gb_pool_default(be, 0, &pool, &err), err);
    gb_assert_ok(gb_peer_get(be, 0, 1, &peer, &err), err);
    ck_assert(!peer.can_access && !peer.native_atomics);
    ck_assert_ptr_nonnull(strstr(peer.why_not, "peers=no"));
    ck_assert_int_eq(gb_pool_access_set(be, pool, 1, GB_POOL_ACCESS_READ_WRITE, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_UNSUPPORTED);
    ck_assert_int_eq(err.native_code, 101);
    ck_assert_str_eq(err.native_text, "invalid device ordinal");
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_ptr_nonnull(strstr(rec.cap_missing[GB_CAP_PEER_ACCESS], "peers=no"));
    close_all();
    open_spec("host:devices=2,bytes=64M");
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_str_eq(rec.cap_missing[GB_CAP_PEER_ACCESS], "");
    close_all();
}
END_TEST

/* Runs the checks in a child process without mounts, and returns 0, the number of the failed check, or 77 if there can
 * be no such process. The child opens the backend itself: after a fork beside other threads, the allocator's lock may
 * be held for ever. */
static int export_without_proc(const char *empty) {
    struct gb_export got = GB_EXPORT_INIT;
    struct gb_location place;

    open_spec("host:bytes=64M");
    place = place_of(GB_KIND_PINNED, 0, MIB);
    if (chroot(empty) != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(empty) != 0))
        return 77;
    if (gb_mem_export(be, &place, MIB, NULL, GB_EXPORT_MEMFD, false, &got, &err) == 0 || got.fd >= 0)
        return 1;
    if (err.code != GB_ERR_UNSUPPORTED || !strstr(err.detail, "/proc"))
        return 2;
    err = GB_ERROR_INIT;
    return gb_mem_export(be, &place, MIB, NULL, GB_EXPORT_MEMFD, true, &got, &err) == 0 && got.fd >= 0 ? 0 : 3;
}

/* Without /proc the backend cannot open a descriptor for reading only. */
START_TEST(without_proc_the_reason_is_said) {
    char empty[] = "/tmp/gb-no-proc-XXXXXX";
    int status = -1;
    pid_t pid;

    ck_assert_ptr_nonnull(mkdtemp(empty));
    pid = fork();
    if (pid == 0)
        _exit(export_without_proc(empty));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    rmdir(empty);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("without /proc: skipped, neither root nor user namespaces are to be had\n");
    else
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}
END_TEST

START_TEST(a_part_begins_at_its_offset) {
    struct gb_export got = GB_EXPORT_INIT;
    struct gb_location place;

    open_spec("host:discrete,bytes=64M");
    place = place_of(GB_KIND_SHARED, 0, 3 * MIB + 1);
    place.ptr = (char *)place.ptr + MIB + 3;
    gb_assert_ok(gb_mem_export(be, &place, MIB, NULL, GB_EXPORT_MEMFD, false, &got, &err), err);
    ck_assert_uint_eq(got.offset, MIB + 3);
    ck_assert_uint_eq(got.map_bytes, 3 * MIB + 4096);
    gb_export_done(&got);
    gb_assert_fails(gb_mem_export(be, &place, 2 * MIB - 1, NULL, GB_EXPORT_MEMFD, false, &got, &err), err,
                    GB_ERR_DEVICE_ERROR);
    ck_assert_int_eq(got.fd, -1);
    close_all();
}
END_TEST

/* The backend reads the kernel's numbers from a file with that many MiB as available. */
static void make_available(char *root, unsigned mib) {
    struct gb_host *host = gb_host_of(be);
    char path[128];
    FILE *file;

    if (strchr(root, 'X')) {
        ck_assert_ptr_nonnull(mkdtemp(root));
        snprintf(path, sizeof(path), "%s/proc", root);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "MemTotal: 1048576 kB\nMemAvailable: %u kB\n", mib * 1024);
    fclose(file);
    host->budget.root = root;
    host->budget.reserve_bytes = 0;
    host->budget.before_bytes = UINT64_MAX / 2; /* nothing counts as resident */
    host->budget.read_ns = 0;
}

/* An allocation that the machine has no memory for is refused, whatever the device's size, so that the kernel need not
 * kill the daemon. Memory of every kind counts. */
START_TEST(what_the_machine_lacks_is_refused) {
    char root[] = "/tmp/gb-kind-XXXXXX";
    char command[64];
    struct gb_location managed;
    struct gb_location plain;
    struct gb_pool *pool;
    void *pinned = NULL;
    void *none = NULL;
    void *p;

    open_spec("host:devices=2,bytes=2G");
    make_available(root, 200);
    ck_assert_uint_eq(free_bytes(0), 200 * MIB);
    ck_assert_uint_eq(free_bytes(1), 200 * MIB);
    managed = place_of(GB_KIND_MANAGED, 1, 100 * MIB);
    plain = place_of(GB_KIND_PAGEABLE, 0, 20 * MIB);
    gb_assert_ok(gb_pin_alloc(be, 10 * MIB, &pinned, &err), err);
    ck_assert_uint_eq(free_bytes(0), 70 * MIB);
    gb_assert_ok(gb_pool_default(be, 0, &pool, &err), err);
    gb_assert_ok(gb_mem_alloc(be, pool, stream, 50 * MIB, &p, &err), err);
    ck_assert_uint_eq(free_bytes(0), 20 * MIB);
    gb_assert_fails(gb_mem_alloc(be, pool, stream, 60 * MIB, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_mem_alloc(be, pool, stream, 60 * MIB, &none, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "20971520 left"));
    ck_assert_uint_eq(err.limit_bytes, 200 * MIB);
    ck_assert_uint_eq(err.used_bytes, 180 * MIB);
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_mem_kind_alloc(be, 1, GB_KIND_SHARED, 21 * MIB, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_fails(gb_mem_kind_alloc(be, 0, GB_KIND_PINNED, 21 * MIB, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_fails(gb_pin_alloc(be, 21 * MIB, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    make_available(root, 400);
    gb_assert_ok(gb_pin_alloc(be, 21 * MIB, &none, &err), err);
    ck_assert_uint_eq(free_bytes(0), 199 * MIB);
    gb_pin_free(be, none);
    gb_pin_free(be, pinned);
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    gb_assert_ok(gb_mem_alloc(be, pool, stream, 60 * MIB, &p, &err), err); /* what the pool keeps is reused */
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &managed, 100 * MIB, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &plain, 20 * MIB, &err), err);
    close_all();
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kinds on the host backend");
    TCase *deadly = tcase_create("forbidden memory");

    gb_test_add(suite, "budgets", shared_and_managed_memory_is_the_devices, 20);
    gb_test_add(suite, "machine", what_the_machine_lacks_is_refused, 20);
    gb_test_add(suite, "wrong places", wrong_places_are_refused, 20);
    gb_test_add(suite, "managed=attach", managed_memory_is_used_by_one_side_at_a_time, 20);
    tcase_add_loop_test_raise_signal(deadly, what_the_cpu_may_not_touch_kills, SIGSEGV, 0, 4);
    suite_add_tcase(suite, deadly);
    gb_test_add(suite, "no /proc", without_proc_the_reason_is_said, 20);
    gb_test_add(suite, "parts", a_part_begins_at_its_offset, 20);
    gb_test_add(suite, "peers=no", devices_apart_do_not_open_pools, 20);
    return gb_test_run(suite);
}

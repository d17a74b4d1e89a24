#include "adopt_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gb_test.h"

struct core_memory core_memory_new(uint64_t size, int seals) {
    struct core_memory m = {.fd = memfd_create("owned", MFD_CLOEXEC | MFD_ALLOW_SEALING), .size = size};

    ck_assert_int_ge(m.fd, 0);
    ck_assert_int_eq(ftruncate(m.fd, (off_t)size), 0);
    m.bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
    ck_assert(m.bytes != MAP_FAILED);
    if (seals)
        ck_assert_int_eq(fcntl(m.fd, F_ADD_SEALS, seals), 0);
    return m;
}

void core_memory_done(struct core_memory *m) {
    munmap(m->bytes, m->size);
    close(m->fd);
}

struct gb_adopt_params core_adopt_params(struct gb_holder *holder, const struct core_memory *memory, const char *name,
                                         uint64_t offset, uint64_t bytes) {
    return (struct gb_adopt_params){
        .session = core_name("default"),
        .name = core_name(name),
        .holder = holder,
        .import = {.way = GB_EXPORT_MEMFD, .fd = memory->fd, .offset = offset, .bytes = bytes},
        .dtype = GB_DTYPE_UINT8,
        .shape = {.dims = 1, .dim = {bytes}},
    };
}

int core_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct core_result *ret,
               struct gb_error *err) {
    struct gb_adopt_params p = *params;
    struct core_call pending;

    if (p.import.fd >= 0)
        p.import.fd = fcntl(p.import.fd, F_DUPFD_CLOEXEC, 0);
    core_call_begin(&pending);
    gb_buffer_adopt(core, &p, pending.call.buffer);
    return core_result_end(&pending, ret, err);
}

void core_adopt_all(struct core_fixture *f, struct gb_holder *holder, const struct core_memory *memory,
                    const char *name) {
    struct gb_adopt_params p = core_adopt_params(holder, memory, name, 0, memory->size);
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_adopt(f->core, &p, NULL, &err), err);
}

uint64_t core_adopted(struct core_fixture *f) {
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.adopted;
}

static bool none(void *f) {
    return core_adopted(f) == 0;
}

void core_until_none_adopted(struct core_fixture *f) {
    core_until(none, f, "nothing of other processes is mapped");
}

/* --- the database ------------------------------------------------------------------------------------------------- */

/* On the writer's thread. */
static void wait_there(void *arg, const struct gb_error *error) {
    struct core_busy *busy = arg;

    (void)error;
    sem_post(&busy->entered);
    sem_wait(&busy->opened);
}

void core_busy_begin(struct core_busy *busy, struct core_fixture *f) {
    struct gb_session_rec rec = store_session(999, "busy");

    sem_init(&busy->entered, 0, 0);
    sem_init(&busy->opened, 0, 0);
    gb_store_put_session(f->store.store, &rec, NULL, wait_there, busy);
    sem_wait(&busy->entered);
}

void core_busy_end(struct core_busy *busy) {
    sem_post(&busy->opened);
}

static bool queued(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.store.queued > 0;
}

void core_until_queued(struct core_fixture *f) {
    core_until(queued, f, "a change waits for the database");
}

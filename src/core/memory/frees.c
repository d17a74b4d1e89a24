/* Frees that wait until their device is idle. content.c puts them off, on the device's lane of frees; alloc.c hurries
 * them. What is put off is a queue of tasks, which that lane alone touches. */
#include "core/memory/frees.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/runtime/runtime.h"

#define BOUND_NS (GB_FREES_S * GB_NS_PER_S)
#define BOUND_SHARE 8

/* How long an idle device may take to complete an event. */
#define IDLE_NS (200 * 1000)

struct gb_frees {
    struct gb_core_device *device;
    struct gb_task *first;
    struct gb_task *last;
    uint64_t since_ns; /* the oldest was put off */
    bool of_host;      /* some memory is the host's, whose free waits for all devices */
    bool running;      /* the tasks that run are to free */
    atomic_bool hurry;
    _Atomic uint64_t bytes;
    _Atomic uint64_t made;
    struct gb_ev *pending[]; /* one a device: recorded behind its work, and not complete when it was queried last */
};

struct gb_frees *gb_frees_new(struct gb_core_device *device) {
    struct gb_frees *frees = calloc(1, sizeof(*frees) + (size_t)device->core->device_count * sizeof(frees->pending[0]));

    if (frees)
        frees->device = device;
    return frees;
}

/* --- is the device idle? ------------------------------------------------------------------------------------------ */

/* Returns true if the device has completed the event, or fails. */
static bool reached(struct gb_backend *be, struct gb_ev *ev, uint64_t wait_ns) {
    uint64_t end_ns = gb_clock_ns() + wait_ns;
    bool done = false;

    while (gb_event_query(be, ev->event, &done, NULL) == 0 && !done) {
        if (gb_clock_ns() >= end_ns)
            return false;
    }
    return true;
}

/* At most one event of a device is on its way, so that the events of a device that is busy for long do not fill its
 * queue. One that was complete says only that the device was idle once; so another one is recorded. */
static bool device_idle(struct gb_frees *frees, struct gb_core_device *device) {
    struct gb_backend *be = device->core->backend;
    struct gb_ev **ev = &frees->pending[device->index];

    if (*ev && !reached(be, *ev, 0))
        return false;
    if (!*ev)
        *ev = gb_event_pool_take(&device->events, NULL);
    if (!*ev)
        return false;
    if (gb_event_record_device(be, (*ev)->event, device->index, NULL) == 0 && !reached(be, *ev, IDLE_NS))
        return false;
    gb_event_pool_give(&device->events, *ev);
    *ev = NULL;
    return true;
}

static bool idle(struct gb_frees *frees, bool of_host) {
    struct gb_core *core = frees->device->core;
    int i;

    if (!of_host)
        return device_idle(frees, frees->device);
    for (i = 0; i < core->device_count; i++) {
        if (!device_idle(frees, &core->devices[i]))
            return false;
    }
    return true;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

/* The driver maps and unmaps kind SHARED, and the kernel kind PAGEABLE, without a wait for the device. */
static bool waits(enum gb_kind kind) {
    return kind != GB_KIND_SHARED && kind != GB_KIND_PAGEABLE;
}

bool gb_frees_put_off(struct gb_frees *frees, struct gb_task *task, enum gb_kind kind, uint64_t bytes) {
    if (frees->running) {
        atomic_fetch_sub(&frees->bytes, bytes);
        return false;
    }
    if (!waits(kind) || atomic_load(&frees->device->core->closing) ||
        (!frees->first && idle(frees, !gb_kind_of_device(kind))))
        return false;
    task->next = NULL;
    if (frees->last)
        frees->last->next = task;
    else
        frees->first = task;
    frees->last = task;
    frees->since_ns = frees->since_ns == 0 ? gb_clock_ns() : frees->since_ns;
    frees->of_host = frees->of_host || !gb_kind_of_device(kind);
    atomic_fetch_add(&frees->bytes, bytes);
    return true;
}

/* Frees all, or while the device stays idle. */
static void run(struct gb_frees *frees, bool all) {
    frees->running = true;
    do {
        struct gb_task *task = frees->first;

        frees->first = task->next;
        if (!frees->first)
            frees->last = NULL;
        task->run(task);
        atomic_fetch_add(&frees->made, 1);
    } while (frees->first && (all || idle(frees, frees->of_host)));
    frees->running = false;
    if (frees->first)
        return;
    frees->since_ns = 0;
    frees->of_host = false;
    atomic_store(&frees->hurry, false);
}

static bool overdue(const struct gb_frees *frees) {
    const struct gb_core_device *device = frees->device;

    return atomic_load(&frees->hurry) || atomic_load(&device->core->closing) ||
           gb_clock_ns() - frees->since_ns >= BOUND_NS ||
           atomic_load(&frees->bytes) > device->rec.total_bytes / BOUND_SHARE ||
           gb_backend_dead(device->core->backend, NULL);
}

bool gb_frees_retry(void *arg) {
    struct gb_core_device *device = arg;
    struct gb_frees *frees = device->frees;

    if (!frees->first)
        return false;
    if (idle(frees, frees->of_host))
        run(frees, false);
    else if (overdue(frees))
        run(frees, true);
    return frees->first != NULL;
}

void gb_frees_end(struct gb_frees *frees) {
    int i;

    if (!frees)
        return;
    if (frees->first)
        run(frees, true);
    for (i = 0; i < frees->device->core->device_count; i++)
        gb_event_pool_give(&frees->device->core->devices[i].events, frees->pending[i]);
    free(frees);
}

/* --- for others --------------------------------------------------------------------------------------------------- */

bool gb_frees_hurry(struct gb_core_device *device) {
    if (atomic_load(&device->frees->bytes) == 0)
        return false;
    atomic_store(&device->frees->hurry, true);
    return true;
}

uint64_t gb_frees_bytes(const struct gb_frees *frees) {
    return atomic_load(&frees->bytes);
}

uint64_t gb_frees_made(const struct gb_frees *frees) {
    return atomic_load(&frees->made);
}

/* The importer's own event. A lease that has one ends when the event is complete: the importer need not wait for its
 * work before it unmaps.
 *
 * No stream of the device waits for the event, because the importer may never complete it: a stream would wait for
 * ever. The lane looks at it, for a limited time. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/share/lease_internal.h"

void gb_lease_share_finished(struct gb_lease *lease) {
    struct gb_lease_grant *g = &lease->map->lease;
    struct gb_backend *be = lease->core->backend;
    struct gb_error why = GB_ERROR_INIT;

    if (lease->export.way == GB_EXPORT_MEMFD)
        gb_error_set(&why, GB_ERR_UNSUPPORTED, "no event stands for what the CPU does: unmap when it is done");
    else if (gb_event_create_shared(be, lease->content->device->index, &lease->finished, &why) == 0 &&
             gb_event_export(be, lease->finished, g->finished, &why) == 0)
        g->has_finished = true;
    if (g->has_finished)
        return;
    if (why.code != GB_ERR_UNSUPPORTED)
        gb_core_report_error(lease->core, &why);
    snprintf(g->finished_missing, sizeof(g->finished_missing), "%s", why.detail);
    gb_event_destroy(be, lease->finished);
    lease->finished = NULL;
}

/* Its work has ended with it, and the event may stay incomplete for ever. */
static bool process_gone(pid_t pid) {
    return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

/* 1: complete, or it will never be; 0: not yet; -1: its time is over. */
static int look_at(struct gb_lease *lease) {
    bool done = false;

    if (atomic_load(&lease->core->closing) || gb_event_query(lease->core->backend, lease->finished, &done, NULL) < 0 ||
        done || process_gone(lease->holder->pid))
        return 1;
    return gb_clock_ns() < lease->deadline_ns ? 0 : -1;
}

static void end(struct gb_lease *lease, bool in_time) {
    bool commit;

    if (!in_time)
        gb_error_set(&lease->error, GB_ERR_TIMED_OUT,
                     "the lease has ended, and its process's event was not complete after %d seconds",
                     GB_LEASE_FINISH_S);
    pthread_mutex_lock(&lease->session->lock);
    if (!in_time && lease->pin.write)
        lease->content->tainted = true;
    commit = gb_lease_decide_locked(lease);
    pthread_mutex_unlock(&lease->session->lock);
    gb_lease_leave(lease, commit);
}

bool gb_leases_finish(struct gb_core_device *device) {
    struct gb_lease *list = device->finishing;
    struct gb_lease *next;

    device->finishing = NULL;
    for (; list; list = next) {
        int r = look_at(list);

        next = list->next_waiting;
        if (r != 0) {
            end(list, r > 0);
            continue;
        }
        list->next_waiting = device->finishing;
        device->finishing = list;
    }
    return device->finishing != NULL;
}

/* On the lane, which looks after each task. */
static void begin(struct gb_task *task) {
    struct gb_lease *lease = (struct gb_lease *)task;
    struct gb_core_device *device = lease->content->device;

    lease->next_waiting = device->finishing;
    device->finishing = lease;
}

void gb_lease_finish(struct gb_lease *lease) {
    lease->deadline_ns = gb_clock_ns() + GB_LEASE_FINISH_S * GB_NS_PER_S;
    lease->task.run = begin;
    gb_lane_post(&lease->content->device->lane, &lease->task);
}

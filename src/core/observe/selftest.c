/* When selftests run: one after another, on a lane of their own that the first one starts. */
#include "core/observe/selftest.h"

#include <stdlib.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/observe/selftest_run.h"
#include "core/runtime/runtime.h"

struct gb_selftests {
    pthread_mutex_t lock; /* for running */
    atomic_bool over;     /* the daemon stops */
    struct gb_lane lane;
    bool running[]; /* or queued, of each device */
};

struct selftest {
    struct gb_task task;
    struct gb_core *core;
    struct gb_selftest_call *call;
};

struct gb_selftests *gb_selftests_new(int devices) {
    struct gb_selftests *selftests = calloc(1, sizeof(*selftests) + (size_t)devices * sizeof(selftests->running[0]));

    if (selftests)
        gb_mutex_init(&selftests->lock);
    return selftests;
}

void gb_selftests_free(struct gb_selftests *selftests) {
    if (!selftests)
        return;
    gb_lane_done(&selftests->lane);
    pthread_mutex_destroy(&selftests->lock);
    free(selftests);
}

void gb_selftests_stop(struct gb_core *core) {
    if (core->selftests)
        atomic_store(&core->selftests->over, true);
}

static void leave(struct gb_core *core, int device) {
    pthread_mutex_lock(&core->selftests->lock);
    core->selftests->running[device] = false;
    pthread_mutex_unlock(&core->selftests->lock);
}

static void run(struct gb_task *task) {
    struct selftest *test = gb_container_of(task, struct selftest, task);
    struct gb_core *core = test->core;
    struct gb_selftest_call *call = test->call;
    struct gb_error err = GB_ERROR_INIT;
    int r = gb_core_alive(core, &err);

    if (r == 0)
        r = gb_selftest_run(core->backend, &core->pinned, &core->selftests->over, call, &err);
    free(test);
    leave(core, call->device);
    gb_core_report_error(core, r < 0 ? &err : NULL);
    gb_call_finish(&call->base, r < 0 ? &err : NULL);
    gb_core_leave(core);
}

static int enter_locked(struct gb_selftests *selftests, int device, struct gb_error *err) {
    if (atomic_load(&selftests->over))
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    if (selftests->running[device])
        return gb_error_set(err, GB_ERR_SATURATED, "a selftest of device %d is running; ask again when it has ended",
                            device);
    if (!selftests->lane.started && gb_lane_init(&selftests->lane, "gb-selftest", gb_lane_no_more, NULL, err) < 0)
        return -1;
    selftests->running[device] = true;
    return 0;
}

static int enter(struct gb_core *core, int device, struct gb_error *err) {
    int r;

    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    if (gb_core_alive(core, err) < 0)
        return -1;
    pthread_mutex_lock(&core->selftests->lock);
    r = enter_locked(core->selftests, device, err);
    pthread_mutex_unlock(&core->selftests->lock);
    return r;
}

void gb_device_selftest(struct gb_core *core, int device, struct gb_selftest_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct selftest *test = calloc(1, sizeof(*test));
    int r = test ? enter(core, device, &err) : gb_no_memory(&err);

    if (r < 0) {
        free(test);
        gb_call_finish(&call->base, &err);
        return;
    }
    call->device = device;
    *test = (struct selftest){.task.run = run, .core = core, .call = call};
    gb_core_enter(core);
    gb_lane_post(&core->selftests->lane, &test->task);
}

#include "core/runtime/task.h"

#include "base/container.h"
#include "core/runtime/runtime.h"

static void run(struct gb_task *task) {
    struct gb_core_task *work = gb_container_of(task, struct gb_core_task, task);

    work->run(work);
}

void gb_core_run_task(struct gb_core *core, struct gb_core_task *work) {
    work->task.run = run;
    gb_lane_post(&core->report, &work->task);
}

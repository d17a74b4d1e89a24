/* Work of the CPU that takes long and that only a client waits for. Included by core.h. */
#ifndef GB_CORE_RUNTIME_TASK_H
#define GB_CORE_RUNTIME_TASK_H

#include "core/util/lane.h"

struct gb_core;

/* Runs run(work) once, on a lane of its own, after the others. gb_core_close runs what is left. */
struct gb_core_task {
    struct gb_task task;
    void (*run)(struct gb_core_task *work);
};
void gb_core_run_task(struct gb_core *core, struct gb_core_task *work);

#endif

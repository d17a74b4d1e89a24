/* Reading all files of a checkpoint. */
#include <stdlib.h>

#include "base/container.h"
#include "core/buffer/damage.h"
#include "core/checkpoint/check.h"
#include "core/stored/disks.h"

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane;
    struct gb_checkpoint_view view;
    struct gb_checkpoint_verify_call *call;
    struct gb_manifest manifest;
    struct gb_checkpoint_check check;
    bool begun;
};

static void finish(struct job *job, const struct gb_error *error) {
    struct gb_core *core = job->core;
    struct gb_checkpoint_verify_call *call = job->call;

    gb_checkpoint_check_done(&job->check);
    gb_manifest_done(&job->manifest);
    free(job);
    gb_call_finish(&call->base, error);
    gb_core_leave(core);
}

static int begin(struct job *job, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_checkpoint_manifest(job->core, &job->view.name, &job->manifest, &why) < 0) {
        if (gb_damage_is(&why) && gb_checkpoints_judge(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, why.code))
            gb_checkpoints_tell_damage(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, NULL, true);
        return gb_error_move(err, &why);
    }
    gb_checkpoints_judge(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, GB_OK);
    job->begun = true;
    job->check = (struct gb_checkpoint_check){
        .disk = job->core->config.disk, .manifest = &job->manifest, .name = job->view.name};
    return 0;
}

/* What is not damage says nothing of the file, and ends the call. */
static int note(struct job *job, const struct gb_error *why, struct gb_error *err) {
    size_t index = job->check.index - 1;
    const struct gb_manifest_entry *entry = &job->manifest.entries[index];
    struct gb_checkpoint_verify_call *call = job->call;
    bool there;

    call->buffers++;
    call->bytes += entry->bytes;
    if (why->code != GB_OK && !gb_damage_is(why))
        return gb_error_move(err, why);
    there = gb_checkpoints_judge(job->core, &job->view, index, why->code);
    if (why->code == GB_OK)
        return 0;
    if (gb_checkpoints_still(job->core, &job->view, err) < 0)
        return -1;
    if (there)
        gb_checkpoints_tell_damage(job->core, &job->view, index, &entry->buffer, true);
    if (call->told < GB_SWEEP_TOLD)
        call->files[call->told] = index;
    gb_checkpoint_skip(call->tell, &call->told, &call->damaged, &entry->buffer, why->code);
    return 0;
}

/* 0: all were read; 1: there is more; -1. */
static int step(struct job *job, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (!job->begun && begin(job, err) < 0)
        return -1;
    r = gb_checkpoint_check_step(&job->check, &why);
    if (r == 0 || r == 2)
        return r > 0;
    return note(job, &why, err) < 0 ? -1 : 1;
}

static void run(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_error err = GB_ERROR_INIT;

    if (step(job, &err) > 0)
        gb_lane_post(job->lane, &job->task);
    else
        finish(job, &err);
}

void gb_checkpoint_verify(struct gb_core *core, const struct gb_name *name, struct gb_checkpoint_verify_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint_view view;
    struct job *job = NULL;

    if (gb_checkpoints_look(core, name, true, &view, &err) == 0 && gb_disks_start(core, &err) == 0) {
        job = calloc(1, sizeof(*job));
        if (!job)
            gb_no_memory(&err);
    }
    if (!job) {
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    job->core = core;
    job->view = view;
    job->call = call;
    job->lane = gb_disks_lane(core);
    job->task.run = run;
    gb_lane_post(job->lane, &job->task);
}

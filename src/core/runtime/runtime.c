#include "core/runtime/runtime.h"

#include "core/public/lifecycle.h"
#include "core/util/look.h"

/* --- users of the core -------------------------------------------------------------------------------------------- */

void gb_core_enter(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    core->objects++;
    pthread_mutex_unlock(&core->objects_lock);
}

void gb_core_leave(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    if (--core->objects == 0)
        pthread_cond_broadcast(&core->objects_gone);
    pthread_mutex_unlock(&core->objects_lock);
}

void gb_core_wait(struct gb_core *core) {
    pthread_mutex_lock(&core->objects_lock);
    while (core->objects > 0)
        pthread_cond_wait(&core->objects_gone, &core->objects_lock);
    pthread_mutex_unlock(&core->objects_lock);
}

/* --- health ------------------------------------------------------------------------------------------------------- */

void gb_core_report_error(struct gb_core *core, const struct gb_error *err) {
    if (err && err->code == GB_ERR_DEVICE_LOST)
        core->on_device_lost(core);
}

int gb_core_alive(struct gb_core *core, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (!gb_backend_dead(core->backend, &why))
        return 0;
    if (err && err->code == GB_OK) {
        *err = why;
        if (err->code != GB_ERR_DEVICE_LOST) {
            err->code = GB_OK;
            gb_error_set(err, GB_ERR_DEVICE_LOST, "the device is lost; the daemon must be restarted");
        }
    }
    return -1;
}

int gb_core_health(struct gb_core *core, struct gb_error *err) {
    return gb_core_alive(core, err);
}

void gb_core_begin_turn(struct gb_core *core) {
    gb_look_begin();
    gb_store_begin_turn(core->store);
}

bool gb_core_end_turn(struct gb_core *core, bool idle) {
    bool looking = gb_look_end(); /* first: what is done may change something */

    return gb_store_end_turn(core->store, idle) || looking;
}

int gb_core_writable(struct gb_core *core, struct gb_error *err) {
    return gb_store_health(core->store, err);
}

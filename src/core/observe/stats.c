/* Statistics: reads of what is counted anyway. */
#include "core/observe/stats.h"
#include "core/observe/history.h"
#include "core/session/session.h"
#include "core/share/adopt.h"
#include "core/share/lease.h"
#include "core/share/lease_table.h"

uint64_t gb_core_sequence(struct gb_core *core) {
    return atomic_load(&core->sequence);
}

static void read_kinds(struct gb_core *core, struct gb_core_stats *ret) {
    int direction;
    int kind;

    for (direction = 0; direction < GB_DIRECTION_COUNT; direction++) {
        for (kind = 0; kind < GB_KIND_COUNT; kind++) {
            struct gb_kind_live_counters *t = &core->kinds[direction][kind];

            ret->kinds[direction][kind] = (struct gb_kind_counters){
                atomic_load(&t->count), atomic_load(&t->bytes), atomic_load(&t->copy_ns), atomic_load(&t->queue_ns)};
        }
    }
}

void gb_core_stats(struct gb_core *core, struct gb_core_stats *ret) {
    int kind;

    /* First: a change that comes while the rest is read then has a higher number. */
    ret->sequence = atomic_load(&core->sequence);
    ret->started_at_us = core->started_at_us;
    gb_live_counters_read(&core->live_counters, &ret->counters);
    ret->sessions = atomic_load(&core->live_sessions);
    ret->buffers = atomic_load(&core->live_buffers);
    ret->buffer_bytes = atomic_load(&core->buffer_bytes);
    ret->lost_buffers = atomic_load(&core->lost_buffers);
    ret->damaged_buffers = atomic_load(&core->damaged_buffers);
    ret->stored_buffers = atomic_load(&core->stored_buffers);
    ret->mirrored_buffers = atomic_load(&core->mirrored_buffers);
    ret->mirrored_bytes = atomic_load(&core->mirrored_bytes);
    ret->leases = atomic_load(&core->leases->live);
    ret->held_bytes = atomic_load(&core->held_bytes);
    ret->adopted = gb_leases_adopted(core->leases);
    ret->adopted_bytes_max = core->config.adopted_bytes_max ? core->config.adopted_bytes_max : GB_ADOPTED_BYTES_MAX;
    ret->uploads_running = atomic_load(&core->uploads_running);
    ret->open_upload_bytes = atomic_load(&core->multipart_bytes);
    ret->downloads_running = atomic_load(&core->downloads_running);
    ret->writes_running = atomic_load(&core->writes_running);
    read_kinds(core, ret);
    gb_level_read(&core->level, &ret->level);
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        gb_alloc_counters_read(&core->memory[kind], &ret->kind_memory[kind]);
    ret->pinned_bytes = atomic_load(&core->pinned.used_bytes);
    ret->pinned_limit_bytes = core->pinned.limit_bytes;
    ret->slots_total = core->slots.total;
    ret->slots_free = atomic_load(&core->slots.free_count);
    ret->slot_bytes = core->slots.slot_bytes;
    ret->slot_waits = atomic_load(&core->slots.waits);
    ret->slots_wanted = atomic_load(&core->slots.wanted);
    gb_store_stat(core->store, &ret->store);
    gb_audit_numbers(core, &ret->audit);
}

int gb_device_numbers(struct gb_core *core, int device, struct gb_device_numbers *ret, struct gb_error *err) {
    struct gb_core_device *d;

    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d", device);
    d = &core->devices[device];
    *ret = (struct gb_device_numbers){.total_bytes = d->rec.total_bytes,
                                      .free_bytes = atomic_load(&d->free_bytes),
                                      .pools = atomic_load(&d->pools_live),
                                      .pools_used_bytes = atomic_load(&d->pools_used_bytes),
                                      .reserved_bytes = atomic_load(&d->reserved_bytes)};
    gb_alloc_counters_read(&d->memory, &ret->memory);
    return 0;
}

int gb_session_stats(struct gb_core *core, const struct gb_name *name, struct gb_session_stats *ret,
                     struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);

    if (!s)
        return -1;
    ret->sequence = atomic_load(&core->sequence);
    gb_live_counters_read(&s->live_counters, &ret->counters);
    gb_level_read(&s->level, &ret->level);
    pthread_mutex_lock(&s->lock);
    ret->session.rec.labels = ret->session.rec.holders = NULL;
    gb_session_view_locked(s, &ret->session);
    gb_session_rec_done(&ret->session.rec);
    ret->lost_buffers = s->lost_buffers;
    ret->leases = s->leases;
    ret->held_bytes = s->held_bytes;
    ret->adopted = s->adopted;
    ret->open_uploads = s->multiparts_open;
    ret->open_upload_bytes = s->multipart_bytes;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return 0;
}

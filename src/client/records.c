/* The daemon's JSON as records. */
#include <string.h>

#include "client/read.h"
#include "client/text.h"

/* Within a function with `r` (the record) and `o` (the object): a field of the same name. */
#define TEXT(field) gbc_read_text(o, #field, r->field, sizeof(r->field))
#define U64(field) r->field = gbc_read_u64(o, #field)
#define REAL(field) r->field = gbc_read_real(o, #field)
#define BOOL(field) r->field = gbc_read_bool(o, #field)
#define OPT(field) r->field = gbc_read_opt(o, #field)
#define NAMED(field) (r->field[0] != '\0' ? 0 : -1)
#define RECORD(type)                                                                                                   \
    struct type *r = ret;                                                                                              \
    memset(r, 0, sizeof(*r))

int gbc_record_last_transfer(const json_t *buffer, void *ret) {
    const json_t *o = json_object_get(buffer, "last_transfer");
    char direction[GPUBUF_WORD_SIZE];
    RECORD(gpubuf_last_transfer);

    gbc_read_text(o, "direction", direction, sizeof(direction));
    r->known = json_is_object(o);
    r->upload = strcmp(direction, "upload") == 0;
    U64(bytes);
    REAL(queue_ms);
    REAL(copy_ms);
    TEXT(finished_at);
    return o ? 0 : -1;
}

int gbc_record_daemon(const json_t *o, void *ret) {
    const json_t *backend = json_object_get(o, "backend");
    RECORD(gpubuf_daemon);

    TEXT(version);
    TEXT(started_at);
    U64(devices);
    gbc_read_text(backend, "name", r->backend, sizeof(r->backend));
    gbc_read_text(backend, "note", r->backend_note, sizeof(r->backend_note));
    return NAMED(version);
}

int gbc_record_device(const json_t *o, void *ret) {
    RECORD(gpubuf_device);

    gbc_read_device(o, &r->id);
    TEXT(name);
    TEXT(compute_capability);
    U64(total_bytes);
    U64(free_bytes);
    BOOL(integrated);
    BOOL(cpu_access);
    return NAMED(id.uuid);
}

int gbc_record_session(const json_t *o, void *ret) {
    const json_t *quota = json_object_get(o, "quota");
    RECORD(gpubuf_session);

    TEXT(name);
    r->quota_bytes = gbc_read_opt(quota, "bytes");
    r->quota_buffers = gbc_read_opt(quota, "buffers");
    r->quota_pinned_bytes = gbc_read_opt(quota, "pinned_bytes");
    U64(idle_ttl_s);
    U64(used_bytes);
    U64(used_pinned_bytes);
    U64(buffers);
    TEXT(created_at);
    TEXT(updated_at);
    TEXT(durability);
    TEXT(spill);
    U64(priority);
    r->quota_stored_bytes = gbc_read_opt(quota, "stored_bytes");
    U64(used_stored_bytes);
    return NAMED(name);
}

int gbc_record_pool(const json_t *o, void *ret) {
    const json_t *reuse = json_object_get(o, "reuse");
    RECORD(gpubuf_pool);

    TEXT(name);
    TEXT(state);
    gbc_read_device(json_object_get(o, "device"), &r->device);
    OPT(max_bytes);
    OPT(release_threshold_bytes);
    r->follow_event_dependencies = gbc_read_bool(reuse, "follow_event_dependencies");
    r->allow_opportunistic = gbc_read_bool(reuse, "allow_opportunistic");
    r->allow_internal_dependencies = gbc_read_bool(reuse, "allow_internal_dependencies");
    BOOL(exportable);
    U64(used_bytes);
    U64(used_peak_bytes);
    U64(reserved_bytes);
    U64(reserved_peak_bytes);
    U64(kept_bytes);
    r->exported = gbc_read_bool(o, "exported");
    U64(allocations);
    U64(frees);
    U64(failures);
    U64(buffers);
    U64(reserved_before_bytes);
    U64(reserved_after_bytes);
    TEXT(note);
    U64(reuses);
    U64(growths);
    return NAMED(name);
}

int gbc_record_stream(const json_t *o, void *ret) {
    RECORD(gpubuf_stream);

    TEXT(name);
    TEXT(session);
    BOOL(busy);
    U64(devices);
    TEXT(created_at);
    return NAMED(name);
}

int gbc_record_event(const json_t *o, void *ret) {
    RECORD(gpubuf_event);

    TEXT(name);
    TEXT(session);
    BOOL(recorded);
    BOOL(done);
    TEXT(stream);
    TEXT(created_at);
    return NAMED(name);
}

static void read_side(const json_t *sides, const char *key, struct gpubuf_side *ret) {
    const json_t *o = json_object_get(sides, key);
    struct gpubuf_side *r = ret;

    U64(bytes);
    BOOL(current);
    BOOL(owned);
    BOOL(pinned);
}

int gbc_record_buffer(const json_t *o, void *ret) {
    struct gpubuf_opt crc = gbc_read_crc(o, "crc32c");
    RECORD(gpubuf_buffer);

    TEXT(name);
    TEXT(session);
    U64(bytes);
    TEXT(dtype);
    r->ndim = gbc_read_shape(o, r->shape);
    TEXT(kind);
    gbc_read_device(json_object_get(o, "device"), &r->device);
    TEXT(pool);
    TEXT(stream);
    TEXT(state);
    U64(generation);
    r->has_crc32c = crc.set;
    r->crc32c = (uint32_t)crc.value;
    BOOL(mirrored);
    TEXT(head);
    BOOL(sealed);
    BOOL(adopted);
    U64(leases);
    TEXT(created_at);
    TEXT(updated_at);
    BOOL(copied);
    TEXT(way);
    BOOL(escaped);
    read_side(json_object_get(o, "sides"), "host", &r->host_side);
    read_side(json_object_get(o, "sides"), "device", &r->device_side);
    TEXT(durability);
    U64(stored_generation);
    TEXT(tier);
    TEXT(spill);
    BOOL(resident);
    BOOL(damaged);
    return NAMED(name);
}

int gbc_record_stored(const json_t *o, void *ret) {
    RECORD(gpubuf_stored);

    U64(stored_generation);
    U64(bytes);
    BOOL(wrote);
    return r->stored_generation > 0 ? 0 : -1;
}

int gbc_record_swept(const json_t *o, void *ret) {
    RECORD(gpubuf_swept);

    U64(buffers);
    U64(bytes);
    U64(skipped_buffers);
    return json_object_get(o, "buffers") ? 0 : -1;
}

int gbc_record_storage(const json_t *o, void *ret) {
    const json_t *scrub = json_object_get(o, "scrub");
    char state[GPUBUF_WORD_SIZE];
    RECORD(gpubuf_storage);

    TEXT(state);
    TEXT(error);
    TEXT(dir);
    U64(free_bytes);
    U64(stored_buffers);
    U64(writes);
    U64(written_bytes);
    U64(failures);
    U64(damaged);
    U64(loads);
    U64(loaded_bytes);
    U64(load_failures);
    U64(cold_reads);
    U64(evictions);
    U64(evictions_for_room);
    U64(reloads_within_minute);
    U64(evictions_to_host);
    U64(loads_from_host);
    r->host_limit_bytes = gbc_read_u64(json_object_get(o, "host"), "limit_bytes");
    r->host_used_bytes = gbc_read_u64(json_object_get(o, "host"), "used_bytes");
    gbc_read_text(scrub, "state", state, sizeof(state));
    r->scrubbing = strcmp(state, "running") == 0;
    gbc_read_text(scrub, "last_ended", r->scrub_ended_at, sizeof(r->scrub_ended_at));
    return NAMED(state);
}

int gbc_record_scrubbed(const json_t *o, void *ret) {
    RECORD(gpubuf_scrubbed);

    TEXT(began);
    U64(files);
    U64(bytes);
    U64(damaged);
    U64(healed);
    U64(skipped);
    return NAMED(began);
}

int gbc_record_checkpoint(const json_t *o, void *ret) {
    RECORD(gpubuf_checkpoint);

    TEXT(name);
    TEXT(session);
    TEXT(state);
    TEXT(as_of);
    U64(buffers);
    U64(bytes);
    U64(linked_bytes);
    U64(written_bytes);
    U64(skipped_buffers);
    U64(damaged_files);
    return NAMED(name);
}

int gbc_record_checkpoint_verified(const json_t *o, void *ret) {
    RECORD(gpubuf_checkpoint_verified);

    BOOL(match);
    U64(buffers);
    U64(bytes);
    U64(damaged_buffers);
    return json_is_boolean(json_object_get(o, "match")) ? 0 : -1;
}

int gbc_record_restored(const json_t *o, void *ret) {
    RECORD(gpubuf_restored);

    TEXT(checkpoint);
    TEXT(session);
    U64(buffers);
    U64(bytes);
    U64(replaced);
    U64(loaded);
    U64(skipped_buffers);
    return NAMED(checkpoint);
}

int gbc_record_verified(const json_t *o, void *ret) {
    const json_t *digest = json_object_get(o, "digest");
    RECORD(gpubuf_verified);

    BOOL(match);
    r->compared = json_is_boolean(json_object_get(o, "match"));
    r->crc32c = (uint32_t)gbc_read_crc(o, "crc32c").value;
    r->stored_crc32c = gbc_read_crc(o, "stored_crc32c");
    U64(generation);
    U64(bytes);
    gbc_read_text(digest, "sha-256", r->sha256, sizeof(r->sha256));
    gbc_read_text(digest, "sha-512", r->sha512, sizeof(r->sha512));
    return gbc_read_crc(o, "crc32c").set ? 0 : -1;
}

int gbc_record_operation(const json_t *o, void *ret) {
    RECORD(gpubuf_operation);

    TEXT(id);
    TEXT(kind);
    TEXT(state);
    TEXT(session);
    TEXT(stream);
    TEXT(target);
    r->status = (int)gbc_read_u64(o, "status");
    TEXT(created_at);
    TEXT(ended_at);
    return NAMED(id);
}

int gbc_record_upload(const json_t *o, void *ret) {
    const json_t *missing = json_object_get(o, "missing");
    RECORD(gpubuf_upload);

    TEXT(id);
    TEXT(session);
    TEXT(buffer);
    TEXT(takes);
    TEXT(state);
    OPT(bytes);
    U64(received_bytes);
    U64(parts);
    U64(running);
    r->max_parts = gbc_read_u64(json_object_get(o, "limits"), "parts");
    U64(missing_ranges);
    while (r->missing_count < GPUBUF_MISSING_MAX && r->missing_count < json_array_size(missing)) {
        const json_t *range = json_array_get(missing, r->missing_count);

        r->missing[r->missing_count].offset = gbc_read_u64(range, "offset");
        r->missing[r->missing_count++].bytes = gbc_read_u64(range, "bytes");
    }
    TEXT(expires_at);
    return NAMED(id);
}

int gbc_record_part(const json_t *o, void *ret) {
    RECORD(gpubuf_part);

    U64(offset);
    U64(bytes);
    r->crc32c = (uint32_t)gbc_read_crc(o, "crc32c").value;
    U64(received_bytes);
    U64(missing_ranges);
    return gbc_read_crc(o, "crc32c").set ? 0 : -1;
}

int gbc_record_lease(const json_t *o, void *ret) {
    RECORD(gpubuf_lease);

    TEXT(lease);
    TEXT(session);
    TEXT(buffer);
    TEXT(mode);
    TEXT(way);
    TEXT(state);
    r->pid = json_integer_value(json_object_get(o, "pid"));
    r->uid = json_integer_value(json_object_get(o, "uid"));
    U64(generation);
    U64(bytes);
    TEXT(since);
    TEXT(expires_at);
    return NAMED(lease);
}

int gbc_record_exported(const json_t *o, void *ret) {
    const char *mode = json_string_value(json_object_get(o, "mode"));
    RECORD(gpubuf_exported);

    TEXT(lease);
    U64(offset);
    r->bytes = gbc_read_u64(o, "byte_size");
    gbc_read_device(json_object_get(o, "device"), &r->device);
    r->write = mode && strcmp(mode, "write") == 0;
    TEXT(expires_at);
    U64(generation);
    TEXT(etag);
    TEXT(dtype);
    r->ndim = gbc_read_shape(o, r->shape);
    return gbc_read_handle(json_object_get(json_object_get(o, "raw_handle"), "b64"), r->handle) ? NAMED(lease) : -1;
}

int gbc_record_tensors(const json_t *o, void *ret) {
    RECORD(gpubuf_tensors);

    U64(tensors);
    U64(created);
    U64(replaced);
    U64(bytes);
    return json_is_array(json_object_get(o, "items")) ? 0 : -1;
}

int gbc_record_batch(const json_t *o, void *ret) {
    RECORD(gpubuf_batch);

    U64(done);
    U64(failed);
    return json_is_array(json_object_get(o, "results")) ? 0 : -1;
}

static void transfers(const json_t *all, const char *what, struct gpubuf_transfers *r) {
    const json_t *o = json_object_get(all, what);

    U64(count);
    U64(bytes);
    U64(failures);
    REAL(seconds);
    REAL(seconds_copying);
    REAL(seconds_queued);
}

int gbc_record_stats(const json_t *o, void *ret) {
    const json_t *buffers = json_object_get(o, "buffers");
    const json_t *allocations = json_object_get(o, "allocations");
    const json_t *running = json_object_get(o, "running");
    const json_t *sharing = json_object_get(o, "sharing");
    const json_t *moved = json_object_get(o, "transfers");
    RECORD(gpubuf_stats);

    U64(sequence);
    TEXT(started_at);
    r->sessions = gbc_read_u64(json_object_get(o, "sessions"), "count");
    r->buffers = gbc_read_u64(buffers, "count");
    r->buffer_bytes = gbc_read_u64(buffers, "bytes");
    r->lost_buffers = gbc_read_u64(buffers, "lost");
    r->stored_buffers = gbc_read_u64(buffers, "stored");
    r->open_upload_bytes = gbc_read_u64(json_object_get(o, "open_uploads"), "bytes");
    r->uploads_running = gbc_read_u64(running, "uploads");
    r->downloads_running = gbc_read_u64(running, "downloads");
    r->writes_running = gbc_read_u64(running, "writes");
    r->allocations = gbc_read_u64(allocations, "count");
    r->allocation_failures = gbc_read_u64(allocations, "failures");
    r->allocated_peak_bytes = gbc_read_u64(allocations, "peak_bytes");
    r->largest_allocation_bytes = gbc_read_u64(allocations, "largest_bytes");
    r->leases = gbc_read_u64(sharing, "leases");
    r->held_bytes = gbc_read_u64(sharing, "held_bytes");
    r->adopted = gbc_read_u64(sharing, "adopted");
    r->maps = gbc_read_u64(sharing, "maps");
    r->unmaps = gbc_read_u64(sharing, "unmaps");
    transfers(moved, "upload", &r->upload);
    transfers(moved, "download", &r->download);
    transfers(moved, "copy", &r->copy);
    transfers(moved, "fill", &r->fill);
    r->mirrored_buffers = gbc_read_u64(json_object_get(buffers, "mirrored"), "count");
    r->mirrored_bytes = gbc_read_u64(json_object_get(buffers, "mirrored"), "bytes");
    r->mirror_copies = gbc_read_u64(json_object_get(moved, "mirror"), "copies");
    r->mirror_copy_bytes = gbc_read_u64(json_object_get(moved, "mirror"), "bytes");
    return json_is_object(buffers) ? 0 : -1;
}

int gbc_record_fleet(const json_t *o, void *ret) {
    RECORD(gpubuf_fleet);

    TEXT(state);
    TEXT(since);
    TEXT(why);
    TEXT(fleet);
    TEXT(node);
    TEXT(cluster_id);
    U64(incarnation);
    BOOL(draining);
    TEXT(fleet_uuid);
    return NAMED(state);
}

/* The network "default", else the first. */
static const char *usual_url(const json_t *urls) {
    const char *url = json_string_value(json_object_get(urls, "default"));

    return url ? url : json_string_value(json_object_iter_value(json_object_iter((json_t *)(uintptr_t)urls)));
}

int gbc_record_node(const json_t *o, void *ret) {
    const json_t *devices = json_object_get(o, "devices");
    const json_t *device;
    size_t i;
    RECORD(gpubuf_node);

    TEXT(name);
    TEXT(version);
    BOOL(alive);
    BOOL(draining);
    U64(incarnation);
    gbc_copy(r->url, sizeof(r->url), usual_url(json_object_get(o, "urls")));
    r->devices = json_array_size(devices);
    json_array_foreach(devices, i, device) {
        r->bytes += gbc_read_u64(device, "bytes");
        r->free_bytes += gbc_read_u64(device, "free_bytes");
        r->committed_bytes += gbc_read_u64(device, "committed_bytes");
    }
    return NAMED(name);
}

/* "http://host:7070/prefix" of "http://host:7070/prefix/v1/sessions/s". */
static void read_owner_url(struct gpubuf_fleet_session *r) {
    const char *path = strstr(r->url, "/v1/sessions/");

    gbc_copy(r->owner_url, path ? (size_t)(path - r->url) + 1 : sizeof(r->owner_url), r->url);
}

int gbc_record_fleet_session(const json_t *o, void *ret) {
    RECORD(gpubuf_fleet_session);

    TEXT(name);
    TEXT(node);
    U64(epoch);
    TEXT(on_partition);
    r->quota_bytes = gbc_read_opt(json_object_get(o, "quota"), "bytes");
    TEXT(url);
    read_owner_url(r);
    BOOL(owner_alive);
    BOOL(stale);
    U64(absent_s);
    return r->node[0] != '\0' ? NAMED(name) : -1;
}

/* A session, perhaps with its node: what is of the fleet stands apart. */
int gbc_record_taken(const json_t *o, void *ret) {
    const json_t *fleet = json_object_get(o, "fleet");
    RECORD(gpubuf_fleet_session);

    TEXT(name);
    TEXT(node);
    r->epoch = gbc_read_u64(fleet, "epoch");
    gbc_read_text(fleet, "on_partition", r->on_partition, sizeof(r->on_partition));
    r->quota_bytes = gbc_read_opt(json_object_get(o, "quota"), "bytes");
    TEXT(url);
    read_owner_url(r);
    r->owner_alive = true;
    return NAMED(name);
}

int gbc_record_moved(const json_t *o, void *ret) {
    const json_t *former = json_object_get(o, "former");
    RECORD(gpubuf_moved);

    gbc_read_text(o, json_object_get(o, "order") ? "session" : "name", r->name, sizeof(r->name));
    TEXT(node);
    TEXT(url);
    r->epoch = gbc_read_u64(o, "epoch");
    gbc_read_text(former, "node", r->former_node, sizeof(r->former_node));
    r->former_epoch = gbc_read_u64(former, "epoch");
    r->buffers = gbc_read_u64(o, "buffers");
    r->bytes = gbc_read_u64(o, "bytes");
    r->pulled_bytes = gbc_read_u64(o, "pulled_bytes");
    r->rounds = gbc_read_u64(o, "rounds");
    r->frozen_ms = json_number_value(json_object_get(o, "frozen_ms"));
    r->skipped_buffers = gbc_read_u64(o, "skipped_buffers");
    return NAMED(name);
}

int gbc_record_placed(const json_t *o, void *ret) {
    const struct gpubuf_fleet_session *r = ret;

    return gbc_record_taken(o, ret) == 0 && r->node[0] != '\0' ? 0 : -1;
}

/* Memory and events in other processes. */
#include "backend/host.h"

int gb_host_export(struct gb_backend *be, const struct gb_place *place, uint64_t bytes, struct gb_pool *pool,
                   enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err) {
    (void)be;
    (void)place;
    (void)bytes;
    (void)pool;
    (void)writable;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "no memory goes to other processes by way %s yet",
                        gb_export_way_name(way));
}

int gb_host_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    (void)be;
    (void)device;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "no events go to other processes yet");
}

int gb_host_event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                         struct gb_error *err) {
    (void)be;
    (void)event;
    (void)ret;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the event is not for other processes");
}

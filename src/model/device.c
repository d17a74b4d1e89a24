/* Devices: the kinds of memory and what a device can do with them, how memory reaches another process, and how the
 * device is. */
#include "model/device.h"

#include <stdio.h>
#include <unistd.h>

#include "base/text.h"

/* --- device ------------------------------------------------------------------------------------------------------- */

static const char *const kind_names[GB_KIND_COUNT] = {"device", "shared", "managed", "pinned", "pageable", "ipc"};

static const char *const capability_names[GB_CAP_COUNT] = {
#define GB_CAPABILITY(NAME, name) #name,
#include "model/capabilities.def"
#undef GB_CAPABILITY
};

static const char *const access_names[GB_POOL_ACCESS_COUNT] = {"none", "read_write"};
static const char *const type_names[GB_MEMORY_TYPE_COUNT] = {"unregistered", "host", "device", "managed"};
static const char *const way_names[GB_WAY_COUNT] = {"none", "device", "to_device", "from_device",
                                                    "host", "peer",   "staged"};

static const char *name_of(const char *const *names, unsigned count, unsigned index) {
    return index < count ? names[index] : "unknown";
}

const char *gb_kind_name(enum gb_kind kind) {
    return name_of(kind_names, GB_KIND_COUNT, kind);
}

int gb_kind_parse(const char *name, size_t len, enum gb_kind *ret_kind, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("kind", kind_names, GB_KIND_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_kind = (enum gb_kind)index;
    return 0;
}

const char *gb_capability_name(enum gb_capability capability) {
    return name_of(capability_names, GB_CAP_COUNT, capability);
}

const char *gb_pool_access_name(enum gb_pool_access access) {
    return name_of(access_names, GB_POOL_ACCESS_COUNT, access);
}

int gb_pool_access_parse(const char *name, size_t len, enum gb_pool_access *ret_access, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("access", access_names, GB_POOL_ACCESS_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_access = (enum gb_pool_access)index;
    return 0;
}

const char *gb_memory_type_name(enum gb_memory_type type) {
    return name_of(type_names, GB_MEMORY_TYPE_COUNT, type);
}

const char *gb_copy_way_name(enum gb_copy_way way) {
    return name_of(way_names, GB_WAY_COUNT, way);
}

/* --- export ------------------------------------------------------------------------------------------------------- */

static const char *const export_way_names[GB_EXPORT_WAYS] = {"vmm", "pool", "legacy", "memfd"};

const char *gb_export_way_name(enum gb_export_way way) {
    return (unsigned)way < GB_EXPORT_WAYS ? export_way_names[way] : "unknown";
}

int gb_export_way_find(const char *name, size_t len, enum gb_export_way *ret_way, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("way", export_way_names, GB_EXPORT_WAYS, name, len, &index, err) < 0)
        return -1;
    *ret_way = (enum gb_export_way)index;
    return 0;
}

void gb_export_done(struct gb_export *export) {
    if (export->fd >= 0)
        close(export->fd);
    export->fd = -1;
}

/* --- health ------------------------------------------------------------------------------------------------------- */

const char *gb_health_source_name(enum gb_health_source source) {
    static const char *const names[GB_HEALTH_SOURCES] = {"none", "nvml", "system"};

    return (unsigned)source < GB_HEALTH_SOURCES ? names[source] : "unknown";
}

const char *gb_clock_reason_name(enum gb_clock_reason reason) {
    static const char *const names[GB_CLOCK_REASONS] = {
#define GB_CLOCK_REASON(bit, name) [bit] = #name,
#include "model/clock_reasons.def"
#undef GB_CLOCK_REASON
    };

    return (unsigned)reason < GB_CLOCK_REASONS ? names[reason] : "unknown";
}

void gb_health_clear(struct gb_health *ret, const char *reason) {
    *ret = (struct gb_health){
        .gpu_utilization = NAN, .memory_utilization = NAN, .temperature_c = NAN, .power_w = NAN, .power_limit_w = NAN};
    snprintf(ret->reason, sizeof(ret->reason), "%s", reason ? reason : "");
}

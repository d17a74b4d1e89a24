#include "model/device.h"

#include "model/word.h"

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

/* Records of sessions, buffers, pools and devices, made of their lists of fields: copied, merged and completed; and the
 * words of their values. Labels are counted references. All folders above call it. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* --- model -------------------------------------------------------------------------------------------------------- */

static const char *const state_names[GB_BUFFER_STATE_COUNT] = {"ready", "partial", "lost", "stored"};
static const char *const head_names[GB_HEAD_COUNT] = {"uninitialized", "host", "device", "synced"};

static void ref_text(void *at) {
    gb_text_ref(*(struct gb_text **)at);
}

static void unset_text(void *at) {
    gb_text_set(at, NULL);
}

static void keep_value(void *at) {
    (void)at;
}

/* Take or drop the reference of a field that is one; nothing for other fields. */
#define REF(field) _Generic(&(field), struct gb_text * * : ref_text, default : keep_value)(&(field))
#define UNSET(field) _Generic(&(field), struct gb_text * * : unset_text, default : keep_value)(&(field))

void gb_session_rec_set(struct gb_session_rec *rec, const struct gb_session_rec *from) {
    struct gb_session_rec old = *rec;

    *rec = *from;
#define GB_SESSION_FIELD(name, ...) REF(rec->name);
#define GB_SESSION_QUOTA(...)
#include "model/session.def"
    gb_session_rec_done(&old);
}

void gb_session_rec_done(struct gb_session_rec *rec) {
#define GB_SESSION_FIELD(name, ...) UNSET(rec->name);
#define GB_SESSION_QUOTA(...)
#include "model/session.def"
}

void gb_buffer_rec_set(struct gb_buffer_rec *rec, const struct gb_buffer_rec *from) {
    struct gb_buffer_rec old = *rec;

    *rec = *from;
#define GB_BUFFER_FIELD(name, ...) REF(rec->name);
#include "model/buffer.def"
    gb_buffer_rec_done(&old);
}

void gb_buffer_rec_done(struct gb_buffer_rec *rec) {
#define GB_BUFFER_FIELD(name, ...) UNSET(rec->name);
#include "model/buffer.def"
}

void gb_pool_rec_merge(struct gb_pool_rec *rec, const struct gb_pool_rec *from, const struct gb_pool_given *given) {
#define MERGE_PLACE(name, at)
#define MERGE_FIXED(name, at)
#define MERGE_SET(name, at)                                                                                            \
    if (given->name)                                                                                                   \
        rec->at = from->at;
#define GB_POOL_FIELD(name, type, how, ...) MERGE_##how(name, name)
#define GB_POOL_CONFIG(name, type, how, ...) MERGE_##how(name, config.name)
#include "model/pool.def"
}

void gb_pool_rec_complete(struct gb_pool_rec *rec, const struct gb_pool_given *given) {
#define COMPLETE_PLACE(name, type, at, otherwise)
#define COMPLETE_FIXED(name, type, at, otherwise)                                                                      \
    if (!given->name)                                                                                                  \
        rec->at = (GB_C_##type)otherwise;
#define COMPLETE_SET COMPLETE_FIXED
#define GB_POOL_FIELD(name, type, how, since, otherwise, ...) COMPLETE_##how(name, type, name, otherwise)
#define GB_POOL_CONFIG(name, type, how, since, otherwise, ...) COMPLETE_##how(name, type, config.name, otherwise)
#include "model/pool.def"
}

const char *gb_buffer_state_name(enum gb_buffer_state state) {
    return (unsigned)state < GB_BUFFER_STATE_COUNT ? state_names[state] : "unknown";
}

int gb_buffer_state_parse(const char *name, size_t len, enum gb_buffer_state *ret_state, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("buffer state", state_names, GB_BUFFER_STATE_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_state = (enum gb_buffer_state)index;
    return 0;
}

const char *gb_head_name(enum gb_head head) {
    return (unsigned)head < GB_HEAD_COUNT ? head_names[head] : "unknown";
}

int gb_head_parse(const char *name, size_t len, enum gb_head *ret_head, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("head", head_names, GB_HEAD_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_head = (enum gb_head)index;
    return 0;
}

/* --- labels ------------------------------------------------------------------------------------------------------- */

int gb_labels_make(const char *text, struct gb_text **ret_labels, struct gb_error *err) {
    struct gb_text *labels = NULL;

    if (text[0] != '\0' && strcmp(text, "{}") != 0) {
        labels = gb_text_new(text, strlen(text));
        if (!labels)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the labels; try again later");
    }
    *ret_labels = labels;
    return 0;
}

const char *gb_labels_text(const struct gb_text *labels) {
    return labels ? gb_text_s(labels) : "{}";
}

/* --- stored ------------------------------------------------------------------------------------------------------- */

static const char *const durability_names[GB_DURABILITY_COUNT] = {
    [GB_DURABILITY_NONE] = "none", [GB_DURABILITY_BEHIND] = "behind", [GB_DURABILITY_SYNC] = "sync"};

const char *gb_durability_name(enum gb_durability durability) {
    return (unsigned)durability < GB_DURABILITY_COUNT ? durability_names[durability] : "unknown";
}

static const char *const spills[GB_SPILL_COUNT] = {
    [GB_SPILL_NEVER] = "never", [GB_SPILL_HOST] = "host", [GB_SPILL_DISK] = "disk"};

const char *gb_spill_name(enum gb_spill spill) {
    return (unsigned)spill < GB_SPILL_COUNT ? spills[spill] : "unknown";
}

int gb_spill_parse(const char *name, size_t len, enum gb_spill *ret, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("spill", spills, GB_SPILL_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret = (enum gb_spill)index;
    return 0;
}

int gb_durability_parse(const char *name, size_t len, enum gb_durability *ret, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("durability", durability_names, GB_DURABILITY_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret = (enum gb_durability)index;
    return 0;
}

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

bool gb_kind_of_device(enum gb_kind kind) {
    return kind == GB_KIND_DEVICE || kind == GB_KIND_SHARED || kind == GB_KIND_MANAGED || kind == GB_KIND_IPC;
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

/* What the devices' own pools have from the start: --default-pool-threshold and --default-pool-reuse. And what the log
 * says of pools then. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "daemon/daemon.h"

static int wrong(const char *option, const char *text, const char *permitted, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: \"%.64s\" is not permitted; permitted: %s", option, text,
                        permitted);
}

static int read_threshold(const char *text, struct gb_default_pools *ret, struct gb_error *err) {
    if (strcmp(text, "auto") == 0)
        return 0;
    ret->has_threshold = true;
    ret->release_threshold_bytes = GB_UNLIMITED;
    if (strcmp(text, "unlimited") == 0 || strcmp(text, "none") == 0 ||
        gb_parse_size(text, strlen(text), &ret->release_threshold_bytes) == GB_PARSE_OK)
        return 0;
    return wrong("default-pool-threshold", text,
                 "a number of bytes (suffixes K, M, G, T), unlimited, none (the same), or auto", err);
}

static bool *policy(struct gb_default_pools *pools, const char *word, size_t len) {
    const struct {
        const char *word;
        bool *on;
    } words[] = {{"event", &pools->follow_event_dependencies},
                 {"opportunistic", &pools->allow_opportunistic},
                 {"internal", &pools->allow_internal_dependencies}};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0)
            return words[i].on;
    }
    return NULL;
}

static int read_reuse(const char *text, struct gb_default_pools *ret, struct gb_error *err) {
    const char *at = text;

    ret->has_reuse = true;
    if (strcmp(text, "none") == 0)
        return 0;
    if (strcmp(text, "all") == 0) {
        ret->follow_event_dependencies = ret->allow_opportunistic = ret->allow_internal_dependencies = true;
        return 0;
    }
    for (;;) {
        size_t len = strcspn(at, ",");
        bool *on = policy(ret, at, len);

        if (!on)
            return wrong("default-pool-reuse", text, "event, opportunistic, internal between commas, or all or none",
                         err);
        *on = true;
        if (at[len] == '\0')
            return 0;
        at += len + 1;
    }
}

int gb_daemon_read_default_pools(const struct gb_options *options, struct gb_default_pools *ret, struct gb_error *err) {
    *ret = (struct gb_default_pools){.has_threshold = false};
    if (read_threshold(options->default_pool_threshold, ret, err) < 0)
        return -1;
    if (options->source[GB_OPTION_ID_default_pool_reuse] == GB_SOURCE_DEFAULT)
        return 0;
    return read_reuse(options->default_pool_reuse, ret, err);
}

static void log_poolless(const struct gb_daemon *daemon) {
    struct gb_device_rec rec;
    int i;

    for (i = 0; i < gb_device_count(daemon->core); i++) {
        if (gb_device_get(daemon->core, i, &rec, NULL) == 0 && rec.kind_missing[GB_KIND_DEVICE][0] != '\0')
            gb_log(&daemon->log, GB_LOG_INFO, "pool",
                   "device %d serves without pools and memory of kind \"device\": %s", i,
                   rec.kind_missing[GB_KIND_DEVICE]);
    }
}

struct lost_pools {
    struct gb_name session; /* of the first */
    struct gb_pool_view first;
    unsigned count;
};

static int count_lost(void *arg, const struct gb_name *session, const struct gb_pool_view *view, struct gb_error *err) {
    struct lost_pools *lost = arg;

    (void)err;
    if (!view->lost)
        return 0;
    if (lost->count++ == 0) {
        lost->session = *session;
        lost->first = *view;
    }
    return 0;
}

/* One line for all: there may be thousands. */
static void log_lost(const struct gb_daemon *daemon) {
    struct lost_pools lost = {.count = 0};
    char others[48] = "";
    uint64_t omitted;

    if (gb_pool_list_owned(daemon->core, UINT_MAX, count_lost, &lost, &omitted, NULL) < 0 || lost.count == 0)
        return;
    if (lost.count > 1)
        snprintf(others, sizeof(others), ", and %u more of sessions", lost.count - 1);
    gb_log(&daemon->log, GB_LOG_WARNING, "pool",
           "pool \"%s\" of session \"%s\" is lost%s: device %d does not make it, or is not there now; sessions whose "
           "current pool is lost use the device's own",
           lost.first.rec.name.s, lost.session.s, others, lost.first.rec.device);
}

void gb_daemon_log_pools(const struct gb_daemon *daemon) {
    struct gb_pool_view view;
    unsigned i;

    for (i = 0; gb_pool_count(daemon->core) > i && gb_pool_at(daemon->core, i, &view, NULL) == 0; i++) {
        if (!view.lost && view.rec.config.release_threshold_bytes != GB_UNLIMITED)
            gb_log(&daemon->log, GB_LOG_INFO, "pool",
                   "pool \"%s\" of device %d keeps %llu bytes of unused memory and gives back what is above",
                   view.rec.name.s, view.rec.device, (unsigned long long)view.rec.config.release_threshold_bytes);
    }
    log_poolless(daemon);
    log_lost(daemon);
}

/* The last reading of each device's health, taken by a thread of its own, and the notices about its changes. The thread
 * may hang in a driver, so no other thread waits for it. The housekeeper posts the changes; handlers read. */
#include "core/observe/health.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/public/lifecycle.h"
#include "core/public/observe.h"
#include "core/runtime/call.h"
#include "core/runtime/runtime.h"

/* The wait for a reading that is under way when the daemon stops; a reading that hangs is left behind. */
#define STOP_MS 500
/* A reading takes milliseconds; after this time its delay is shown. */
#define LATE_NS (5 * GB_NS_PER_S)

struct gb_health_watch {
    atomic_uint refs; /* the owner's and the thread's */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    enum gb_health_policy policy;
    char *root;
    uint64_t interval_ms;
    int count;
    struct gb_device_rec *devices;
    /* The lock: */
    struct gb_health *readings;
    uint64_t began_ns; /* of the reading that is under way; 0: none is */
    bool stopping;
    bool ended;
};

/* --- changes ------------------------------------------------------------------------------------------------------ */

unsigned gb_health_changes(const struct gb_health *before, const struct gb_health *now) {
    bool slow = now->has_reasons && (now->reasons & GB_CLOCK_TROUBLE) != 0;
    bool was_slow = before->has_reasons && (before->reasons & GB_CLOCK_TROUBLE) != 0;
    unsigned changes = 0;

    if (before->has_ecc && now->has_ecc && now->ecc_uncorrected > before->ecc_uncorrected)
        changes |= 1u << GB_HEALTH_ECC_ROSE;
    if (slow && !was_slow)
        changes |= 1u << GB_HEALTH_SLOWED_DOWN;
    if (was_slow && now->has_reasons && !slow)
        changes |= 1u << GB_HEALTH_RECOVERED;
    if (before->source != GB_HEALTH_NONE && now->source == GB_HEALTH_NONE)
        changes |= 1u << GB_HEALTH_LOST;
    return changes;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void unref(struct gb_health_watch *w) {
    if (!w || atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->root);
    free(w->devices);
    free(w->readings);
    free(w);
}

static void begin(struct gb_health_watch *w) {
    pthread_mutex_lock(&w->lock);
    w->began_ns = gb_clock_ns();
    pthread_mutex_unlock(&w->lock);
}

/* Returns true if the next device follows. */
static bool put(struct gb_health_watch *w, int device, const struct gb_health *reading) {
    bool stopping;

    pthread_mutex_lock(&w->lock);
    w->readings[device] = *reading;
    w->began_ns = 0;
    stopping = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return !stopping;
}

static bool wait_interval(struct gb_health_watch *w) {
    struct timespec until = gb_after_ms(w->interval_ms);
    bool stopping;
    int r = 0;

    pthread_mutex_lock(&w->lock);
    while (!w->stopping && r == 0)
        r = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    stopping = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return !stopping;
}

static bool read_all(struct gb_health_watch *w, struct gb_health_reader *reader) {
    struct gb_health reading;
    int i;

    for (i = 0; i < w->count; i++) {
        begin(w);
        gb_health_read(reader, &w->devices[i], &reading);
        if (!put(w, i, &reading))
            return false;
    }
    return true;
}

static void *watch_main(void *arg) {
    struct gb_health_watch *w = arg;
    struct gb_health_reader *reader = gb_health_reader_new(w->policy, w->root);

    while (reader && read_all(w, reader) && wait_interval(w))
        ;
    gb_health_reader_free(reader);
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    unref(w);
    return NULL;
}

static struct gb_health_watch *new_watch(const char *root, const struct gb_device_rec *devices, int count) {
    struct gb_health_watch *w = calloc(1, sizeof(*w));
    size_t n = (size_t)count;
    int i;

    if (!w)
        return NULL;
    atomic_init(&w->refs, 1);
    gb_mutex_init(&w->lock);
    gb_cond_init(&w->wake);
    w->count = count;
    w->root = strdup(root ? root : "");
    w->devices = calloc(n + 1, sizeof(*w->devices));
    w->readings = calloc(n + 1, sizeof(*w->readings));
    if (!w->root || !w->devices || !w->readings) {
        unref(w);
        return NULL;
    }
    memcpy(w->devices, devices, n * sizeof(*devices));
    for (i = 0; i < count; i++)
        gb_health_clear(&w->readings[i], "it was not read yet");
    return w;
}

int gb_health_watch_start(enum gb_health_policy policy, const char *root, uint64_t interval_ms,
                          const struct gb_device_rec *devices, int count, struct gb_health_watch **ret,
                          struct gb_error *err) {
    struct gb_health_watch *w = new_watch(root, devices, count);

    if (!w)
        return gb_no_memory(err);
    w->policy = policy;
    w->interval_ms = interval_ms;
    atomic_store(&w->refs, 2);
    if (gb_thread_start(&w->thread, "gb-health", watch_main, w, err) < 0) {
        atomic_store(&w->refs, 1);
        unref(w);
        return -1;
    }
    *ret = w;
    return 0;
}

void gb_health_watch_stop(struct gb_health_watch *w) {
    struct timespec until = gb_after_ms(STOP_MS);
    bool ended;
    int r = 0;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->wake);
    while (!w->ended && r == 0)
        r = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    if (ended)
        pthread_join(w->thread, NULL);
    else
        pthread_detach(w->thread);
    unref(w);
}

void gb_health_watch_get(struct gb_health_watch *w, int device, struct gb_health *ret) {
    uint64_t began_ns;

    if (!w || device < 0 || device >= w->count) {
        gb_health_clear(ret, "the daemon was told not to look");
        return;
    }
    pthread_mutex_lock(&w->lock);
    *ret = w->readings[device];
    began_ns = w->began_ns;
    pthread_mutex_unlock(&w->lock);
    if (began_ns > 0 && gb_clock_ns() - began_ns > LATE_NS)
        snprintf(ret->reason, sizeof(ret->reason), "the driver has not answered for %llu seconds",
                 (unsigned long long)((gb_clock_ns() - began_ns) / GB_NS_PER_S));
}

/* --- the core's --------------------------------------------------------------------------------------------------- */

int gb_core_health_start(struct gb_core *core, struct gb_error *err) {
    struct gb_device_rec *devices;
    int r;
    int i;

    if (core->config.health_interval_ms == 0 || core->config.health_policy == GB_HEALTH_OFF)
        return 0;
    devices = calloc((size_t)core->device_count, sizeof(*devices));
    if (!devices)
        return gb_no_memory(err);
    for (i = 0; i < core->device_count; i++) {
        devices[i] = core->devices[i].rec;
        gb_health_clear(&core->devices[i].health_seen, NULL);
    }
    r = gb_health_watch_start(core->config.health_policy, core->config.health_root, core->config.health_interval_ms,
                              devices, core->device_count, &core->health, err);
    free(devices);
    return r;
}

static void tell(struct gb_core *core, int device, const struct gb_health *before, const struct gb_health *now) {
    unsigned changes = gb_health_changes(before, now);
    char text[128];
    int i;

    if (changes & 1u << GB_HEALTH_ECC_ROSE) {
        snprintf(text, sizeof(text), "%llu errors more that ECC could not correct, %llu in its lifetime",
                 (unsigned long long)(now->ecc_uncorrected - before->ecc_uncorrected),
                 (unsigned long long)now->ecc_uncorrected);
        gb_feed_health(core, device, text);
    }
    if (changes & 1u << GB_HEALTH_SLOWED_DOWN) {
        int used = snprintf(text, sizeof(text), "slowed down:");

        for (i = 0; i < GB_CLOCK_REASONS; i++) {
            if (now->reasons & GB_CLOCK_TROUBLE & 1u << i)
                used += snprintf(text + used, sizeof(text) - (size_t)used, " %s",
                                 gb_clock_reason_name((enum gb_clock_reason)i));
        }
        gb_feed_health(core, device, text);
    }
    if (changes & 1u << GB_HEALTH_RECOVERED)
        gb_feed_health(core, device, "the slowdown is over");
    if (changes & 1u << GB_HEALTH_LOST) {
        snprintf(text, sizeof(text), "not known any more: %.70s", now->reason);
        gb_feed_health(core, device, text);
    }
}

void gb_core_health_tick(struct gb_core *core) {
    struct gb_health now;
    int i;

    for (i = 0; core->health && i < core->device_count; i++) {
        struct gb_health *seen = &core->devices[i].health_seen;

        gb_health_watch_get(core->health, i, &now);
        if (now.at_us == 0 || now.at_us == seen->at_us)
            continue;
        if (seen->at_us > 0) /* how it was found at the start is no news */
            tell(core, i, seen, &now);
        *seen = now;
    }
}

int gb_device_health(struct gb_core *core, int device, struct gb_health *ret, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    gb_health_watch_get(core->health, device, ret);
    return 0;
}

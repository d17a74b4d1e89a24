#include "core/device/copy_sample.h"

#include "base/clock.h"
#include "base/thread.h"

#define FRESH_NS GB_NS_PER_MS

void gb_copy_sample_init(struct gb_copy_sample *sample) {
    *sample = (struct gb_copy_sample){.bytes = 0};
    gb_mutex_init(&sample->lock);
}

void gb_copy_sample_done(struct gb_copy_sample *sample) {
    pthread_mutex_destroy(&sample->lock);
}

bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool fresh;

    pthread_mutex_lock(&sample->lock);
    fresh = sample->bytes == bytes && bytes > 0 && now_ns < sample->at_ns + FRESH_NS;
    if (fresh)
        *ret = sample->times;
    pthread_mutex_unlock(&sample->lock);
    return fresh;
}

void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times) {
    uint64_t now_ns = gb_clock_ns();

    pthread_mutex_lock(&sample->lock);
    sample->times = *times;
    sample->bytes = bytes;
    sample->at_ns = now_ns;
    pthread_mutex_unlock(&sample->lock);
}

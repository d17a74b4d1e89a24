#include "http/limits/bucket.h"

#include "base/clock.h"

/* Longer than any process lasts, and the sum of a few of it is still a number. */
#define FOREVER_NS (1ull << 60)

uint64_t gb_bucket_ns(struct gb_bucket_rate rate, uint64_t n) {
    double ns = (double)n * GB_NS_PER_S / (double)rate.per_s;

    return ns < (double)FOREVER_NS ? (uint64_t)ns : FOREVER_NS;
}

static uint64_t full_ns(const struct gb_bucket *bucket, uint64_t now_ns) {
    uint64_t full = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);

    return full > now_ns ? full : now_ns;
}

bool gb_bucket_take(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    uint64_t ns = gb_bucket_ns(rate, n);
    uint_fast64_t was = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);
    uint64_t full;

    do {
        full = (was > now_ns ? was : now_ns) + ns;
        if (full - now_ns > room_ns)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &was, full, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void gb_bucket_charge(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint_fast64_t was = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);
    uint64_t ns = gb_bucket_ns(rate, n);
    uint64_t full;

    do {
        full = (was > now_ns ? was : now_ns) + ns;
        if (full - now_ns > FOREVER_NS)
            full = now_ns + FOREVER_NS;
    } while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &was, full, memory_order_relaxed,
                                                    memory_order_relaxed));
}

uint64_t gb_bucket_left(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns) {
    uint64_t used_ns = full_ns(bucket, now_ns) - now_ns;
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    double left = used_ns < room_ns ? (double)(room_ns - used_ns) * (double)rate.per_s / GB_NS_PER_S : 0;

    return left < (double)rate.burst ? (uint64_t)left : rate.burst;
}

uint64_t gb_bucket_wait_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint64_t used_ns = full_ns(bucket, now_ns) - now_ns;
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    uint64_t want_ns = gb_bucket_ns(rate, n);

    if (want_ns > room_ns)
        want_ns = room_ns;
    return used_ns + want_ns > room_ns ? used_ns + want_ns - room_ns : 0;
}

uint64_t gb_bucket_debt_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns) {
    return gb_bucket_wait_ns(bucket, rate, 0, now_ns);
}

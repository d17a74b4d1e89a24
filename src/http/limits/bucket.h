/* A token bucket in one number: the time at which it will be full again. Lock-free.
 *
 * A bucket is empty when that time lies `burst` of the rate in the future. What is charged without asking takes it
 * further: a debt, which is paid with time. */
#ifndef GB_HTTP_LIMITS_BUCKET_H
#define GB_HTTP_LIMITS_BUCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gb_bucket {
    atomic_uint_fast64_t full_ns; /* on gb_clock_ns() */
};

/* What a bucket holds, and how fast it fills. per_s: not 0. */
struct gb_bucket_rate {
    uint64_t per_s;
    uint64_t burst;
};

/* How long n take to come; a few decades at most. */
uint64_t gb_bucket_ns(struct gb_bucket_rate rate, uint64_t n);
/* Takes n, if they are there; true. */
bool gb_bucket_take(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* Takes n, whether they are there or not. */
void gb_bucket_charge(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* What is there. */
uint64_t gb_bucket_left(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns);
/* The time until n are there (of at most the burst). */
uint64_t gb_bucket_wait_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* The debt: the time until the bucket is no longer below empty. */
uint64_t gb_bucket_debt_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns);

#endif

/* Buckets, and the table of clients: what one client is, and what a flood of addresses does. */
#include <string.h>

#include "base/clock.h"
#include "gb_test.h"
#include "http/limits/limits.h"

#define NOW (1000 * GB_NS_PER_S)

static struct gb_clients *clients;

static struct gb_client_key key(uint64_t low) {
    return (struct gb_client_key){.low = low};
}

/* --- buckets ------------------------------------------------------------------------------------------------------ */

START_TEST(a_bucket_gives_its_burst_and_then_its_rate) {
    struct gb_bucket_rate rate = {.per_s = 10, .burst = 3};
    struct gb_bucket b = {0};
    int i;

    for (i = 0; i < 3; i++)
        ck_assert(gb_bucket_take(&b, rate, 1, NOW));
    ck_assert(!gb_bucket_take(&b, rate, 1, NOW));
    ck_assert_uint_eq(gb_bucket_left(&b, rate, NOW), 0);
    ck_assert_uint_eq(gb_bucket_wait_ns(&b, rate, 1, NOW), GB_NS_PER_S / 10);
    ck_assert(!gb_bucket_take(&b, rate, 1, NOW + GB_NS_PER_S / 10 - 1));
    ck_assert(gb_bucket_take(&b, rate, 1, NOW + GB_NS_PER_S / 10));
    ck_assert_uint_eq(gb_bucket_left(&b, rate, NOW + 10 * GB_NS_PER_S), 3); /* never more than the burst */
}
END_TEST

START_TEST(a_debt_is_paid_with_time) {
    struct gb_bucket_rate rate = {.per_s = 1 << 20, .burst = 1 << 20};
    struct gb_bucket b = {0};

    gb_bucket_charge(&b, rate, 3 << 20, NOW);
    ck_assert_uint_eq(gb_bucket_debt_ns(&b, rate, NOW), 2 * GB_NS_PER_S);
    ck_assert(!gb_bucket_take(&b, rate, 1, NOW + 2 * GB_NS_PER_S));
    ck_assert_uint_eq(gb_bucket_debt_ns(&b, rate, NOW + 2 * GB_NS_PER_S), 0);
    ck_assert_uint_eq(gb_bucket_left(&b, rate, NOW + 3 * GB_NS_PER_S), 1 << 20);
    /* What can never be there is waited for until the bucket is full. */
    ck_assert_uint_eq(gb_bucket_wait_ns(&b, rate, 9 << 20, NOW + 2 * GB_NS_PER_S), GB_NS_PER_S);
}
END_TEST

START_TEST(large_bodies_do_not_overflow) {
    struct gb_bucket_rate rate = {.per_s = 1ull << 40, .burst = 1ull << 40};
    struct gb_bucket b = {0};

    gb_bucket_charge(&b, rate, 1ull << 42, NOW);
    ck_assert_uint_eq(gb_bucket_debt_ns(&b, rate, NOW), 3 * GB_NS_PER_S);
}
END_TEST

/* What takes longer than there are nanoseconds to count is a debt that is never paid, and no small one. */
START_TEST(times_do_not_overflow) {
    struct gb_bucket_rate slow = {.per_s = 1, .burst = 1};
    struct gb_bucket_rate wide = {.per_s = 1, .burst = 1ull << 40};
    struct gb_bucket b = {0};
    int i;

    for (i = 0; i < 40; i++) {
        gb_bucket_charge(&b, slow, 1ull << (24 + i), NOW);
        ck_assert_uint_ge(gb_bucket_debt_ns(&b, slow, NOW), ((1ull << 24) - 1) * GB_NS_PER_S);
        ck_assert(!gb_bucket_take(&b, slow, 1, NOW));
        ck_assert_uint_eq(gb_bucket_left(&b, slow, NOW), 0);
    }
    b = (struct gb_bucket){0};
    ck_assert_uint_gt(gb_bucket_left(&b, wide, NOW), 1000000);
    ck_assert_uint_le(gb_bucket_left(&b, wide, NOW), wide.burst);
    ck_assert(gb_bucket_take(&b, wide, 1000000, NOW));
    ck_assert_uint_eq(gb_bucket_debt_ns(&b, wide, NOW), 0);
}
END_TEST

START_TEST(a_bound_has_a_burst_for_each_rate) {
    struct gb_http_bound bound = {.requests_s = 10, .bytes_s = 1000};
    struct gb_http_bound whole = gb_limits_whole(&bound);

    ck_assert_uint_eq(whole.requests_burst, 20);
    ck_assert_uint_eq(whole.bytes_burst, 1000);
    bound.bytes_burst = 1;
    bound.requests_burst = 1;
    whole = gb_limits_whole(&bound);
    ck_assert_uint_eq(whole.requests_burst, 1);
    ck_assert_uint_eq(whole.bytes_burst, 251);
}
END_TEST

/* --- clients ------------------------------------------------------------------------------------------------------ */

static struct gb_client_key key_of(const char *text, bool *ret_loopback) {
    struct gb_http_address address;

    ck_assert(gb_http_address_read(text, strlen(text), &address));
    return gb_client_key_of(&address, ret_loopback);
}

START_TEST(what_one_client_is) {
    static const struct {
        const char *one;
        const char *other;
        bool same;
        bool loopback;
    } pairs[] = {{"192.0.2.1", "192.0.2.1", true, false},       {"192.0.2.1", "192.0.2.2", false, false},
                 {"2001:db8::1", "2001:db8::2:1", true, false}, {"2001:db8::1", "2001:db8:0:1::1", false, false},
                 {"fe80::1", "fe80::2", false, false},          {"::ffff:192.0.2.1", "192.0.2.1", true, false},
                 {"127.0.0.1", "127.0.0.2", false, true},       {"::1", "::1", true, true}};
    size_t i;

    for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        bool loopback;
        struct gb_client_key one = key_of(pairs[i].one, &loopback);
        struct gb_client_key other = key_of(pairs[i].other, &loopback);

        ck_assert_msg((one.high == other.high && one.low == other.low) == pairs[i].same, "%s", pairs[i].one);
        ck_assert_msg(loopback == pairs[i].loopback, "%s", pairs[i].one);
    }
}
END_TEST

START_TEST(a_client_is_remembered) {
    struct gb_http_bound bound = {.requests_s = 1, .requests_burst = 1, .waits = 2};
    struct gb_client *a;
    struct gb_client *b;

    clients = gb_clients_new(64, NULL);
    a = gb_client_get_bound(clients, key(1), &bound);
    ck_assert(gb_bucket_take(&a->requests, gb_client_requests(a), 1, NOW));
    gb_client_unref(a);
    b = gb_client_get_bound(clients, key(1), &bound);
    ck_assert_ptr_eq(a, b);
    ck_assert(!gb_bucket_take(&b->requests, gb_client_requests(b), 1, NOW));
    ck_assert(gb_client_open(b, GB_OPEN_WAITS) && gb_client_open(b, GB_OPEN_WAITS));
    ck_assert(!gb_client_open(b, GB_OPEN_WAITS));
    gb_client_close(b, GB_OPEN_WAITS);
    ck_assert(gb_client_open(b, GB_OPEN_WAITS));
    ck_assert(gb_client_open(b, GB_OPEN_UPLOADS)); /* has no bound */
    ck_assert_uint_eq(gb_clients_count(clients), 1);
    gb_client_unref(b);
    gb_clients_unref(clients);
}
END_TEST

/* Takes every record that there is. */
static unsigned fill(struct gb_client **held, unsigned max) {
    unsigned n = 0;
    uint64_t i;

    for (i = 0; n < max && gb_clients_count(clients) < max; i++)
        held[n++] = gb_client_get(clients, key(1000 + i));
    return n;
}

START_TEST(a_flood_of_addresses_takes_no_more_memory) {
    struct gb_client *kept;
    uint64_t i;

    clients = gb_clients_new(64, NULL);
    kept = gb_client_get(clients, key(7));
    atomic_store(&kept->replies, 42);
    for (i = 0; i < 100000; i++)
        gb_client_unref(gb_client_get(clients, key(1000 + i)));
    ck_assert_uint_le(gb_clients_count(clients), 64);
    /* What is in use stays. */
    ck_assert_ptr_eq(gb_client_get(clients, key(7)), kept);
    ck_assert_uint_eq(atomic_load(&kept->replies), 42);
    gb_clients_unref(clients);
}
END_TEST

START_TEST(clients_that_find_no_place_share_one) {
    struct gb_client *held[4096];
    unsigned shared = 0;
    unsigned n;
    uint64_t i;

    clients = gb_clients_new(64, NULL);
    n = fill(held, 64);
    ck_assert_uint_ge(n, 4);
    for (i = 0; i < 200; i++) {
        struct gb_client *c = gb_client_get(clients, key(900000 + i));

        shared += c == &c->shard->shared;
        ck_assert_int_eq(gb_client_failed(c, 1000, NOW), 0); /* it works as any other */
    }
    ck_assert_uint_ge(shared, 1);
    ck_assert_uint_le(gb_clients_count(clients), 64);
    gb_clients_unref(clients);
}
END_TEST

START_TEST(the_oldest_gives_way) {
    struct gb_client *first;
    unsigned again = 0;
    uint64_t i;

    clients = gb_clients_new(GB_CLIENTS_SHARDS * 2, NULL);
    first = gb_client_get(clients, key(1));
    ck_assert_uint_gt(gb_client_failed(first, 0, NOW), 0);
    gb_client_unref(first);
    for (i = 0; i < 1000; i++)
        gb_client_unref(gb_client_get(clients, key(1000 + i)));
    first = gb_client_get(clients, key(1));
    again = first->failures;
    ck_assert_uint_eq(again, 0); /* it was forgotten */
    gb_client_unref(first);
    gb_clients_unref(clients);
}
END_TEST

START_TEST(failures_take_longer_and_longer) {
    static const uint64_t seconds[] = {0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60};
    struct gb_client *c;
    uint64_t now = NOW;
    size_t i;

    clients = gb_clients_new(64, NULL);
    c = gb_client_get(clients, key(1));
    for (i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        uint64_t ns = gb_client_failed(c, 3, now);

        ck_assert_uint_eq(ns, seconds[i] * GB_NS_PER_S);
        if (ns > 0) /* one that comes too early does not prolong it */
            ck_assert_uint_eq(gb_client_failed(c, 3, now + 1), ns - 1);
        now += ns;
    }
    now += (GB_CLIENT_FORGIVEN_S + 1) * GB_NS_PER_S;
    ck_assert_uint_eq(gb_client_failed(c, 3, now), 0);
    gb_client_unref(c);
    gb_clients_unref(clients);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("clients");

    gb_test_add(suite, "rate", a_bucket_gives_its_burst_and_then_its_rate, 10);
    gb_test_add(suite, "debt", a_debt_is_paid_with_time, 10);
    gb_test_add(suite, "large", large_bodies_do_not_overflow, 10);
    gb_test_add(suite, "overflow", times_do_not_overflow, 10);
    gb_test_add(suite, "burst", a_bound_has_a_burst_for_each_rate, 10);
    gb_test_add(suite, "one", what_one_client_is, 10);
    gb_test_add(suite, "remembered", a_client_is_remembered, 10);
    gb_test_add(suite, "flood", a_flood_of_addresses_takes_no_more_memory, 10);
    gb_test_add(suite, "shared", clients_that_find_no_place_share_one, 10);
    gb_test_add(suite, "oldest", the_oldest_gives_way, 10);
    gb_test_add(suite, "failures", failures_take_longer_and_longer, 10);
    return gb_test_run(suite);
}

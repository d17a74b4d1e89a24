/* The table of places: the share of UNIX sockets, and which addresses are one. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "gb_test.h"
#include "http/server/state.h"

static struct sockaddr_storage address(const char *text) {
    struct sockaddr_storage s;
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    memset(&s, 0, sizeof(s));
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
        memcpy(&s, &four, sizeof(four));
    } else {
        ck_assert_int_eq(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
        memcpy(&s, &six, sizeof(six));
    }
    return s;
}

static enum gb_conn_slot take(struct gb_conn_slots *places, const char *text, struct gb_source **ret) {
    struct sockaddr_storage s = address(text);

    return gb_conn_slot_take(places, (struct sockaddr *)&s, false, ret);
}

static unsigned sources_of(const struct gb_conn_slots *places) {
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < GB_CONN_SLOTS_BUCKETS; i++)
        count += places->bucket[i] != NULL;
    return count;
}

START_TEST(the_share_of_unix_sockets) {
    static const uint64_t wanted[][2] = {{1, 0}, {2, 1}, {3, 1}, {16, 8}, {40, 8}, {128, 8}, {160, 10}, {8192, 512}};
    size_t i;

    for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        ck_assert_uint_eq(gb_conn_slots_kept(wanted[i][0]), wanted[i][1]);
}
END_TEST

/* For each pair: whether the second address finds the place that the first has taken. */
START_TEST(what_one_address_is) {
    static const struct {
        const char *one;
        const char *other;
        bool same;
    } pairs[] = {{"192.0.2.1", "192.0.2.1", true},       {"192.0.2.1", "192.0.2.2", false},
                 {"2001:db8::1", "2001:db8::2:1", true}, {"2001:db8::1", "2001:db8:0:1::1", false},
                 {"fe80::1", "fe80::2", false},          {"::ffff:192.0.2.1", "192.0.2.1", true},
                 {"::ffff:192.0.2.1", "::1", false}};
    static const char *const unbounded[] = {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"};
    static struct gb_conn_slots places;
    struct gb_source *held[4];
    size_t i;
    int n;

    ck_assert_int_eq(gb_conn_slots_init(&places, 100, 1, false, NULL), 0);
    for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        enum gb_conn_slot place;

        ck_assert_int_eq(take(&places, pairs[i].one, &held[0]), GB_CONN_SLOT_TAKEN);
        place = take(&places, pairs[i].other, &held[1]);
        ck_assert_msg(place == (pairs[i].same ? GB_CONN_SLOT_SOURCE : GB_CONN_SLOT_TAKEN), "%s and %s", pairs[i].one,
                      pairs[i].other);
        gb_conn_slot_end(&places, held[0]);
        if (place == GB_CONN_SLOT_TAKEN)
            gb_conn_slot_end(&places, held[1]);
    }
    for (i = 0; i < sizeof(unbounded) / sizeof(unbounded[0]); i++) {
        for (n = 0; n < 4; n++)
            ck_assert_msg(take(&places, unbounded[i], &held[n]) == GB_CONN_SLOT_TAKEN, "%s", unbounded[i]);
        while (n > 0)
            gb_conn_slot_end(&places, held[--n]);
    }
    places.bound_loopback = true;
    for (i = 0; i < sizeof(unbounded) / sizeof(unbounded[0]); i++) {
        ck_assert_int_eq(take(&places, unbounded[i], &held[0]), GB_CONN_SLOT_TAKEN);
        ck_assert_msg(take(&places, unbounded[i], &held[1]) == GB_CONN_SLOT_SOURCE, "%s", unbounded[i]);
        gb_conn_slot_end(&places, held[0]);
    }
    ck_assert_uint_eq(atomic_load(&places.taken) + atomic_load(&places.remote) + sources_of(&places), 0);
    gb_conn_slots_done(&places);
}
END_TEST

START_TEST(a_refusal_takes_nothing) {
    static struct gb_conn_slots places;
    struct gb_source *held[3];
    struct gb_source *other;
    int i;

    ck_assert_int_eq(gb_conn_slots_init(&places, 4, 2, true, NULL), 0);
    ck_assert_int_eq(take(&places, "192.0.2.1", &held[0]), GB_CONN_SLOT_TAKEN);
    ck_assert_int_eq(take(&places, "192.0.2.1", &held[1]), GB_CONN_SLOT_TAKEN);
    ck_assert_int_eq(take(&places, "192.0.2.1", &other), GB_CONN_SLOT_SOURCE);
    ck_assert_int_eq(take(&places, "192.0.2.2", &other), GB_CONN_SLOT_FULL); /* half is for UNIX sockets */
    ck_assert_ptr_null(other);
    ck_assert_uint_eq(atomic_load(&places.taken), 2);
    for (i = 0; i < 2; i++)
        ck_assert_int_eq(gb_conn_slot_take(&places, NULL, false, &other), GB_CONN_SLOT_TAKEN);
    ck_assert_int_eq(gb_conn_slot_take(&places, NULL, false, &other), GB_CONN_SLOT_FULL);
    ck_assert_uint_eq(atomic_load(&places.taken), 4);
    /* A listener counts for its address alone. */
    gb_conn_slot_leave(&places, held[0]);
    ck_assert_int_eq(take(&places, "192.0.2.1", &other), GB_CONN_SLOT_SOURCE);
    ck_assert_int_eq(take(&places, "192.0.2.2", &held[2]), GB_CONN_SLOT_TAKEN);
    gb_source_end(held[0]);
    gb_conn_slot_end(&places, held[1]);
    gb_conn_slot_end(&places, held[2]);
    gb_conn_slot_end(&places, NULL);
    gb_conn_slot_end(&places, NULL);
    ck_assert_uint_eq(atomic_load(&places.taken) + atomic_load(&places.remote) + sources_of(&places), 0);
    gb_conn_slots_done(&places);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("places");

    gb_test_add(suite, "share", the_share_of_unix_sockets, 10);
    gb_test_add(suite, "address", what_one_address_is, 10);
    gb_test_add(suite, "refusal", a_refusal_takes_nothing, 10);
    return gb_test_run(suite);
}

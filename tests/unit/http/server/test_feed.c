/* The feed's thread: many listeners, events from another thread, listeners that do not read, and the end. For the
 * thread sanitizer. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http/server/feed.h"

#define LISTENERS 16
#define EVENTS 3000
#define NOTHING 4 /* no event is of this topic */

struct source {
    struct gb_http_feed feed;
    pthread_mutex_t lock;
    uint64_t last;
    atomic_uint permitted;    /* the epoch of the present listeners */
    uint64_t known;           /* all frames up to there are in the ring */
    uint64_t scanned;         /* the listener to NOTHING has come so far */
    atomic_ullong ends_after; /* while this frame is read, the last event and the drain come; 0: never */
};

/* Another thread may do this between the reading of an event and its sending. */
static void end_meanwhile(struct source *s) {
    atomic_store(&s->ends_after, 0);
    pthread_mutex_lock(&s->lock);
    s->last++;
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->feed.draining, true);
    gb_http_feed_wake(&s->feed);
}

static size_t read_events(void *app, uint64_t after, uint64_t topics, const char *owner, struct gb_http_frame **frames,
                          size_t max, uint64_t *ret_through) {
    struct source *s = app;
    char text[32];
    size_t n = 0;
    uint64_t last;

    if (topics == NOTHING)
        usleep(100);
    pthread_mutex_lock(&s->lock);
    last = s->last;
    if (topics == UINT64_MAX)
        s->known = after;
    if (topics == NOTHING)
        s->scanned = after;
    pthread_mutex_unlock(&s->lock);
    *ret_through = after;
    while (n < max && *ret_through < last && *ret_through < after + max) {
        uint64_t id = ++*ret_through;
        bool wanted = (topics & (id % 2 ? 1 : 2)) && (!owner[0] || id % 3 || strcmp(owner, "a") == 0);

        if (!wanted)
            continue;
        snprintf(text, sizeof(text), "%llu\n", (unsigned long long)id);
        frames[n++] = gb_http_frame_new(id, id % 2 ? 1 : 2, id % 3 ? "" : "a", "", text, strlen(text));
    }
    if (n > 0 && atomic_load(&s->ends_after) == *ret_through)
        end_meanwhile(s);
    return n;
}

static uint64_t newest(void *app) {
    struct source *s = app;
    uint64_t last;

    pthread_mutex_lock(&s->lock);
    last = s->last;
    pthread_mutex_unlock(&s->lock);
    return last;
}

static const struct gb_http_feed_hooks hooks = {
    .read = read_events, .newest = newest, .heartbeat = ":\n", .farewell = "bye\n"};

static void source_init(struct source *s, unsigned heartbeat_ms, unsigned stall_ms) {
    struct gb_http_feed_config config = {.app = s, .hooks = &hooks, .heartbeat_ms = heartbeat_ms, .stall_ms = stall_ms};
    struct gb_error err = GB_ERROR_INIT;

    s->last = s->known = s->scanned = 0;
    atomic_init(&s->ends_after, 0);
    pthread_mutex_init(&s->lock, NULL);
    gb_assert_ok(gb_http_feed_start(&s->feed, &config, &err), err);
}

static void happen(struct source *s, uint64_t count) {
    pthread_mutex_lock(&s->lock);
    s->last += count;
    pthread_mutex_unlock(&s->lock);
    gb_http_feed_wake(&s->feed);
}

/* Returns the client's end. */
static int listen_to(struct source *s, uint64_t after, uint64_t topics, const char *owner) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_feed_listener *l = gb_feed_listener_new(&s->feed.count, LISTENERS, &err);
    int pair[2];

    ck_assert_ptr_nonnull(l);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    l->fd = pair[0];
    l->after = l->begin = after;
    l->topics = topics;
    l->epoch = atomic_load(&s->permitted);
    strcpy(l->owner, owner);
    gb_http_feed_give(&s->feed, l);
    return pair[1];
}

/* Returns the next number; 0: a comment or the farewell; -1: the end, also within a line. */
static long next_number(FILE *in) {
    char line[64];

    return fgets(line, sizeof(line), in) && strchr(line, '\n') ? atol(line) : -1;
}

static void *make_events(void *arg) {
    int i;

    for (i = 0; i < EVENTS; i++)
        happen(arg, 1);
    return NULL;
}

START_TEST(each_hears_what_is_its) {
    struct source *s = calloc(1, sizeof(*s));
    FILE *in[LISTENERS];
    pthread_t maker;
    int i;

    source_init(s, 60000, 60000);
    happen(s, 100);
    for (i = 0; i < LISTENERS; i++)
        in[i] = fdopen(listen_to(s, i % 2 ? 0 : 100, i % 4 < 2 ? 3 : 1, i % 8 < 4 ? "" : "b"), "r");
    pthread_create(&maker, NULL, make_events, s);
    for (i = 0; i < LISTENERS; i++) {
        long id;

        for (id = i % 2 ? 1 : 101; id <= 100 + EVENTS; id++) {
            if ((i % 4 >= 2 && id % 2 == 0) || (i % 8 >= 4 && id % 3 == 0))
                continue;
            ck_assert_int_eq(next_number(in[i]), id);
        }
    }
    pthread_join(maker, NULL);
    ck_assert_uint_eq(atomic_load(&s->feed.count), LISTENERS);
    gb_http_feed_end(&s->feed);
    for (i = 0; i < LISTENERS; i++) {
        ck_assert_int_eq(next_number(in[i]), -1);
        fclose(in[i]);
    }
    ck_assert_uint_eq(atomic_load(&s->feed.count), 0);
    free(s);
}
END_TEST

START_TEST(who_does_not_read_is_dropped) {
    struct source *s = calloc(1, sizeof(*s));
    FILE *slow;
    FILE *quick;
    long id;
    long last = 0;

    source_init(s, 60000, 1000);
    slow = fdopen(listen_to(s, 0, 3, ""), "r");
    quick = fdopen(listen_to(s, 0, 3, ""), "r");
    for (id = 1; atomic_load(&s->feed.count) == 2; id++) {
        happen(s, 1);
        ck_assert_int_eq(next_number(quick), id);
    }
    for (; (id = next_number(slow)) > 0;)
        ck_assert_int_eq(id, ++last);
    ck_assert_int_ge(last, 1);
    happen(s, 1);
    ck_assert_int_ge(next_number(quick), last);
    fclose(slow);
    fclose(quick);
    gb_http_feed_end(&s->feed);
    free(s);
}
END_TEST

static uint64_t get(struct source *s, const uint64_t *of) {
    uint64_t value;

    pthread_mutex_lock(&s->lock);
    value = *of;
    pthread_mutex_unlock(&s->lock);
    return value;
}

/* The listener takes bytes again when its next frame has left the ring. False: it was not overtaken, because the feed
 * looked for slow listeners before that, once in a second, and dropped it. */
static bool is_overtaken(void) {
    struct source *s = calloc(1, sizeof(*s));
    FILE *slow;
    long id;
    long last = 1;

    source_init(s, 60000, 60000);
    slow = fdopen(listen_to(s, 0, 3, ""), "r");
    happen(s, 1);
    ck_assert_int_eq(next_number(slow), 1);
    while (atomic_load(&s->feed.count) > 0 && get(s, &s->known) < 10 * GB_FEED_RING) {
        happen(s, GB_FEED_RING / 2);
        while (atomic_load(&s->feed.count) > 0 && get(s, &s->known) < get(s, &s->last))
            usleep(100);
    }
    while ((id = next_number(slow)) > 0)
        ck_assert_int_eq(id, ++last);
    if (id == 0)
        ck_assert_int_eq(next_number(slow), -1);
    fclose(slow);
    gb_http_feed_end(&s->feed);
    free(s);
    return id == 0;
}

START_TEST(who_is_overtaken_hears_nothing_out_of_turn) {
    while (!is_overtaken())
        continue;
}
END_TEST

START_TEST(who_searches_a_long_log_keeps_nobody_waiting) {
    struct source *s = calloc(1, sizeof(*s));
    uint64_t end = 1000000;
    FILE *quick;
    int searching;

    source_init(s, 60000, 1);
    happen(s, end);
    searching = listen_to(s, 1, NOTHING, "");
    while (get(s, &s->scanned) == 0)
        usleep(100);
    quick = fdopen(listen_to(s, end, 3, ""), "r");
    happen(s, 1);
    ck_assert_int_eq(next_number(quick), (long)end + 1);
    ck_assert_uint_lt(get(s, &s->scanned), end / 2);
    sleep(2); /* and it is not dropped for taking nothing */
    ck_assert_uint_eq(atomic_load(&s->feed.count), 2);
    gb_http_feed_end(&s->feed);
    fclose(quick);
    close(searching);
    free(s);
}
END_TEST

static void dismiss(struct source *s) {
    atomic_fetch_add(&s->feed.epoch, 1);
    gb_http_feed_wake(&s->feed);
}

/* Tokens change, and a listener that was permitted with the old ones comes late. */
START_TEST(who_was_permitted_before_is_dismissed_too) {
    struct source *s = calloc(1, sizeof(*s));
    FILE *early;
    FILE *late;
    FILE *fresh;

    source_init(s, 60000, 60000);
    early = fdopen(listen_to(s, 0, 3, ""), "r");
    dismiss(s);
    ck_assert_int_eq(next_number(early), -1);
    atomic_store(&s->permitted, 1);
    fresh = fdopen(listen_to(s, 0, 3, ""), "r");
    atomic_store(&s->permitted, 0);
    late = fdopen(listen_to(s, 0, 3, ""), "r");
    ck_assert_int_eq(next_number(late), -1);
    happen(s, 1);
    ck_assert_int_eq(next_number(fresh), 1);
    fclose(early);
    fclose(late);
    fclose(fresh);
    gb_http_feed_end(&s->feed);
    free(s);
}
END_TEST

START_TEST(quiet_ones_get_comments_and_dead_ones_go) {
    struct source *s = calloc(1, sizeof(*s));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_feed_listener *places[LISTENERS] = {NULL};
    FILE *in;
    int i;

    source_init(s, 1, 60000);
    in = fdopen(listen_to(s, 0, 3, ""), "r");
    ck_assert_int_eq(next_number(in), 0);
    for (i = 1; i < LISTENERS; i++)
        close(listen_to(s, 0, 3, ""));
    while (atomic_load(&s->feed.count) > 1)
        ck_assert_int_eq(next_number(in), 0);
    for (i = 1; i < LISTENERS; i++) {
        places[i] = gb_feed_listener_new(&s->feed.count, LISTENERS, &err);
        ck_assert_ptr_nonnull(places[i]);
    }
    ck_assert_ptr_null(gb_feed_listener_new(&s->feed.count, LISTENERS, &err));
    ck_assert_int_eq(err.code, GB_ERR_SATURATED);
    atomic_store(&s->feed.draining, true);
    gb_http_feed_wake(&s->feed);
    while (next_number(in) == 0)
        ;
    fclose(in);
    for (i = 1; i < LISTENERS; i++)
        gb_feed_listener_free(places[i]);
    gb_http_feed_end(&s->feed);
    free(s);
}
END_TEST

START_TEST(the_last_event_comes_before_the_end) {
    struct source *s = calloc(1, sizeof(*s));
    FILE *in;

    source_init(s, 60000, 60000);
    in = fdopen(listen_to(s, 0, 3, ""), "r");
    happen(s, 1);
    ck_assert_int_eq(next_number(in), 1);
    atomic_store(&s->ends_after, 2);
    happen(s, 1);
    ck_assert_int_eq(next_number(in), 2);
    ck_assert_int_eq(next_number(in), 3);
    ck_assert_int_eq(next_number(in), -1);
    fclose(in);
    gb_http_feed_end(&s->feed);
    free(s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http_feed");

    gb_test_add(suite, "hears", each_hears_what_is_its, 120);
    gb_test_add(suite, "dropped", who_does_not_read_is_dropped, 120);
    gb_test_add(suite, "overtaken", who_is_overtaken_hears_nothing_out_of_turn, 120);
    gb_test_add(suite, "searches", who_searches_a_long_log_keeps_nobody_waiting, 120);
    gb_test_add(suite, "permitted", who_was_permitted_before_is_dismissed_too, 60);
    gb_test_add(suite, "last", the_last_event_comes_before_the_end, 60);
    gb_test_add(suite, "quiet", quiet_ones_get_comments_and_dead_ones_go, 120);
    return gb_test_run(suite);
}

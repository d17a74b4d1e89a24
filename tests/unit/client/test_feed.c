/* libgpubuf: an interrupted feed resumes, and a reply that is no feed is refused. */
#include <stdio.h>
#include <string.h>

#include "client_fixture.h"

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define NEWS(id, more)                                                                                                 \
    "id: " #id "\nevent: buffer.created\ndata: {\"id\":" #id ",\"type\":\"buffer.created\"" more "}\n\n"
#define GONE                                                                                                           \
    "HTTP/1.1 401 Unauthorized\r\nContent-Length: 62\r\nConnection: close\r\n\r\n"                                     \
    "{\"code\":\"unauthenticated\",\"status\":401,\"detail\":\"of the test\"}   "

struct heard {
    gpubuf_client *client;
    unsigned news;
    unsigned end_after; /* hear ends the feed after this many events; 0: never */
    unsigned again;
    unsigned stood;
    unsigned again_max; /* reconnections that the again callback permits */
    unsigned ticks_max; /* 0: any number */
    unsigned ticks;
    bool interrupts; /* interrupts the client at the first reconnection */
    struct gpubuf_news last;
    char json[512];
};

static int hear(void *arg, const struct gpubuf_news *news) {
    struct heard *h = arg;

    h->news++;
    h->last = *news;
    snprintf(h->json, sizeof(h->json), "%s", news->json);
    return h->news == h->end_after;
}

static int again(void *arg, bool stood, const struct gpubuf_error *why) {
    struct heard *h = arg;

    (void)why;
    h->again++;
    h->stood += stood;
    if (h->interrupts)
        gpubuf_interrupt(h->client);
    return h->again > h->again_max;
}

static int tick(void *arg) {
    struct heard *h = arg;

    return h->ticks_max > 0 && ++h->ticks > h->ticks_max;
}

/* Returns the result of gpubuf_feed_listen; *last gets the header of the last request. */
static int listen_to(const char *const *answers, struct heard *h, const char *types, struct gpubuf_opt after,
                     char *last, struct gpubuf_error *err) {
    struct gpubuf_feed_params params = {.types = types, .after = after, .again = again, .tick = tick, .arg = h};
    struct fake_server fake = {.keep = false};
    int r;

    fake_start(&fake, answers);
    h->client = fake_client(&fake);
    r = gpubuf_feed_listen(h->client, &params, hear, err);
    gpubuf_close(h->client);
    fake_stop(&fake);
    strcpy(last, fake.last);
    return r;
}

START_TEST(goes_on) {
    static const char *const answers[] = {
        HEAD "retry: 10\nid: 4\n\n",
        HEAD ": still here\n\n" NEWS(
            5, "") "id: 6\r\nevent: buffer.created\r\ndata: {\"id\":6,\r\ndata: \"type\":\"x\"}\r\n\r\n"
                   "id: 7\nevent: buffer.created\ndata: {\"id\":7,",
        HEAD NEWS(
            7, ",\"session\":\"s\",\"buffer\":\"b\",\"pool\":\"p\",\"bytes\":0,\"device\":{\"index\":1,\"uuid\":\"u\"},"
               "\"generation\":3,\"count\":9,\"lease\":\"12\",\"detail\":\"d\",\"at\":\"2026-01-01T00:00:00Z\""),
        NULL};
    struct heard h = {.end_after = 3, .again_max = 100};
    struct gpubuf_error err;
    char last[4096];

    ck_assert_int_eq(listen_to(answers, &h, "buffer.,x", gpubuf_some(0), last, &err), 0);
    ck_assert_uint_eq(h.news, 3);
    ck_assert_uint_eq(h.again, 2);
    ck_assert_uint_eq(h.stood, 2);
    ck_assert_ptr_nonnull(strstr(last, "Last-Event-ID: 6\r\n"));
    ck_assert_ptr_nonnull(strstr(last, "GET /v1/feed?type=buffer.,x HTTP"));
    ck_assert_ptr_nonnull(strstr(last, "Accept: text/event-stream\r\n"));
    ck_assert_uint_eq(h.last.id, 7);
    ck_assert_str_eq(h.last.session, "s");
    ck_assert_str_eq(h.last.buffer, "b");
    ck_assert_str_eq(h.last.pool, "p");
    ck_assert(h.last.bytes.set && h.last.bytes.value == 0 && h.last.count.value == 9);
    ck_assert_int_eq(h.last.device.index, 1);
    ck_assert_uint_eq(h.last.generation, 3);
    ck_assert_str_eq(h.last.lease, "12");
    ck_assert_str_eq(h.last.detail, "d");
    ck_assert_str_eq(h.last.at, "2026-01-01T00:00:00Z");
    ck_assert_ptr_nonnull(strstr(h.json, "\"generation\":3"));
}
END_TEST

START_TEST(an_id_without_an_event_counts) {
    static const char *const answers[] = {HEAD "retry: 1\nid: 4\n\n", HEAD NEWS(5, ""), NULL};
    struct heard h = {.end_after = 1, .again_max = 1};
    struct gpubuf_error err;
    char last[4096];

    ck_assert_int_eq(listen_to(answers, &h, NULL, (struct gpubuf_opt){false, 0}, last, &err), 0);
    ck_assert_ptr_nonnull(strstr(last, "Last-Event-ID: 4\r\n"));
    ck_assert_uint_eq(h.last.id, 5);
    ck_assert_int_eq(h.last.device.index, -1);
    ck_assert(!h.last.bytes.set && h.last.session[0] == '\0');
}
END_TEST

START_TEST(ends) {
    static const char *const refused[] = {HEAD "retry: 1\n\n", GONE, NULL};
    static const char *const silent[] = {HEAD "retry: 60000\n\n", NULL};
    const struct gpubuf_opt now = {false, 0};
    struct gpubuf_error err;
    struct heard h = {.again_max = 100};
    char last[4096];

    ck_assert_int_eq(listen_to(refused, &h, NULL, now, last, &err), -1); /* refused */
    ck_assert_int_eq(err.code, GPUBUF_UNAUTHENTICATED);
    ck_assert_uint_eq(h.again, 1);
    h = (struct heard){.again_max = 0};
    ck_assert_int_eq(listen_to(silent, &h, NULL, now, last, &err), 0); /* ended by the again callback */
    h = (struct heard){.again_max = 100, .ticks_max = 3};
    ck_assert_int_eq(listen_to(silent, &h, NULL, now, last, &err), 0); /* the tick callback ends it during the pause */
    h = (struct heard){.again_max = 100, .interrupts = true};
    ck_assert_int_eq(listen_to(silent, &h, NULL, now, last, &err), -1);
    ck_assert_int_eq(err.code, GPUBUF_INTERRUPTED);
}
END_TEST

START_TEST(what_is_no_feed) {
    static const char *const cases[][2] = {
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", NULL},
        {HEAD "data: not JSON\n\n", NULL},
        {HEAD "data: {\"id\":1}\n\n", NULL},
        {GONE, NULL},
    };
    struct heard h = {.again_max = 0};
    struct gpubuf_error err;
    char last[4096];

    ck_assert_int_eq(listen_to(cases[_i], &h, NULL, (struct gpubuf_opt){false, 0}, last, &err), -1);
    ck_assert_int_eq(err.code, _i < 3 ? GPUBUF_BAD_ANSWER : GPUBUF_UNAUTHENTICATED);
    ck_assert_uint_eq(h.news + h.again, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client_feed");

    gb_test_add(suite, "goes_on", goes_on, 30);
    gb_test_add(suite, "ids", an_id_without_an_event_counts, 30);
    gb_test_add(suite, "ends", ends, 30);
    gb_test_add_loop(suite, "refused", what_is_no_feed, 30, 4);
    return gb_test_run(suite);
}

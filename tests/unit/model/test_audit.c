/* Records of the audit: packed and read back, cut and refused where there is no room, and as JSON. */
#include "model/audit.h"

#include <string.h>

#include "gb_test.h"

static struct gb_audit_rec record(void) {
    return (struct gb_audit_rec){.at_us = 1800000000123456,
                                 .event = GB_AUDIT_REQUEST,
                                 .status = 201,
                                 .token_id = 7,
                                 .bytes = 4096,
                                 .text = {[GB_AUDIT_METHOD] = "PUT",
                                          [GB_AUDIT_ROUTE] = "/v1/sessions/{session}/buffers/{buffer}/data",
                                          [GB_AUDIT_REQUEST_ID] = "0123456789abcdef",
                                          [GB_AUDIT_ADDRESS] = "192.0.2.7",
                                          [GB_AUDIT_TOKEN] = "ci",
                                          [GB_AUDIT_SESSION] = "s",
                                          [GB_AUDIT_OBJECT] = "x"}};
}

static void assert_same(const struct gb_audit_rec *a, const struct gb_audit_rec *b) {
    int i;

    ck_assert_int_eq(a->at_us, b->at_us);
    ck_assert_int_eq(a->event, b->event);
    ck_assert_int_eq(a->status, b->status);
    ck_assert_int_eq(a->token_id, b->token_id);
    ck_assert_uint_eq(a->bytes, b->bytes);
    ck_assert_uint_eq(a->count, b->count);
    for (i = 0; i < GB_AUDIT_TEXTS; i++)
        ck_assert_pstr_eq(a->text[i], b->text[i]);
}

START_TEST(what_is_put_comes_out) {
    struct gb_audit_rec gap = {.at_us = 5, .event = GB_AUDIT_GAP, .count = 9};
    struct gb_audit_queue queue = {.at = NULL};
    struct gb_audit_rec rec = record();
    struct gb_audit_rec back;
    char token[] = "changed";
    size_t at = 0;
    int i;

    rec.text[GB_AUDIT_TOKEN] = token;
    for (i = 0; i < 1000; i++) {
        rec.status = i;
        ck_assert(gb_audit_queue_put(&queue, i % 2 ? &rec : &gap, 1 << 20));
    }
    ck_assert_uint_eq(queue.count, 1000);
    strcpy(token, "CHANGED"); /* the queue has a text of its own */
    for (i = 0; i < 1000; i++) {
        ck_assert(gb_audit_queue_next(&queue, &at, &back));
        if (i % 2)
            ck_assert_str_eq(back.text[GB_AUDIT_TOKEN], "changed");
        back.text[GB_AUDIT_TOKEN] = i % 2 ? token : NULL;
        rec.status = i;
        assert_same(&back, i % 2 ? &rec : &gap);
    }
    ck_assert(!gb_audit_queue_next(&queue, &at, &back));
    gb_audit_queue_clear(&queue);
    at = 0;
    ck_assert(!gb_audit_queue_next(&queue, &at, &back));
    ck_assert(gb_audit_queue_put(&queue, &rec, 1 << 20));
    gb_audit_queue_done(&queue);
}
END_TEST

START_TEST(a_full_queue_takes_no_more) {
    struct gb_audit_queue queue = {.at = NULL};
    struct gb_audit_rec rec = record();
    struct gb_audit_rec back;
    size_t count = 0;
    size_t at = 0;

    while (gb_audit_queue_put(&queue, &rec, 10000))
        count++;
    ck_assert_uint_eq(queue.count, count);
    ck_assert_uint_gt(count, 10);
    ck_assert_uint_le(queue.used, 10000);
    while (gb_audit_queue_next(&queue, &at, &back)) {
        assert_same(&back, &rec);
        count--;
    }
    ck_assert_uint_eq(count, 0);
    gb_audit_queue_done(&queue);
}
END_TEST

START_TEST(long_texts_are_cut) {
    struct gb_audit_queue queue = {.at = NULL};
    struct gb_audit_rec rec = record();
    struct gb_audit_rec back;
    char subject[GB_AUDIT_TEXT_MAX + 100];
    size_t at = 0;

    memset(subject, 'a', sizeof(subject) - 1);
    subject[sizeof(subject) - 1] = '\0';
    rec.text[GB_AUDIT_CERTIFICATE] = subject;
    ck_assert(gb_audit_queue_put(&queue, &rec, 1 << 20));
    ck_assert(gb_audit_queue_next(&queue, &at, &back));
    ck_assert_uint_eq(strlen(back.text[GB_AUDIT_CERTIFICATE]), GB_AUDIT_TEXT_MAX);
    ck_assert_str_eq(back.text[GB_AUDIT_OBJECT], "x");
    gb_audit_queue_done(&queue);
}
END_TEST

static void assert_json(const struct gb_audit_rec *rec, const char *expected) {
    struct gb_json_writer out = {0};

    gb_audit_render(&out, rec);
    ck_assert(!out.failed);
    ck_assert_uint_eq(out.used, strlen(expected));
    ck_assert_int_eq(memcmp(out.s, expected, out.used), 0);
    gb_json_done(&out);
}

START_TEST(as_json) {
    struct gb_audit_rec rec = record();
    struct gb_audit_rec gap = {.id = 3, .at_us = 1800000000123456, .event = GB_AUDIT_GAP, .count = 9};

    assert_json(&rec, "{\"at\":\"2027-01-15T08:00:00.123Z\",\"event\":\"request\",\"method\":\"PUT\","
                      "\"route\":\"/v1/sessions/{session}/buffers/{buffer}/data\",\"request_id\":\"0123456789abcdef\","
                      "\"address\":\"192.0.2.7\",\"token\":\"ci\",\"session\":\"s\",\"object\":\"x\",\"token_id\":7,"
                      "\"status\":201,\"bytes\":4096}");
    assert_json(&gap, "{\"id\":3,\"at\":\"2027-01-15T08:00:00.123Z\",\"event\":\"audit.gap\",\"count\":9}");
    gap.text[GB_AUDIT_CERTIFICATE] = "CN=\"\xff\n";
    assert_json(&gap, "{\"id\":3,\"at\":\"2027-01-15T08:00:00.123Z\",\"event\":\"audit.gap\","
                      "\"certificate\":\"CN=\\\"\\ufffd\\u000a\",\"count\":9}");
}
END_TEST

START_TEST(words) {
    int event;

    for (event = 0; event < GB_AUDIT_EVENTS; event++)
        ck_assert_int_eq(gb_audit_event_of(gb_audit_event_word((enum gb_audit_event)event)), event);
    ck_assert_int_eq(gb_audit_event_of("of a newer daemon"), GB_AUDIT_EVENTS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model_audit");

    gb_test_add(suite, "put", what_is_put_comes_out, 60);
    gb_test_add(suite, "full", a_full_queue_takes_no_more, 60);
    gb_test_add(suite, "cut", long_texts_are_cut, 60);
    gb_test_add(suite, "json", as_json, 60);
    gb_test_add(suite, "words", words, 60);
    return gb_test_run(suite);
}

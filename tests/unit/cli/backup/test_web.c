/* Requests to a place of backups: what is worth another try, what is sent then, and what is said of a failure. */
#include <string.h>

#include "cli/backup/manifest.h"
#include "cli/backup/web.h"
#include "gb_test.h"
#include "scripted_server.h"

static struct gb_cli cli;
static struct gb_place place;
static struct gb_web web;
static struct gb_web_reply reply;
static struct gb_scripted server;
static struct gpubuf_error err;
static atomic_bool stopped;

static void open_web(enum gb_place_kind kind) {
    place = (struct gb_place){.kind = kind, .name = "place"};
    atomic_store(&stopped, false);
    ck_assert_int_eq(gb_web_init(&web, &cli, &place, &stopped, &err), 0);
}

static void teardown(void) {
    gb_web_done(&web);
    gb_web_reply_done(&reply);
}

/* --- decisions ---------------------------------------------------------------------------------------------------- */

static int judge(const char *method, int status, CURLcode code) {
    const struct gb_web_request request = {.method = method, .object = "x"};

    memset(&err, 0, sizeof err);
    reply.status = status;
    return gb_web_judge(&web, &request, &reply, code, &err);
}

START_TEST(test_statuses) {
    static const struct {
        int status;
        bool good, again;
    } cases[] = {{200, true, false},  {201, true, false},  {204, true, false},  {206, true, false},
                 {301, false, false}, {400, false, false}, {403, false, false}, {404, false, false},
                 {408, false, true},  {409, false, false}, {412, false, false}, {413, false, false},
                 {429, false, true},  {500, false, true},  {501, false, false}, {502, false, true},
                 {503, false, true},  {504, false, true},  {505, false, false}, {507, false, false},
                 {0, false, false}};

    open_web(GB_PLACE_HTTP);
    ck_assert_int_eq(judge("PUT", cases[_i].status, CURLE_OK), cases[_i].good ? 0 : -1);
    ck_assert_int_eq(err.retryable, cases[_i].again);
}
END_TEST

/* An object that is not there is an answer to GET, HEAD and DELETE, and a failure of what would make one. */
START_TEST(test_absence) {
    open_web(GB_PLACE_HTTP);
    ck_assert_int_eq(judge("GET", 404, CURLE_OK), 0);
    ck_assert_int_eq(judge("HEAD", 404, CURLE_OK), 0);
    ck_assert_int_eq(judge("DELETE", 404, CURLE_OK), 0);
    ck_assert_int_eq(judge("PUT", 404, CURLE_OK), -1);
    ck_assert_int_eq(judge("POST", 404, CURLE_OK), -1);
    ck_assert_int_eq(err.status, 404);
}
END_TEST

START_TEST(test_connections_that_break) {
    static const struct {
        CURLcode code;
        bool again;
    } cases[] = {{CURLE_COULDNT_CONNECT, true},    {CURLE_COULDNT_RESOLVE_HOST, true},
                 {CURLE_OPERATION_TIMEDOUT, true}, {CURLE_SEND_ERROR, true},
                 {CURLE_RECV_ERROR, true},         {CURLE_GOT_NOTHING, true},
                 {CURLE_PARTIAL_FILE, true},       {CURLE_PEER_FAILED_VERIFICATION, false},
                 {CURLE_READ_ERROR, false},        {CURLE_ABORTED_BY_CALLBACK, false},
                 {CURLE_OUT_OF_MEMORY, false}};

    open_web(GB_PLACE_HTTP);
    ck_assert_int_eq(judge("PUT", 0, cases[_i].code), -1);
    ck_assert_int_eq(err.retryable, cases[_i].again);
}
END_TEST

/* A server may refuse a body that it has not read, and close: its answer counts, not the broken connection. */
START_TEST(test_an_answer_before_the_body_was_sent) {
    open_web(GB_PLACE_HTTP);
    ck_assert_int_eq(judge("PUT", 403, CURLE_SEND_ERROR), -1);
    ck_assert_int_eq(err.status, 403);
    ck_assert(!err.retryable);
    ck_assert_msg(strstr(err.detail, "~/.netrc") != NULL, "%s", err.detail);
    ck_assert_int_eq(judge("PUT", 201, CURLE_SEND_ERROR), -1); /* it has not got all of it */
}
END_TEST

START_TEST(test_the_end_of_the_command) {
    open_web(GB_PLACE_HTTP);
    atomic_store(&stopped, true);
    ck_assert_int_eq(judge("PUT", 503, CURLE_OK), -1);
    ck_assert_int_eq(err.code, GPUBUF_INTERRUPTED);
    ck_assert(!err.retryable);
    ck_assert_int_eq(gb_web_pause(&web, 3, 60, &err), -1);
    web.even_so = true;
    ck_assert_int_eq(judge("DELETE", 204, CURLE_OK), 0);
}
END_TEST

#define ERROR_OF(code, rest) "<?xml?><Error><Code>" code "</Code><Message>a &lt;b&gt;</Message>" rest "</Error>"

static int judge_s3(const char *method, int status, const char *text) {
    gb_web_reply_done(&reply);
    reply.text = strdup(text);
    reply.bytes = strlen(text);
    return judge(method, status, CURLE_OK);
}

START_TEST(test_what_s3_says) {
    static const struct {
        int status;
        const char *text, *words;
        bool again;
    } cases[] = {
        {403, ERROR_OF("SignatureDoesNotMatch", ""), "AWS_SECRET_ACCESS_KEY is not the secret", false},
        {403, ERROR_OF("InvalidAccessKeyId", ""), "does not know AWS_ACCESS_KEY_ID", false},
        {400, ERROR_OF("ExpiredToken", ""), "get new credentials", false},
        {400, ERROR_OF("RequestTimeout", ""), "400 RequestTimeout: a <b>", true},
        {503, ERROR_OF("SlowDown", ""), "503 SlowDown: a <b>", true},
        {400, ERROR_OF("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"), "set AWS_REGION", false},
        {301, ERROR_OF("PermanentRedirect", ""), "--endpoint names", false},
    };

    open_web(GB_PLACE_S3);
    ck_assert_int_eq(judge_s3("PUT", cases[_i].status, cases[_i].text), -1);
    ck_assert_msg(strstr(err.detail, cases[_i].words) != NULL, "%s", err.detail);
    ck_assert_int_eq(err.retryable, cases[_i].again);
}
END_TEST

/* A store begins its answer to CompleteMultipartUpload before it knows whether that will do. */
START_TEST(test_an_error_in_a_good_answer) {
    open_web(GB_PLACE_S3);
    ck_assert_int_eq(judge_s3("POST", 200, ERROR_OF("InternalError", "")), -1);
    ck_assert(err.retryable);
    ck_assert_int_eq(judge_s3("POST", 200, "<CompleteMultipartUploadResult/>"), 0);
    ck_assert_int_eq(judge_s3("GET", 200, ERROR_OF("InternalError", "")), 0); /* an object with these bytes */
}
END_TEST

/* --- over a connection -------------------------------------------------------------------------------------------- */

static struct {
    const char *bytes;
    size_t at;
    unsigned rewound;
} body;

static int64_t read_body(void *arg, void *data, size_t size) {
    size_t left = strlen(body.bytes) - body.at;
    size_t n = size < left ? size : left;

    (void)arg;
    n = n > 3 ? 3 : n;
    memcpy(data, body.bytes + body.at, n);
    body.at += n;
    return (int64_t)n;
}

static int rewind_body(void *arg) {
    (void)arg;
    body.at = 0;
    body.rewound++;
    return 0;
}

static int put(const char *bytes, bool streamed) {
    const struct gb_web_request request = {.method = "PUT",
                                           .object = "x",
                                           .url = server.url,
                                           .bytes = strlen(bytes),
                                           .body = streamed ? NULL : bytes,
                                           .read = streamed ? read_body : NULL,
                                           .rewind = rewind_body};

    body.bytes = bytes;
    memset(&err, 0, sizeof err);
    return gb_web_ask(&web, &request, &reply, &err);
}

static void start(const struct gb_scripted_answer *script, size_t length) {
    gb_scripted_start(&server, script, length);
    open_web(GB_PLACE_HTTP);
}

static void stop(void) {
    gb_web_done(&web);
    gb_scripted_stop(&server);
}

/* Each try has the whole body: one after an answer, one after a connection that ended. */
START_TEST(test_a_body_is_sent_again_from_its_first_byte) {
    static const struct gb_scripted_answer script[] = {
        {.head = "503 Slow\r\nRetry-After: 0"}, {.head = NULL}, {.head = "201 Created\r\nETag: \"e\""}};
    size_t i;

    start(script, 3);
    ck_assert_msg(put("0123456789", _i == 1) == 0, "%s", err.detail);
    ck_assert_uint_eq(server.count, 3);
    for (i = 0; i < 3; i++) {
        ck_assert_uint_eq(server.seen[i].bytes, 10);
        ck_assert_str_eq(server.seen[i].body, "0123456789");
    }
    ck_assert_str_eq(reply.etag, "\"e\"");
    if (_i == 1)
        ck_assert_uint_ge(body.rewound, 3);
    stop();
}
END_TEST

START_TEST(test_three_tries) {
    static const struct gb_scripted_answer script[] = {{.head = "503 Slow\r\nRetry-After: 1"},
                                                       {.head = "503 Slow\r\nRetry-After: 1"},
                                                       {.head = "503 Slow\r\nRetry-After: 1", .body = "no"},
                                                       {.head = "201 Created"}};

    start(script, 4);
    ck_assert_int_eq(put("x", false), -1);
    ck_assert_uint_eq(server.count, 3);
    ck_assert_int_eq(err.status, 503);
    ck_assert_int_eq(err.retry_after_s, 1);
    stop();
}
END_TEST

START_TEST(test_one_try_of_what_is_refused) {
    static const struct gb_scripted_answer script[] = {{.head = "403 Forbidden"}, {.head = "201 Created"}};

    start(script, 2);
    ck_assert_int_eq(put("x", false), -1);
    ck_assert_uint_eq(server.count, 1);
    stop();
}
END_TEST

/* An answer that ends early is asked for again, and what came of it is not kept. */
START_TEST(test_an_answer_that_is_cut) {
    static const struct gb_scripted_answer script[] = {{.head = "200 OK", .body = "half", .announce = 8},
                                                       {.head = "200 OK", .body = "all of it"}};
    struct gb_web_request request = {.method = "GET", .object = "x"};

    start(script, 2);
    request.url = server.url;
    ck_assert_msg(gb_web_ask(&web, &request, &reply, &err) == 0, "%s", err.detail);
    ck_assert_str_eq(reply.text, "all of it");
    ck_assert_uint_eq(reply.bytes, 9);
    stop();
}
END_TEST

/* --- XML ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_xml) {
    const char *at = "<L><Part><Key>a&amp;b&quot;&#39;</Key></Part><Part>2</Part><Part>3";
    char *each = gb_web_xml(at, "Part", &at);

    ck_assert_str_eq(each, "<Key>a&b\"'</Key>");
    free(each);
    each = gb_web_xml(at, "Part", &at);
    ck_assert_str_eq(each, "2");
    free(each);
    ck_assert_ptr_null(gb_web_xml(at, "Part", &at)); /* it does not end */
    ck_assert_ptr_null(gb_web_xml(NULL, "Part", NULL));
    ck_assert_ptr_null(gb_web_xml("<Parts>1</Parts>", "Part", NULL));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/web");
    TCase *cases = tcase_create("web");

    tcase_add_checked_fixture(cases, NULL, teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_statuses, 0, 21);
    tcase_add_test(cases, test_absence);
    tcase_add_loop_test(cases, test_connections_that_break, 0, 11);
    tcase_add_test(cases, test_an_answer_before_the_body_was_sent);
    tcase_add_test(cases, test_the_end_of_the_command);
    tcase_add_loop_test(cases, test_what_s3_says, 0, 7);
    tcase_add_test(cases, test_an_error_in_a_good_answer);
    tcase_add_loop_test(cases, test_a_body_is_sent_again_from_its_first_byte, 0, 2);
    tcase_add_test(cases, test_three_tries);
    tcase_add_test(cases, test_one_try_of_what_is_refused);
    tcase_add_test(cases, test_an_answer_that_is_cut);
    tcase_add_test(cases, test_xml);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}

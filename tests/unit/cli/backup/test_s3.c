/* Uploads to S3 in parts: what is signed and sent, and how a broken one is gone on with. The signature itself is looked
 * at end to end. */
#include <string.h>

#include "cli/backup/s3.h"
#include "cli/backup/store.h"
#include "gb_test.h"
#include "scripted_server.h"

#define OBJECT "objects/7.3.1a2b.e3069283.safetensors"
#define PATH "/tests/a%20b/" OBJECT
#define KEY "a b/" OBJECT
#define CRC 0xe3069283u /* of "123456789" */
#define CRC_TEXT "4waSgw=="

static struct gb_cli cli;
static struct gb_place place;
static struct gb_web web;
static struct gb_scripted server;
static struct gb_s3_upload upload;
static struct gb_s3_part parts[4];
static struct gpubuf_error err;
/* Three parts of 100 bytes, and one of 7. */
static const struct gb_backup_file file = {
    .buffer = "w", .file = "00001.safetensors", .bytes = 307, .crc = CRC, .object = OBJECT};

static void start(const struct gb_scripted_answer *script, size_t length) {
    gb_scripted_start(&server, script, length);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "sEcrEt", 1);
    setenv("AWS_SESSION_TOKEN", "t0k", 1);
    setenv("AWS_REGION", "eu-west-1", 1);
    cli.options.endpoint = server.url;
    ck_assert_int_eq(gb_place_read(&cli, "s3://tests/a b", &place, &err), 0);
    ck_assert_int_eq(gb_web_init(&web, &cli, &place, NULL, &err), 0);
}

static void stop(void) {
    gb_web_done(&web);
    gb_scripted_stop(&server);
    gb_place_done(&place);
    gb_s3_upload_done(&upload);
}

static void assert_header(size_t i, const char *name, const char *expected) {
    const char *value = gb_scripted_header(&server, i, name);

    ck_assert_msg(value != NULL && strcmp(value, expected) == 0, "%s: %s", name, value != NULL ? value : "none");
}

/* --- one request -------------------------------------------------------------------------------------------------- */

/* All that the store acts on is under the signature, and neither secret is in the request. */
START_TEST(test_what_is_signed) {
    static const struct gb_scripted_answer script[] = {{.head = "200 OK\r\nETag: \"e3\""}};
    static const char *const names[] = {"host", "x-amz-checksum-crc32c", "x-amz-content-sha256", "x-amz-date",
                                        "x-amz-security-token"};
    const char *signed_headers;
    size_t i;

    start(script, 1);
    upload.id = strdup("u%2B1");
    parts[2].crc = CRC;
    ck_assert_int_eq(gb_s3_put_part(&web, &file, &upload, 2, "123456789", 9, &parts[2], &err), 0);
    ck_assert(gb_scripted_asked(&server, 0, "PUT " PATH "?partNumber=3&uploadId=u%2B1 HTTP/1.1"));
    assert_header(0, "x-amz-checksum-crc32c", CRC_TEXT);
    assert_header(0, "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    assert_header(0, "x-amz-security-token", "t0k");
    assert_header(0, "Content-Length", "9");
    ck_assert_str_eq(server.seen[0].body, "123456789");
    signed_headers = gb_scripted_header(&server, 0, "Authorization");
    ck_assert_ptr_nonnull(signed_headers);
    ck_assert_msg(strncmp(signed_headers, "AWS4-HMAC-SHA256 Credential=AKID/", 33) == 0, "%s", signed_headers);
    ck_assert_msg(strstr(signed_headers, "/eu-west-1/s3/aws4_request") != NULL, "%s", signed_headers);
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_msg(strstr(strstr(signed_headers, "SignedHeaders="), names[i]) != NULL, "%s", names[i]);
    ck_assert_ptr_null(strstr(server.seen[0].head, "sEcrEt"));
    ck_assert(parts[2].there);
    ck_assert_str_eq(parts[2].etag, "\"e3\"");
    stop();
}
END_TEST

START_TEST(test_a_part_without_an_etag) {
    static const struct gb_scripted_answer script[] = {{.head = "200 OK"}};

    start(script, 1);
    upload.id = strdup("u");
    ck_assert_int_eq(gb_s3_put_part(&web, &file, &upload, 0, "x", 1, &parts[0], &err), -1);
    ck_assert(!parts[0].there);
    ck_assert_msg(strstr(err.detail, "part 1 ") != NULL, "%s", err.detail);
    stop();
}
END_TEST

START_TEST(test_checksums_as_text) {
    char text[9];

    ck_assert_str_eq(gb_store_crc_text(CRC, text), CRC_TEXT);
    ck_assert_str_eq(gb_store_crc_text(0, text), "AAAAAA==");
    ck_assert_str_eq(gb_store_crc_text(0xffffffff, text), "/////w==");
}
END_TEST

/* --- begin -------------------------------------------------------------------------------------------------------- */

#define NO_UPLOADS                                                                                                     \
    { .head = "200 OK", .body = "<ListMultipartUploadsResult></ListMultipartUploadsResult>" }
#define MADE(id)                                                                                                       \
    { .head = "200 OK", .body = "<R><UploadId>" id "</UploadId></R>" }

static int begin(void) {
    memset(parts, 0, sizeof parts);
    return gb_s3_begin(&web, &file, 100, parts, 4, &upload, &err);
}

START_TEST(test_a_new_upload) {
    static const struct gb_scripted_answer script[] = {NO_UPLOADS, MADE("u+/1")};

    start(script, 2);
    ck_assert_int_eq(begin(), 0);
    ck_assert(gb_scripted_asked(&server, 0, "GET /tests?prefix=a%20b%2Fobjects%2F"));
    ck_assert_ptr_nonnull(strstr(server.seen[0].head, "&uploads= HTTP/1.1"));
    ck_assert(gb_scripted_asked(&server, 1, "POST " PATH "?uploads= HTTP/1.1"));
    assert_header(1, "x-amz-checksum-algorithm", "CRC32C");
    assert_header(1, "x-amz-checksum-type", "FULL_OBJECT");
    ck_assert_str_eq(upload.id, "u%2B%2F1");
    ck_assert(!upload.in_parts);
    stop();
}
END_TEST

/* A store that has no checksum of whole objects says so, and one that lists no uploads may not. */
START_TEST(test_a_store_that_knows_less) {
    static const struct gb_scripted_answer script[] = {
        {.head = "403 Forbidden"}, {.head = "501 Not Implemented"}, MADE("u")};

    start(script, 3);
    ck_assert_int_eq(begin(), 0);
    ck_assert_uint_eq(server.count, 3);
    ck_assert_ptr_null(gb_scripted_header(&server, 2, "x-amz-checksum-type"));
    assert_header(2, "x-amz-checksum-algorithm", "CRC32C");
    ck_assert(upload.in_parts);
    stop();
}
END_TEST

START_TEST(test_a_store_that_refuses) {
    static const struct gb_scripted_answer script[] = {NO_UPLOADS, {.head = "403 Forbidden"}};

    start(script, 2);
    ck_assert_int_eq(begin(), -1);
    ck_assert_uint_eq(server.count, 2);
    ck_assert_int_eq(err.status, 403);
    stop();
}
END_TEST

/* --- go on with one ----------------------------------------------------------------------------------------------- */

#define UPLOAD(key, id) "<Upload><Key>" key "</Key><UploadId>" id "</UploadId></Upload>"
#define PART(number, size, etag, crc)                                                                                  \
    "<Part><PartNumber>" number "</PartNumber><ETag>" etag "</ETag><Size>" size "</Size><ChecksumCRC32C>" crc          \
    "</ChecksumCRC32C></Part>"
#define UPLOADS                                                                                                        \
    {                                                                                                                  \
        .head = "200 OK",                                                                                              \
        .body = "<L>" UPLOAD(KEY, "older") UPLOAD(KEY, "newest") UPLOAD(KEY ".x", "of another key") "</L>"             \
    }

/* Parts come page by page, the last one shorter. */
START_TEST(test_parts_that_are_there) {
    static const struct gb_scripted_answer script[] = {
        UPLOADS,
        {.head = "200 OK",
         .body = "<L><IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>" PART(
             "1", "100", "&quot;e1&quot;", "AAAAAQ==") "</L>"},
        {.head = "200 OK",
         .body = "<L><IsTruncated>false</IsTruncated><ChecksumType>FULL_OBJECT</ChecksumType>" PART(
             "4", "7", "&quot;e4&quot;", CRC_TEXT) "</L>"}};

    start(script, 3);
    ck_assert_int_eq(begin(), 0);
    ck_assert(gb_scripted_asked(&server, 1, "GET " PATH "?part-number-marker=0&uploadId=newest HTTP/1.1"));
    ck_assert(gb_scripted_asked(&server, 2, "GET " PATH "?part-number-marker=2&uploadId=newest HTTP/1.1"));
    ck_assert(parts[0].there && !parts[1].there && !parts[2].there && parts[3].there);
    ck_assert_str_eq(parts[0].etag, "\"e1\"");
    ck_assert_uint_eq(parts[0].crc, 1);
    ck_assert_uint_eq(parts[3].crc, CRC);
    ck_assert(!upload.in_parts);
    stop();
}
END_TEST

/* A part of another size is of a run with another --part-bytes. One without a checksum cannot be joined. */
START_TEST(test_parts_that_are_sent_again) {
    static const char *const texts[] = {
        PART("1", "99", "e", CRC_TEXT),  PART("4", "100", "e", CRC_TEXT), PART("0", "100", "e", CRC_TEXT),
        PART("5", "100", "e", CRC_TEXT), PART("1", "100", "e", ""),       PART("1", "100", "e", "4waSg?=="),
        PART("x", "100", "e", CRC_TEXT), PART("1", "100", "e", "4waSgw"), "<Part><PartNumber>1</PartNumber></Part>"};
    struct gb_scripted_answer script[] = {UPLOADS, {.head = "200 OK"}};
    size_t i;

    script[1].body = texts[_i];
    start(script, 2);
    ck_assert_int_eq(begin(), 0);
    for (i = 0; i < 4; i++)
        ck_assert_msg(!parts[i].there, "part %zu", i);
    ck_assert_str_eq(upload.id, "newest");
    stop();
}
END_TEST

/* The upload ended between both answers, or its parts may not be listed: another one begins, without any part. */
START_TEST(test_parts_that_cannot_be_listed) {
    static const struct gb_scripted_answer script[] = {
        UPLOADS,
        {.head = "200 OK",
         .body = "<L><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker>" PART(
             "1", "100", "e", CRC_TEXT) "</L>"},
        {.head = "404 Not Found", .body = "<Error><Code>NoSuchUpload</Code></Error>"},
        MADE("other")};
    size_t i;

    start(script, 4);
    ck_assert_int_eq(begin(), 0);
    ck_assert_str_eq(upload.id, "other");
    for (i = 0; i < 4; i++)
        ck_assert(!parts[i].there);
    stop();
}
END_TEST

/* A marker that does not move would be asked for without end. */
START_TEST(test_a_list_that_does_not_end) {
    static const struct gb_scripted_answer script[] = {
        UPLOADS,
        {.head = "200 OK",
         .body = "<L><IsTruncated>true</IsTruncated><NextPartNumberMarker>0</NextPartNumberMarker></L>"}};

    start(script, 2);
    ck_assert_int_eq(begin(), 0);
    ck_assert_uint_eq(server.count, 2);
    stop();
}
END_TEST

/* --- end ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_complete) {
    static const struct gb_scripted_answer script[] = {{.head = "200 OK", .body = "<CompleteMultipartUploadResult/>"}};

    start(script, 1);
    upload = (struct gb_s3_upload){.id = strdup("u"), .in_parts = _i == 1};
    parts[0] = (struct gb_s3_part){.there = true, .crc = 1, .etag = "\"a\""};
    parts[1] = (struct gb_s3_part){.there = true, .crc = CRC, .etag = "\"b\""};
    ck_assert_int_eq(gb_s3_complete(&web, &file, &upload, parts, 2, &err), 0);
    ck_assert(gb_scripted_asked(&server, 0, "POST " PATH "?uploadId=u HTTP/1.1"));
    if (_i == 0) {
        assert_header(0, "x-amz-checksum-crc32c", CRC_TEXT);
        assert_header(0, "x-amz-checksum-type", "FULL_OBJECT");
    } else {
        ck_assert_ptr_null(gb_scripted_header(&server, 0, "x-amz-checksum-crc32c"));
    }
    ck_assert_ptr_nonnull(strstr(server.seen[0].body,
                                 "><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><ChecksumCRC32C>AAAAAQ==</"
                                 "ChecksumCRC32C></Part><Part><PartNumber>2</PartNumber>"));
    stop();
}
END_TEST

/* The store begins a good answer and then fails: it is asked again. */
START_TEST(test_complete_fails_in_its_answer) {
    static const struct gb_scripted_answer script[] = {
        {.head = "200 OK", .body = "<Error><Code>InternalError</Code></Error>"},
        {.head = "400 Bad Request", .body = "<Error><Code>BadDigest</Code><Message>not that sum</Message></Error>"}};

    start(script, 2);
    upload.id = strdup("u");
    ck_assert_int_eq(gb_s3_complete(&web, &file, &upload, parts, 2, &err), -1);
    ck_assert_uint_eq(server.count, 2);
    ck_assert_msg(strstr(err.detail, "BadDigest: not that sum") != NULL, "%s", err.detail);
    stop();
}
END_TEST

/* --- what is there ------------------------------------------------------------------------------------------------ */

START_TEST(test_whether_an_object_is_there) {
    static const struct {
        struct gb_scripted_answer answer;
        bool there;
    } cases[] = {
        {{.head = "200 OK", .announce = 307}, true},
        {{.head = "200 OK", .announce = 306}, false},
        {{.head = "200 OK\r\nx-amz-checksum-crc32c: " CRC_TEXT, .announce = 307}, true},
        {{.head = "200 OK\r\nx-amz-checksum-crc32c: AAAAAA==", .announce = 307}, false},
        {{.head = "200 OK\r\nx-amz-checksum-crc32c: AAAAAA==-4", .announce = 307}, true}, /* of its parts' sums */
        {{.head = "404 Not Found"}, false}};
    bool there = !cases[_i].there;

    start(&cases[_i].answer, 1);
    ck_assert_int_eq(gb_store_look(&web, &file, &there, &err), 0);
    ck_assert_int_eq(there, cases[_i].there);
    assert_header(0, "x-amz-checksum-mode", "ENABLED");
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/s3");
    TCase *cases = tcase_create("s3");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_what_is_signed);
    tcase_add_test(cases, test_a_part_without_an_etag);
    tcase_add_test(cases, test_checksums_as_text);
    tcase_add_test(cases, test_a_new_upload);
    tcase_add_test(cases, test_a_store_that_knows_less);
    tcase_add_test(cases, test_a_store_that_refuses);
    tcase_add_test(cases, test_parts_that_are_there);
    tcase_add_loop_test(cases, test_parts_that_are_sent_again, 0, 9);
    tcase_add_test(cases, test_parts_that_cannot_be_listed);
    tcase_add_test(cases, test_a_list_that_does_not_end);
    tcase_add_loop_test(cases, test_complete, 0, 2);
    tcase_add_test(cases, test_complete_fails_in_its_answer);
    tcase_add_loop_test(cases, test_whether_an_object_is_there, 0, 6);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}

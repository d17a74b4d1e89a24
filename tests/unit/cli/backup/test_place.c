/* What DEST says of where a backup goes, with what the environment adds. */
#include <stdlib.h>
#include <string.h>

#include "cli/backup/place.h"
#include "gb_test.h"

static struct gb_cli cli;
static struct gb_place place;
static struct gpubuf_error err;

static void setup(void) {
    static const char *const names[] = {"AWS_SESSION_TOKEN",   "AWS_REGION",       "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"};
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "sEcrEt/+", 1);
    memset(&cli, 0, sizeof cli);
}

static void teardown(void) {
    gb_place_done(&place);
}

static void read_good(const char *text) {
    gb_place_done(&place);
    ck_assert_msg(gb_place_read(&cli, text, &place, &err) == 0, "%s: %s", text, err.detail);
}

/* The place is refused, and the sentence has `words`. */
static void read_bad(const char *text, const char *words) {
    gb_place_done(&place);
    ck_assert_msg(gb_place_read(&cli, text, &place, &err) < 0, "%s is taken", text);
    ck_assert_int_eq(err.code, GPUBUF_BAD_ARGUMENT);
    ck_assert_msg(strstr(err.detail, words) != NULL, "%s: %s", text, err.detail);
}

static void assert_at(const char *object, const char *expected) {
    char *at = gb_place_at(&place, object);

    ck_assert_str_eq(at, expected);
    free(at);
}

START_TEST(test_folders) {
    static const struct {
        const char *text, *base;
    } cases[] = {
        {"nas/gpu1", "nas/gpu1"}, {"nas/gpu1///", "nas/gpu1"}, {"/", "/"}, {"file:///a b/ü", "/a b/ü"}, {"s3", "s3"}};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_good(cases[i].text);
        ck_assert_int_eq(place.kind, GB_PLACE_FOLDER);
        ck_assert_str_eq(place.base, cases[i].base);
    }
    assert_at("manifest.json", "s3/manifest.json");
    read_bad("", "the path of the folder is missing");
    read_bad("file://host/x", "no place that is known");
    read_bad("ftp://host/x", "no place that is known");
}
END_TEST

/* Escapes that the user wrote stay; what no URL may have is escaped. */
START_TEST(test_servers) {
    read_good("https://host:8443/a b/%C3%BC/");
    ck_assert_int_eq(place.kind, GB_PLACE_HTTP);
    ck_assert_str_eq(place.name, "https://host:8443/a b/%C3%BC");
    assert_at("objects/x", "https://host:8443/a%20b/%C3%BC/objects/x");
    ck_assert_ptr_null(place.sigv4);
    ck_assert_ptr_null(place.user);
    read_good("http://[::1]:80/x");
    assert_at("y", "http://[::1]:80/x/y");
    read_bad("http:///x", "has no host");
    read_bad("https://me:pw@host/x", "has a user in it");
    read_bad("https://host/x?token=1", "has a query");
    read_bad("https://host/x#y", "has a query or a fragment");
}
END_TEST

/* An "@" in the path is no user. */
START_TEST(test_at_sign_in_a_path) {
    read_good("https://host/a@b");
    assert_at("c", "https://host/a@b/c");
}
END_TEST

START_TEST(test_buckets) {
    read_good("s3://tests/a b/ü+/");
    ck_assert_int_eq(place.kind, GB_PLACE_S3);
    ck_assert_str_eq(place.name, "s3://tests/a b/ü+");
    ck_assert_str_eq(place.bucket, "https://s3.us-east-1.amazonaws.com/tests");
    ck_assert_str_eq(place.prefix, "a b/ü+/");
    assert_at("objects/x", "https://s3.us-east-1.amazonaws.com/tests/a%20b/%C3%BC%2B/objects/x");
    ck_assert_str_eq(place.sigv4, "aws:amz:us-east-1:s3");
    ck_assert_str_eq(place.user, "AKID:sEcrEt/+");
    ck_assert_ptr_null(place.token);
    read_good("s3://tests");
    ck_assert_str_eq(place.prefix, "");
    assert_at("manifest.json", "https://s3.us-east-1.amazonaws.com/tests/manifest.json");
    read_good("s3://tests///a");
    ck_assert_str_eq(place.prefix, "a/");
    read_bad("s3://", "has no bucket");
    read_bad("s3://ab/x", "has no bucket");
    read_bad("s3://Tests/x", "has no bucket");
}
END_TEST

START_TEST(test_the_environment_of_s3) {
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    setenv("AWS_SESSION_TOKEN", "t0k", 1);
    read_good("s3://tests/p");
    ck_assert_str_eq(place.sigv4, "aws:amz:eu-west-1:s3");
    ck_assert_str_eq(place.bucket, "https://s3.eu-west-1.amazonaws.com/tests");
    ck_assert_str_eq(place.token, "x-amz-security-token: t0k");
    setenv("AWS_REGION", "eu-central-1", 1);
    setenv("AWS_ENDPOINT_URL", "http://other", 1);
    read_good("s3://tests/p");
    ck_assert_str_eq(place.sigv4, "aws:amz:eu-central-1:s3");
    ck_assert_str_eq(place.bucket, "http://other/tests");
    setenv("AWS_ENDPOINT_URL_S3", "http://own:9000/", 1);
    read_good("s3://tests/p");
    ck_assert_str_eq(place.bucket, "http://own:9000/tests");
    cli.options.endpoint = "http://given/base";
    read_good("s3://tests/p");
    assert_at("x", "http://given/base/tests/p/x");
    cli.options.endpoint = "given";
    read_bad("s3://tests/p", "is no http:// or https:// URL");
    cli.options.endpoint = "http://me:pw@given";
    read_bad("s3://tests/p", "has a user in it");
}
END_TEST

/* Nothing of a variable may become a header of its own, or move the border between id and secret. */
START_TEST(test_credentials_that_are_none) {
    static const struct {
        const char *name, *value, *words;
    } cases[] = {{"AWS_ACCESS_KEY_ID", "", "needs AWS_ACCESS_KEY_ID"},
                 {"AWS_SECRET_ACCESS_KEY", "", "needs AWS_SECRET_ACCESS_KEY"},
                 {"AWS_ACCESS_KEY_ID", "A:B", "no colon"},
                 {"AWS_ACCESS_KEY_ID", "A B", "no colon or blank"},
                 {"AWS_SECRET_ACCESS_KEY", "x\r\nHost: y", "no line ends"},
                 {"AWS_SESSION_TOKEN", "t\nx: y", "no line ends"}};

    setenv(cases[_i].name, cases[_i].value, 1);
    read_bad("s3://tests/p", cases[_i].words);
    read_good("nas"); /* a folder needs none of them */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/place");
    TCase *cases = tcase_create("place");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_folders);
    tcase_add_test(cases, test_servers);
    tcase_add_test(cases, test_at_sign_in_a_path);
    tcase_add_test(cases, test_buckets);
    tcase_add_test(cases, test_the_environment_of_s3);
    tcase_add_loop_test(cases, test_credentials_that_are_none, 0, 6);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}

/* Certificates: what they say, how long, files, renewal; and the names that they may have. */
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gb_test.h"
#include "tls/pair.h"

#define NOW 1800000000
#define DAY 86400

static char folder[64];
static struct gb_error err;

static void begin(void) {
    err = GB_ERROR_INIT;
    strcpy(folder, "/tmp/gb-pair-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void end(void) {
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *path(int i, const char *name) {
    static char paths[4][128];

    snprintf(paths[i], sizeof(paths[i]), "%s/%s", folder, name);
    return paths[i];
}

static struct gb_tls_pair *authority(uint32_t days) {
    struct gb_tls_plan plan = {.role = GB_TLS_AUTHORITY, .common_name = "authority", .now_s = NOW, .days = days};
    struct gb_tls_pair *pair = gb_tls_pair_make(&plan, NULL, &err);

    ck_assert_msg(pair != NULL, "%s", err.detail);
    return pair;
}

static unsigned verify(const struct gb_tls_pair *pair, const struct gb_tls_pair *by, int64_t at_s) {
    gnutls_x509_trust_list_t list;
    gnutls_x509_crt_t crt = pair->crt;
    unsigned status = 0;
    int rc;

    (void)at_s;
    ck_assert_int_ge(gnutls_x509_trust_list_init(&list, 0), 0);
    ck_assert_int_eq(gnutls_x509_trust_list_add_cas(list, &by->crt, 1, 0), 1);
    rc = gnutls_x509_trust_list_verify_crt(list, &crt, 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &status, NULL);
    gnutls_x509_trust_list_deinit(list, 0);
    return rc < 0 ? 1u : status;
}

START_TEST(times_and_signatures) {
    struct gb_tls_plan plan = {.role = GB_TLS_CLIENT, .common_name = "c", .now_s = NOW, .days = 5};
    struct gb_tls_pair *ca = authority(10);
    struct gb_tls_pair *other = authority(10);
    struct gb_tls_pair *pair = gb_tls_pair_make(&plan, ca, &err);

    ck_assert_msg(pair != NULL, "%s", err.detail);
    ck_assert_int_eq(gnutls_x509_crt_get_activation_time(pair->crt), NOW - GB_TLS_SLACK_S);
    ck_assert_int_eq(gb_tls_pair_until(pair), NOW - GB_TLS_SLACK_S + 5 * DAY - 1); /* five days, both ends included */
    ck_assert_uint_eq(verify(pair, ca, NOW), 0);
    ck_assert_uint_ne(verify(pair, other, NOW), 0);
    gb_tls_pair_free(pair);
    plan.days = 4000; /* never beyond the authority, and never before it */
    plan.now_s = NOW - 1800;
    pair = gb_tls_pair_make(&plan, ca, &err);
    ck_assert_int_eq(gb_tls_pair_until(pair), gb_tls_pair_until(ca));
    ck_assert_int_eq(gnutls_x509_crt_get_activation_time(pair->crt), NOW - GB_TLS_SLACK_S);
    /* What is no authority, and one that has ended, signs nothing. */
    ck_assert_ptr_null(gb_tls_pair_make(&plan, pair, &err));
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    err = GB_ERROR_INIT;
    plan.now_s = NOW + 10 * DAY;
    ck_assert_ptr_null(gb_tls_pair_make(&plan, ca, &err));
    ck_assert_ptr_nonnull(strstr(err.detail, "has expired"));
    gb_tls_pair_free(pair);
    gb_tls_pair_free(other);
    gb_tls_pair_free(ca);
}
END_TEST

START_TEST(a_common_name_is_cut) {
    struct gb_tls_plan plan = {.role = GB_TLS_SERVER, .now_s = NOW, .days = 1};
    char long_name[201];
    char name[256];
    size_t n = sizeof(name);
    struct gb_tls_pair *pair;

    memset(long_name, 'a', 200);
    long_name[200] = '\0';
    plan.common_name = long_name;
    pair = gb_tls_pair_make(&plan, NULL, &err);
    ck_assert_ptr_nonnull(pair);
    ck_assert_int_ge(gnutls_x509_crt_get_dn_by_oid(pair->crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n), 0);
    ck_assert_uint_eq(n, 64);
    gb_tls_pair_free(pair);
}
END_TEST

START_TEST(files) {
    struct gb_tls_pair *pair = authority(10);
    struct gb_tls_pair *other = authority(10);
    struct gb_tls_pair *back;
    struct stat st;

    ck_assert_int_eq(gb_tls_pair_save(pair, path(0, "a.pem"), path(1, "a.key"), &err), 0);
    ck_assert_int_eq(stat(path(1, "a.key"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    back = gb_tls_pair_load(path(0, "a.pem"), path(1, "a.key"), &err);
    ck_assert_msg(back != NULL, "%s", err.detail);
    ck_assert_int_eq(gb_tls_pair_until(back), gb_tls_pair_until(pair));
    gb_tls_pair_free(back);
    /* Neither file is overwritten, and a failure takes the key away again. */
    ck_assert_int_eq(gb_tls_pair_save(other, path(2, "b.pem"), path(1, "a.key"), &err), -1);
    ck_assert_int_ne(access(path(2, "b.pem"), F_OK), 0);
    err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_tls_pair_save(other, path(0, "a.pem"), path(3, "b.key"), &err), -1);
    ck_assert_int_ne(access(path(3, "b.key"), F_OK), 0);
    err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_tls_pair_save(other, path(2, "b.pem"), path(3, "b.key"), &err), 0);
    ck_assert_ptr_null(gb_tls_pair_load(path(0, "a.pem"), path(3, "b.key"), &err));
    ck_assert_ptr_nonnull(strstr(err.detail, "is not the key of"));
    err = GB_ERROR_INIT;
    ck_assert_ptr_null(gb_tls_pair_load(path(3, "b.key"), path(3, "b.key"), &err));
    ck_assert_ptr_nonnull(strstr(err.detail, "has no certificate in PEM"));
    err = GB_ERROR_INIT;
    ck_assert_ptr_null(gb_tls_pair_load(path(0, "a.pem"), path(0, "a.pem"), &err));
    ck_assert_ptr_nonnull(strstr(err.detail, "has no private key in PEM"));
    err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_tls_pair_replace(other, path(0, "nowhere/a.pem"), &err), -1);
    err = GB_ERROR_INIT;
    ck_assert_int_eq(truncate(path(0, "a.pem"), (1 << 20) + 1), 0);
    ck_assert_ptr_null(gb_tls_pair_load(path(0, "a.pem"), path(1, "a.key"), &err));
    ck_assert_ptr_nonnull(strstr(err.detail, "more than 1 MiB"));
    gb_tls_pair_free(other);
    gb_tls_pair_free(pair);
    gb_tls_pair_free(NULL);
}
END_TEST

/* The names that stand in the certificate of a pair. */
static void assert_names(const struct gb_tls_pair *pair, const char *expected) {
    struct gb_tls_names names = {0};
    char text[4 * GB_TLS_NAME_SIZE] = "";
    size_t i;

    ck_assert_int_eq(gb_tls_pair_names(pair, &names, &err), 0);
    for (i = 0; i < names.count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i > 0 ? ", " : "", names.items[i].text);
    ck_assert_str_eq(text, expected);
    gb_tls_names_done(&names);
}

START_TEST(renewal_with_names) {
    struct gb_tls_names names = {0};
    struct gb_tls_names more = {0};
    struct gb_tls_plan plan = {.role = GB_TLS_SERVER, .common_name = "a.lab", .names = &names, .now_s = NOW, .days = 1};
    struct gb_tls_plan again = {.role = GB_TLS_SERVER, .names = &more, .now_s = NOW, .days = 2};
    struct gb_tls_pair *ca = authority(10);
    struct gb_tls_pair *old;
    struct gb_tls_pair *pair;

    ck_assert_int_eq(gb_tls_names_add_host(&names, "a.lab", &err), 0);
    ck_assert_int_eq(gb_tls_names_add_address(&names, "2001:db8::7", &err), 0);
    ck_assert_int_eq(gb_tls_names_add_host(&more, "b.lab", &err), 0);
    old = gb_tls_pair_make(&plan, ca, &err);
    pair = gb_tls_pair_renew(&again, old, ca, &err);
    ck_assert_msg(pair != NULL, "%s", err.detail);
    assert_names(pair, "a.lab, 2001:db8::7, b.lab");
    gb_tls_pair_free(pair);
    again.only = true;
    again.common_name = "b.lab";
    pair = gb_tls_pair_renew(&again, old, ca, &err);
    ck_assert_msg(pair != NULL, "%s", err.detail);
    assert_names(pair, "b.lab");
    gb_tls_pair_free(pair);
    gb_tls_pair_free(old);
    gb_tls_pair_free(ca);
    gb_tls_names_done(&names);
    gb_tls_names_done(&more);
}
END_TEST

START_TEST(renewal) {
    struct gb_tls_names names = {0};
    struct gb_tls_plan plan = {.role = GB_TLS_SERVER, .common_name = "a.lab", .names = &names, .now_s = NOW, .days = 1};
    struct gb_tls_plan again = {.role = GB_TLS_SERVER, .now_s = NOW, .days = 2};
    struct gb_tls_pair *ca = authority(10);
    struct gb_tls_pair *old;
    struct gb_tls_pair *pair;
    char text[128];

    ck_assert_int_eq(gb_tls_names_add_host(&names, "a.lab", &err), 0);
    ck_assert_int_eq(gb_tls_names_add_address(&names, "2001:db8::7", &err), 0);
    old = gb_tls_pair_make(&plan, ca, &err);
    pair = gb_tls_pair_renew(&again, old, ca, &err);
    ck_assert_msg(pair != NULL, "%s", err.detail);
    ck_assert_int_eq(gb_tls_pair_until(pair), NOW - GB_TLS_SLACK_S + 2 * DAY - 1);
    ck_assert_uint_eq(verify(pair, ca, NOW), 0);
    ck_assert_int_eq(gb_tls_pair_save(pair, path(0, "a.pem"), path(1, "a.key"), &err), 0);
    ck_assert_int_eq(gb_tls_names_text(path(0, "a.pem"), text, sizeof(text), &err), 0);
    ck_assert_str_eq(text, "a.lab, 2001:db8::7");
    ck_assert_int_eq(gb_tls_pair_save(old, path(2, "old.pem"), path(3, "old.key"), &err), 0);
    gb_tls_pair_free(pair);
    pair = gb_tls_pair_load(path(0, "a.pem"), path(3, "old.key"), &err); /* the same key */
    ck_assert_ptr_nonnull(pair);
    gb_tls_pair_free(pair);
    gb_tls_pair_free(old);
    gb_tls_pair_free(ca);
    gb_tls_names_done(&names);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------- */

START_TEST(host_names) {
    static const char *const good[] = {"a", "a.b", "gpu-1.lab", "*.lab", "under_score", "9", "1a.2b", "XN--a"};
    static const char *const bad[] = {"",     ".",    "a.",   ".a",        "a..b", "-a",     "a-",
                                      "a b",  "*",    "a.*",  "a*.b",      "a/b",  "a:1",    "\xc3\xa4",
                                      "a\nb", "*.*.", "a,b.", "127.0.0.1", "::1",  "1.2.3.4"};
    struct gb_tls_names names = {0};
    char longest[300];
    size_t i;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(gb_tls_names_add_host(&names, good[i], &err) == 0, "%s: %s", good[i], err.detail);
    ck_assert_uint_eq(names.count, sizeof(good) / sizeof(good[0]));
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err = GB_ERROR_INIT;
        ck_assert_msg(gb_tls_names_add_host(&names, bad[i], &err) == -1, "%s", bad[i]);
        ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    }
    for (i = 0; i < 253; i++)
        longest[i] = i % 64 == 63 ? '.' : 'a';
    longest[253] = '\0';
    ck_assert_int_eq(gb_tls_names_add_host(&names, longest, &err), 0);
    strcpy(longest + 253, "a");
    ck_assert_int_eq(gb_tls_names_add_host(&names, longest, &err), -1);
    memset(longest, 'a', 64);
    longest[64] = '\0';
    ck_assert_int_eq(gb_tls_names_add_host(&names, longest, &err), -1);
    longest[63] = '\0';
    ck_assert_int_eq(gb_tls_names_add_host(&names, longest, &err), 0);
    gb_tls_names_done(&names);
}
END_TEST

START_TEST(each_name_once) {
    struct gb_tls_names names = {0};
    size_t count;

    ck_assert_int_eq(gb_tls_names_add_host(&names, "LocalHost", &err), 0);
    ck_assert_int_eq(gb_tls_names_add_address(&names, "0:0::1", &err), 0);
    ck_assert_str_eq(names.items[1].text, "::1");
    ck_assert_int_eq(gb_tls_names_add_machine(&names, &err), 0);
    count = names.count;
    ck_assert_uint_ge(count, 3); /* 127.0.0.1 at least */
    ck_assert_int_eq(gb_tls_names_add_machine(&names, &err), 0);
    ck_assert_uint_eq(names.count, count);
    ck_assert_int_eq(gb_tls_names_add_address(&names, "1.2.3", &err), -1);
    gb_tls_names_done(&names);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("pair");
    Suite *suite = suite_create("tls");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, times_and_signatures);
    tcase_add_test(tcase, a_common_name_is_cut);
    tcase_add_test(tcase, files);
    tcase_add_test(tcase, renewal);
    tcase_add_test(tcase, renewal_with_names);
    tcase_add_test(tcase, host_names);
    tcase_add_test(tcase, each_name_once);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}

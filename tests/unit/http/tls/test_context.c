/* What is wrong with a file of certificates or keys is said, with the file's name. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "gb_test.h"
#include "http/tls/context.h"
#include "tls_files.h"

#define SERVER                                                                                                         \
    { .dn = "CN=server", .dns = "localhost", .purpose = GNUTLS_KP_TLS_WWW_SERVER, .from_days = -1, .to_days = 10 }

static struct gb_tls_files files;

/* good, other, between (an authority) and below (signed by it). */
static void make_all(void) {
    static const struct gb_tls_wish server = SERVER;
    static const struct gb_tls_wish authority = {.dn = "CN=authority between", .from_days = -1, .to_days = 20};
    struct gb_tls_signer between;

    gb_tls_files_init(&files);
    gb_tls_issue(&files, "good", &server, &files.root, NULL);
    gb_tls_issue(&files, "other", &server, &files.root, NULL);
    gb_tls_issue(&files, "between", &authority, &files.root, &between);
    gb_tls_issue(&files, "below", &server, &between, NULL);
    gb_tls_signer_done(&between);
    gb_tls_join(&files, "chain.pem", "below.pem", "between.pem", NULL);
    gb_tls_join(&files, "unsorted.pem", "between.pem", "below.pem", NULL);
    gb_tls_join(&files, "strange.pem", "good.pem", "other.pem", NULL);
    gb_tls_join(&files, "open.key", "good.key", NULL);
    gb_tls_write(&files, "empty", "", 0);
    gb_tls_write(&files, "garbage", "\0\1\2certificate", 14);
    gb_tls_write(&files, "cut.pem", "-----BEGIN CERTIFICATE-----\nMIIB", 32);
}

static int read_files(const char *cert, const char *key, const char *ca, struct gb_tls_context **ret,
                      struct gb_error *err) {
    char cert_path[GB_TLS_PATH];
    char key_path[GB_TLS_PATH];
    char ca_path[GB_TLS_PATH];
    struct gb_tls_pair_files pair = {gb_tls_path(&files, cert, cert_path), gb_tls_path(&files, key, key_path)};
    struct gb_tls_config config = {.pairs = &pair, .pair_count = 1};

    if (ca)
        config.client_ca = gb_tls_path(&files, ca, ca_path);
    return gb_tls_context_new(&config, ret, err);
}

static void wrong(const char *cert, const char *key, const char *ca, const char *file, const char *said) {
    struct gb_tls_context *context = NULL;
    struct gb_error err = GB_ERROR_INIT;
    char path[GB_TLS_PATH];

    gb_tls_path(&files, file, path);
    ck_assert_int_eq(read_files(cert, key, ca, &context, &err), -1);
    ck_assert_ptr_null(context);
    ck_assert_msg(strstr(err.detail, said) != NULL, "%s, wanted %s", err.detail, said);
    ck_assert_msg(strncmp(err.detail, path, strlen(path)) == 0, "%s", err.detail);
}

START_TEST(wrong_files) {
    char path[GB_TLS_PATH];

    make_all();
    wrong("none", "good.key", NULL, "none", "No such file");
    wrong("good.pem", "none", NULL, "none", "No such file");
    wrong("", "good.key", NULL, "", "Is a directory");
    wrong("garbage", "good.key", NULL, "garbage", "there is no certificate in PEM");
    wrong("empty", "good.key", NULL, "empty", "there is no certificate in PEM");
    wrong("cut.pem", "good.key", NULL, "cut.pem", "there is no certificate in PEM");
    wrong("good.key", "good.key", NULL, "good.key", "there is no certificate in PEM");
    wrong("good.pem", "garbage", NULL, "garbage", "there is no key in PEM");
    wrong("good.pem", "empty", NULL, "empty", "there is no key in PEM");
    wrong("good.pem", "good.pem", NULL, "good.pem", "there is no key in PEM");
    wrong("good.pem", "other.key", NULL, "other.key", "not that of the first certificate");
    wrong("unsorted.pem", "below.key", NULL, "unsorted.pem", "not in order");
    wrong("strange.pem", "good.key", NULL, "strange.pem", "not in order");
    wrong("good.pem", "good.key", "none", "none", "No such file");
    wrong("good.pem", "good.key", "garbage", "garbage", "no certificate of an authority");
    wrong("good.pem", "good.key", "empty", "empty", "no certificate of an authority");
    wrong("good.pem", "good.key", "good.key", "good.key", "no certificate of an authority");
    ck_assert_int_eq(chmod(gb_tls_path(&files, "open.key", path), 0644), 0);
    wrong("good.pem", "open.key", NULL, "open.key", "other users may read or write the key (mode 0644); chmod 640 it");
    gb_tls_files_done(&files);
}
END_TEST

static void right(const char *cert, const char *key, const char *ca) {
    struct gb_tls_context *context;
    struct gb_error err = GB_ERROR_INIT;
    int64_t days;

    gb_assert_ok(read_files(cert, key, ca, &context, &err), err);
    days = (gb_tls_context_expiry(context, 0) - (int64_t)time(NULL) + 3600) / 86400;
    ck_assert_int_eq(days, 10);
    ck_assert_ptr_eq(gb_tls_context_ref(context), context);
    gb_tls_context_unref(context);
    gb_tls_context_unref(context);
    gb_tls_context_unref(NULL);
}

/* A key that the group may read is right, and so is a chain. */
START_TEST(right_files) {
    char path[GB_TLS_PATH];

    make_all();
    right("good.pem", "good.key", NULL);
    right("good.pem", "good.key", "root.pem");
    right("chain.pem", "below.key", "chain.pem");
    ck_assert_int_eq(chmod(gb_tls_path(&files, "open.key", path), 0640), 0);
    right("good.pem", "open.key", NULL);
    gb_tls_files_done(&files);
}
END_TEST

/* One that has expired is read, because clients say so more plainly than a daemon that does not start. */
START_TEST(each_has_its_expiry) {
    static const struct gb_tls_wish over = {.dn = "CN=old", .dns = "old", .from_days = -9, .to_days = -1};
    char path[4][GB_TLS_PATH];
    struct gb_tls_pair_files pairs[2];
    struct gb_tls_config config = {.pairs = pairs, .pair_count = 2};
    struct gb_tls_context *context;
    struct gb_error err = GB_ERROR_INIT;

    make_all();
    gb_tls_issue(&files, "old", &over, &files.root, NULL);
    pairs[0] =
        (struct gb_tls_pair_files){gb_tls_path(&files, "good.pem", path[0]), gb_tls_path(&files, "good.key", path[1])};
    pairs[1] =
        (struct gb_tls_pair_files){gb_tls_path(&files, "old.pem", path[2]), gb_tls_path(&files, "old.key", path[3])};
    gb_assert_ok(gb_tls_context_new(&config, &context, &err), err);
    ck_assert_int_gt(gb_tls_context_expiry(context, 0), (int64_t)time(NULL));
    ck_assert_int_lt(gb_tls_context_expiry(context, 1), (int64_t)time(NULL));
    gb_tls_context_unref(context);
    gb_tls_files_done(&files);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("TLS files");

    gb_test_add(suite, "wrong", wrong_files, 60);
    gb_test_add(suite, "right", right_files, 60);
    gb_test_add(suite, "expiry", each_has_its_expiry, 60);
    return gb_test_run(suite);
}

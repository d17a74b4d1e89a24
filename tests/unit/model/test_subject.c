/* The names of clients' certificates: those that GnuTLS can write are taken, and no other. */
#include "model/token.h"

#include <stdio.h>
#include <string.h>

#include "gb_test.h"

/* Written by gnutls_x509_crt_get_dn3 of certificates that openssl made. */
static const char *const good[] = {
    "CN=ci",
    "CN=cam1,O=Example",
    "C=DE+L=here,EMAIL=a@b,CN=\xc3\xbc\\\\a,OU=\\#x,CN=\\ #lead\\ ,O=Ex\\, \\\"am\\\"",
    "CN=\\  two  in \\ ,O=a\\+b\\<d\\>e\\;f=g#h",
    "serialNumber=7,dnQualifier=5,2.5.4.45=#0c03616263,OU=\\ ,O=a",
    "CN=a=b",
    "dns:cam1.example",
    "dns:*.example",
    "uri:spiffe://example/cam1",
    "email:a@example.org",
    "ip:192.0.2.7",
    "ip:2001:db8::7",
};

START_TEST(what_can_match_is_taken) {
    char ret[GB_SUBJECT_SIZE];
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_subject_parse(good[_i], strlen(good[_i]), ret, &err), err);
    ck_assert_str_eq(ret, good[_i]);
}
END_TEST

static const struct {
    const char *text;
    const char *meant; /* NULL: there is no guess */
} wrong[] = {
    {"ci", "CN=ci"},
    {"/CN=ci", "CN=ci"},
    {"/O=Example/CN=cam 1", "CN=cam 1,O=Example"},
    {"CN=", NULL},
    {"CN", "CN=CN"},
    {"=ci", NULL},
    {"CN=a,", NULL},
    {"CN=a,b", NULL},
    {"cn=lower", "CN=lower"},
    {"CN=a,  O=b", "CN=a,O=b"},
    {"CN = a , O = b", "CN=a,O=b"},
    {" CN=a", "CN=a"},
    {"emailAddress=a@b,CN=x", "EMAIL=a@b,CN=x"},
    {"CN=a;b", NULL},
    {"CN=\"a\"", NULL},
    {"CN=a\\=b", NULL},
    {"CN=a\\", NULL},
    {"CN=#x", NULL},
    {"FOO=a", NULL},
    {"1.2.3.4=foo", NULL},
    {"1234=#0c00", NULL},
    {"foo:bar", NULL},
    {"dns:", NULL},
    {"dns:a b", NULL},
    {"DNS:cam1.example", "dns:cam1.example"},
    {"uri:", NULL},
    {"uri:/x", NULL},
    {"email:a", NULL},
    {"ip:300.1.1.1", NULL},
    {"ip:2001:DB8:0::7", "ip:2001:db8::7"},
};

START_TEST(what_cannot_match_is_refused) {
    char ret[GB_SUBJECT_SIZE] = "as it was";
    struct gb_error err = GB_ERROR_INIT;
    char says[128];

    ck_assert_msg(gb_subject_parse(wrong[_i].text, strlen(wrong[_i].text), ret, &err) == -1, "%s", wrong[_i].text);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(ret, "as it was");
    snprintf(says, sizeof(says), "\"%s\" may be meant", wrong[_i].meant ? wrong[_i].meant : "");
    ck_assert_msg((strstr(err.detail, says) != NULL) == (wrong[_i].meant != NULL), "%s", err.detail);
    if (!wrong[_i].meant)
        ck_assert_msg(strstr(err.detail, "may be meant") == NULL, "%s", err.detail);
}
END_TEST

START_TEST(bounds) {
    char text[GB_SUBJECT_SIZE + 1] = "CN=";
    char ret[GB_SUBJECT_SIZE];
    struct gb_error err = GB_ERROR_INIT;

    memset(text + 3, 'x', sizeof(text) - 4);
    gb_assert_ok(gb_subject_parse(text, GB_SUBJECT_SIZE - 1, ret, &err), err);
    gb_assert_fails(gb_subject_parse(text, GB_SUBJECT_SIZE, ret, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_subject_parse("", 0, ret, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_subject_parse("CN=a\nb", 6, ret, &err), err, GB_ERR_INVALID_ARGUMENT);
    memset(text, 'x', 200); /* a guess that is longer than the text */
    gb_assert_fails(gb_subject_parse(text, 200, ret, &err), err, GB_ERR_INVALID_ARGUMENT);
    memset(text, 'x', sizeof(text)); /* no guess fits */
    gb_assert_fails(gb_subject_parse(text, GB_SUBJECT_SIZE - 1, ret, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("subject");

    gb_test_add_loop(suite, "good", what_can_match_is_taken, 10, sizeof(good) / sizeof(good[0]));
    gb_test_add_loop(suite, "wrong", what_cannot_match_is_refused, 10, sizeof(wrong) / sizeof(wrong[0]));
    gb_test_add(suite, "bounds", bounds, 10);
    return gb_test_run(suite);
}

/* Whom a request comes from: by a bearer, by a client's certificate, by both. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/auth.h"
#include "api/context.h"
#include "base/hash.h"
#include "core_fixture.h"
#include "gb_test.h"

static struct gb_error err;

/* A daemon's api as far as authorization knows it. */
struct fixture {
    struct core_fixture core;
    struct gb_api api;
    struct gb_route columns;
    struct gb_http_route route;
    struct gb_http_certificate certificate;
    struct gb_http_request request;
    char header[80];
};

static struct gb_token_rec token(int64_t id, const char *secret, enum gb_scope scope) {
    struct gb_token_rec rec = {.id = id, .scopes = 1u << scope, .name = core_name(secret)};

    gb_assert_ok(gb_sha256_hex(secret, strlen(secret), rec.sha256_hex, &err), err);
    return rec;
}

static void init(struct fixture *f) {
    struct gb_token_rec tokens[4] = {token(1, "reader", GB_SCOPE_READ), token(2, "writer", GB_SCOPE_WRITE),
                                     token(3, "cam", GB_SCOPE_WRITE), token(4, "over", GB_SCOPE_WRITE)};

    memset(f, 0, sizeof(*f));
    core_fixture_init(&f->core, "host");
    f->api.core = f->core.core;
    f->columns = (struct gb_route){
        .access = GB_ACCESS_WRITE, .target = GB_TARGET_BUFFER, .reach = GB_REACH_NAMED, .operation = ""};
    f->route.app = &f->columns;
    f->request.app = &f->api;
    f->request.route = &f->route;
    f->request.param[0] = (struct gb_http_text){"default", 7};
    f->request.param[1] = (struct gb_http_text){"cam1-x", 6};
    strcpy(tokens[1].subject, "CN=writer,O=Example");
    strcpy(tokens[2].subject, "dns:cam1.example");
    strcpy(tokens[2].prefix, "cam1-");
    strcpy(tokens[3].subject, "dns:over.example");
    tokens[3].expires_at_us = 1;
    gb_assert_ok(gb_tokens_set(f->api.core, tokens, 4, &err), err);
}

static void done(struct fixture *f) {
    core_fixture_done(&f->core);
}

/* secret, subject: NULL for none. */
static void show(struct fixture *f, const char *secret, const char *subject, const char *name) {
    f->request.headers = secret ? 1 : 0;
    snprintf(f->header, sizeof(f->header), "bearer  %s", secret ? secret : "");
    f->request.header[0].name = (struct gb_http_text){"authorization", 13};
    f->request.header[0].value = (struct gb_http_text){f->header, strlen(f->header)};
    f->request.certificate = subject ? &f->certificate : NULL;
    f->certificate.expires_s = INT64_MAX;
    snprintf(f->certificate.subject, sizeof(f->certificate.subject), "%s", subject ? subject : "");
    f->certificate.names = name ? 2 : 0;
    strcpy(f->certificate.name[0], "dns:elsewhere.example");
    snprintf(f->certificate.name[1], sizeof(f->certificate.name[1]), "%s", name ? name : "");
}

static int64_t who(struct fixture *f) {
    int64_t id = 0;

    gb_assert_ok(gb_api_authorize(NULL, &f->request, &err), err);
    gb_assert_ok(gb_api_bearer(&f->request, &id, &err), err);
    return id;
}

static void refused(struct fixture *f, enum gb_code code) {
    struct gb_error why = GB_ERROR_INIT;

    ck_assert_int_eq(gb_api_authorize(NULL, &f->request, &why), -1);
    ck_assert_msg(why.code == code, "%s", why.detail);
}

static void refused_saying(struct fixture *f, const char *said) {
    struct gb_error why = GB_ERROR_INIT;

    ck_assert_int_eq(gb_api_authorize(NULL, &f->request, &why), -1);
    ck_assert_int_eq(why.code, GB_ERR_UNAUTHENTICATED);
    ck_assert_msg(strstr(why.detail, said) != NULL, "%s", why.detail);
}

START_TEST(by_bearer) {
    struct fixture f;

    init(&f);
    show(&f, "writer", NULL, NULL);
    ck_assert_int_eq(who(&f), 2);
    ck_assert(gb_api_in_force(&f.api, f.request.caller));
    show(&f, "reader", NULL, NULL);
    refused(&f, GB_ERR_FORBIDDEN);
    show(&f, "none", NULL, NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    ck_assert_uint_eq(f.request.caller, 0);
    show(&f, "over", NULL, NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    show(&f, NULL, NULL, NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    f.request.header[1] = f.request.header[0];
    f.request.headers = 2;
    refused(&f, GB_ERR_MALFORMED_REQUEST);
    done(&f);
}
END_TEST

START_TEST(by_certificate) {
    struct fixture f;

    init(&f);
    show(&f, NULL, "CN=writer,O=Example", NULL);
    ck_assert_int_eq(who(&f), 2);
    show(&f, NULL, "CN=nobody", "dns:cam1.example");
    ck_assert_int_eq(who(&f), 3);
    f.request.param[1] = (struct gb_http_text){"cam2-x", 6};
    refused(&f, GB_ERR_FORBIDDEN);
    show(&f, NULL, "CN=nobody", "dns:nowhere.example");
    refused(&f, GB_ERR_UNAUTHENTICATED);
    show(&f, NULL, "", NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    show(&f, NULL, "CN=writer,O=Example", NULL);
    f.certificate.expires_s = time(NULL) + 60;
    ck_assert_int_eq(who(&f), 2);
    f.certificate.expires_s = 1700000000; /* since the connection began */
    refused_saying(&f, "expired at 2023-11-14T22:13:20");
    show(&f, "writer", "CN=writer,O=Example", NULL);
    atomic_store(&f.certificate.distrusted, true);
    refused_saying(&f, "the authorities of clients (--tls-client-ca) have changed");
    atomic_store(&f.certificate.distrusted, false);
    show(&f, NULL, "CN=nobody", "dns:over.example");
    refused(&f, GB_ERR_UNAUTHENTICATED);
    done(&f);
}
END_TEST

START_TEST(by_both) {
    struct fixture f;

    init(&f);
    show(&f, "writer", "CN=nobody", "dns:cam1.example");
    ck_assert_int_eq(who(&f), 2); /* the bearer decides */
    show(&f, "reader", "CN=writer,O=Example", NULL);
    refused(&f, GB_ERR_FORBIDDEN);
    show(&f, "writer", "CN=nobody", NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    show(&f, "none", "CN=writer,O=Example", NULL);
    refused(&f, GB_ERR_UNAUTHENTICATED);
    done(&f);
}
END_TEST

START_TEST(without_tokens) {
    struct fixture f;

    init(&f);
    gb_assert_ok(gb_tokens_set(f.api.core, NULL, 0, &err), err);
    show(&f, "none", "CN=nobody", NULL);
    ck_assert_int_eq(who(&f), 0);
    ck_assert(gb_api_in_force(&f.api, 0));
    done(&f);
}
END_TEST

START_TEST(what_a_prefix_reaches) {
    static const struct {
        enum gb_reach reach;
        bool may;
    } routes[] = {{GB_REACH_NEVER, false}, {GB_REACH_FREE, true}, {GB_REACH_NAMED, false}, {GB_REACH_ASKED, true}};
    struct gb_name prefix;
    struct fixture f;
    size_t i;

    init(&f);
    f.request.param[1] = (struct gb_http_text){"cam1", 4};
    for (i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        f.columns.reach = routes[i].reach;
        show(&f, "cam", NULL, NULL);
        if (routes[i].may)
            ck_assert_int_eq(who(&f), 3);
        else
            refused(&f, GB_ERR_FORBIDDEN);
        show(&f, "writer", NULL, NULL);
        ck_assert_int_eq(who(&f), 2);
        gb_assert_ok(gb_api_reach(&f.request, "any", &err), err);
    }
    show(&f, "cam", NULL, NULL);
    ck_assert_int_eq(who(&f), 3);
    gb_assert_ok(gb_api_prefix(&f.request, &prefix, &err), err);
    ck_assert_str_eq(prefix.s, "cam1-");
    gb_assert_ok(gb_api_reach(&f.request, "cam1-", &err), err);
    gb_assert_fails(gb_api_reach(&f.request, "cam1", &err), err, GB_ERR_FORBIDDEN);
    gb_assert_fails(gb_api_reach(&f.request, "xcam1-", &err), err, GB_ERR_FORBIDDEN);
    done(&f);
}
END_TEST

/* A request that was permitted keeps its grant, and finds out when that has ended. */
START_TEST(revoked_meanwhile) {
    struct gb_token_rec other = token(9, "other", GB_SCOPE_ADMIN);
    struct fixture f;

    init(&f);
    show(&f, "writer", NULL, NULL);
    ck_assert_int_eq(who(&f), 2);
    gb_assert_ok(gb_api_permit(&f.request, GB_SCOPE_READ, "any", &err), err);
    gb_assert_ok(gb_tokens_set(f.api.core, &other, 1, &err), err);
    ck_assert(!gb_api_in_force(&f.api, f.request.caller));
    gb_assert_fails(gb_api_permit(&f.request, GB_SCOPE_READ, "any", &err), err, GB_ERR_UNAUTHENTICATED);
    gb_assert_fails(gb_api_reach(&f.request, "x", &err), err, GB_ERR_UNAUTHENTICATED);
    done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("auth");

    gb_test_add(suite, "bearer", by_bearer, 60);
    gb_test_add(suite, "certificate", by_certificate, 60);
    gb_test_add(suite, "both", by_both, 60);
    gb_test_add(suite, "without", without_tokens, 60);
    gb_test_add(suite, "prefix", what_a_prefix_reaches, 60);
    gb_test_add(suite, "revoked", revoked_meanwhile, 60);
    return gb_test_run(suite);
}

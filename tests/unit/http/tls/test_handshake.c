/* How connections begin: versions, suites, names, protocols, certificates of clients, sessions that are resumed. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gb_test.h"
#include "tls_pair.h"

static struct gb_tls_files files;
static struct gb_tls_context *context;
static struct gb_tls_pair_of p;
static char room[64];

static const struct {
    const char *priority;
    gnutls_protocol_t version;
} VERSIONS[] = {{"NORMAL:-VERS-ALL:+VERS-TLS1.2", GNUTLS_TLS1_2}, {"NORMAL:-VERS-ALL:+VERS-TLS1.3", GNUTLS_TLS1_3}};

static struct gb_tls_context *read_context(const char *ca, const char *second) {
    char path[5][GB_TLS_PATH];
    char name[64];
    struct gb_tls_pair_files pairs[2] = {
        {gb_tls_path(&files, "server.pem", path[0]), gb_tls_path(&files, "server.key", path[1])}};
    struct gb_tls_config config = {.pairs = pairs, .pair_count = 1};
    struct gb_tls_context *made = NULL;
    struct gb_error err = GB_ERROR_INIT;

    if (second) {
        snprintf(name, sizeof(name), "%s.pem", second);
        pairs[1].cert = gb_tls_path(&files, name, path[2]);
        snprintf(name, sizeof(name), "%s.key", second);
        pairs[1].key = gb_tls_path(&files, name, path[3]);
        config.pair_count = 2;
    }
    if (ca)
        config.client_ca = gb_tls_path(&files, ca, path[4]);
    gb_assert_ok(gb_tls_context_new(&config, &made, &err), err);
    return made;
}

static void setup(void) {
    static const struct gb_tls_wish server = {
        .dn = "CN=server", .dns = "localhost", .purpose = GNUTLS_KP_TLS_WWW_SERVER, .from_days = -1, .to_days = 10};

    gb_tls_files_init(&files);
    gb_tls_issue(&files, "server", &server, &files.root, NULL);
}

static void teardown(void) {
    gb_tls_context_unref(context);
    gb_tls_files_done(&files);
}

static void refused(int alert) {
    char byte;

    gb_tls_pair_shake(&p);
    ck_assert_int_eq(p.step, GB_TLS_FAILED);
    if (p.status == 0)
        ck_assert_int_lt(gb_tls_client_reads(&p, &byte, 1), 0); /* TLS 1.3: the client was through before */
    ck_assert_int_eq(p.alert, alert);
    gb_tls_pair_done(&p);
}

/* --- versions and suites ------------------------------------------------------------------------------------------ */

START_TEST(each_version_and_suite) {
    static const char *const versions[] = {"TLS1.2", "TLS1.3"};
    static const char *const ciphers[] = {"AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"};
    char priority[128];
    struct gb_tls_client client = {.priority = priority};
    size_t v;
    size_t i;

    setup();
    context = read_context(NULL, NULL);
    for (v = 0; v < 2; v++) {
        for (i = 0; i < 3; i++) {
            snprintf(priority, sizeof(priority), "NORMAL:-VERS-ALL:+VERS-%s:-CIPHER-ALL:+%s", versions[v], ciphers[i]);
            gb_tls_pair_open(&p, context, &client);
            ck_assert_str_eq(gnutls_protocol_get_name(gnutls_protocol_get_version(p.client)), versions[v]);
            ck_assert_str_eq(gnutls_cipher_get_name(gnutls_cipher_get(p.client)), ciphers[i]);
            gb_tls_pair_done(&p);
        }
    }
    teardown();
}
END_TEST

START_TEST(old_versions_and_weak_suites) {
    static const struct {
        const char *priority;
        int alert;
    } wrong[] = {{"NORMAL:-VERS-ALL:+VERS-TLS1.0", GNUTLS_A_PROTOCOL_VERSION},
                 {"NORMAL:-VERS-ALL:+VERS-TLS1.1", GNUTLS_A_PROTOCOL_VERSION},
                 {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-CBC", GNUTLS_A_HANDSHAKE_FAILURE},
                 {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+RSA", GNUTLS_A_HANDSHAKE_FAILURE},
                 {"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-CCM", GNUTLS_A_HANDSHAKE_FAILURE}};
    size_t i;

    setup();
    context = read_context(NULL, NULL);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        gb_tls_pair_init(&p, context, &(struct gb_tls_client){.priority = wrong[i].priority});
        refused(wrong[i].alert);
    }
    teardown();
}
END_TEST

/* No byte of a handshake comes together with another. */
START_TEST(byte_by_byte) {
    setup();
    context = read_context(NULL, NULL);
    gb_tls_pair_init(&p, context, NULL);
    p.step = GB_TLS_WANTS_READ;
    while (p.step == GB_TLS_WANTS_READ) {
        p.status = gnutls_handshake(p.client);
        ck_assert(p.status == 0 || p.status == GNUTLS_E_AGAIN);
        ck_assert_uint_gt(p.len, 0);
        while (p.len > 0 && p.step == GB_TLS_WANTS_READ) {
            gb_tls_arrive(&p, 1);
            p.step = gb_tls_handshake(p.server);
        }
    }
    ck_assert_int_eq(p.step, GB_TLS_DONE);
    gb_tls_pair_done(&p);
    teardown();
}
END_TEST

/* HTTP without TLS, a record that is too long, one that is no handshake, and the end. */
START_TEST(no_handshake) {
    static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\x16\x03\x01\xff\xff",
                                        "\x17\x03\x03\x01\x05hello", ""};
    size_t i;

    setup();
    context = read_context(NULL, NULL);
    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        gb_tls_pair_init(&p, context, NULL);
        ck_assert_int_eq(send(p.other, texts[i], strlen(texts[i]), 0), (ssize_t)strlen(texts[i]));
        shutdown(p.other, SHUT_WR);
        while ((p.step = gb_tls_handshake(p.server)) == GB_TLS_WANTS_READ)
            gb_tls_woken(p.server);
        ck_assert_int_eq(p.step, GB_TLS_FAILED);
        gb_tls_pair_done(&p);
    }
    teardown();
}
END_TEST

/* A client of TLS 1.2 may warn in plain text before its keys are there. */
static void warn(int count) {
    static const unsigned char warning[] = {0x15, 3, 3, 0, 2, 1, GNUTLS_A_USER_CANCELED};

    for (; count > 0; count--)
        ck_assert_int_eq(send(p.other, warning, sizeof(warning), 0), (ssize_t)sizeof(warning));
}

/* Few warnings do no harm; with more of them the handshake fails, all at once or one by one. */
START_TEST(warnings_without_end) {
    struct gb_tls_client client = {.priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2"};
    int i;

    setup();
    context = read_context(NULL, NULL);
    gb_tls_pair_init(&p, context, &client);
    ck_assert_int_eq(gnutls_handshake(p.client), GNUTLS_E_AGAIN);
    gb_tls_arrive_all(&p);
    warn(3);
    gb_tls_pair_shake(&p);
    ck_assert_int_eq(p.step, GB_TLS_DONE);
    gb_tls_pair_done(&p);
    gb_tls_pair_init(&p, context, &client);
    ck_assert_int_eq(gnutls_handshake(p.client), GNUTLS_E_AGAIN);
    gb_tls_arrive_all(&p);
    for (i = 0; i < (_i ? 12 : 1) && (i == 0 || p.step == GB_TLS_WANTS_READ); i++) {
        warn(_i ? 1 : 12);
        gb_tls_woken(p.server);
        p.step = gb_tls_handshake(p.server);
    }
    ck_assert_int_eq(p.step, GB_TLS_FAILED);
    gb_tls_pair_done(&p);
    teardown();
}
END_TEST

/* The client's first message in records of `size` bytes each, all at once. */
static void send_in_records(size_t size) {
    char bytes[8192];
    size_t to = 0;
    size_t at;

    ck_assert_int_eq(gnutls_handshake(p.client), GNUTLS_E_AGAIN);
    ck_assert_int_eq(p.wire[0], 0x16);
    for (at = 5; at < p.len; at += size) {
        size_t n = p.len - at < size ? p.len - at : size;

        ck_assert_uint_le(to + 5 + n, sizeof(bytes));
        memcpy(bytes + to, p.wire, 3);
        bytes[to + 3] = (char)(n >> 8);
        bytes[to + 4] = (char)n;
        memcpy(bytes + to + 5, p.wire + at, n);
        to += 5 + n;
    }
    ck_assert_int_eq(send(p.other, bytes, to, MSG_DONTWAIT), (ssize_t)to);
    p.len = 0;
    gb_tls_woken(p.server);
}

/* What was read ahead of the first part has no event of its own. Many parts take turns with other connections. */
START_TEST(messages_in_parts) {
    static const size_t sizes[] = {1000, 100, 20, 1};
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    unsigned turns;
    size_t i;

    setup();
    context = read_context(NULL, NULL);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gb_tls_pair_init(&p, context, &client);
        send_in_records(sizes[i]);
        for (turns = 1; (p.step = gb_tls_handshake(p.server)) == GB_TLS_WANTS_WRITE; turns++)
            ;
        ck_assert_int_eq(p.step, GB_TLS_WANTS_READ);
        ck_assert(sizes[i] == 1 ? turns > 2 : turns == 1);
        ck_assert_int_gt(recv(p.other, room, sizeof(room), MSG_PEEK | MSG_DONTWAIT), 0);
        gb_tls_pair_shake(&p);
        ck_assert_int_eq(p.step, GB_TLS_DONE);
        gb_tls_pair_done(&p);
    }
    teardown();
}
END_TEST

/* --- names and protocols ------------------------------------------------------------------------------------------ */

static void shows(const char *asked, const char *subject) {
    const gnutls_datum_t *der;
    gnutls_x509_crt_t cert;
    gnutls_datum_t dn;

    gb_tls_pair_open(&p, context, &(struct gb_tls_client){.name = asked});
    der = gnutls_certificate_get_peers(p.client, NULL);
    ck_assert_ptr_nonnull(der);
    gnutls_x509_crt_init(&cert);
    ck_assert_int_eq(gnutls_x509_crt_import(cert, der, GNUTLS_X509_FMT_DER), 0);
    ck_assert_int_eq(gnutls_x509_crt_get_dn3(cert, &dn, 0), 0);
    ck_assert_str_eq((const char *)dn.data, subject);
    gnutls_free(dn.data);
    gnutls_x509_crt_deinit(cert);
    gb_tls_pair_done(&p);
}

START_TEST(the_name_that_is_asked_for) {
    static const struct gb_tls_wish second = {
        .dn = "CN=second", .dns = "*.gpu.example", .from_days = -1, .to_days = 10};
    static const struct gb_tls_wish third = {
        .dn = "CN=third", .dns = "one.gpu.example", .from_days = -1, .to_days = 10};

    setup();
    gb_tls_issue(&files, "second", &second, &files.root, NULL);
    context = read_context(NULL, "second");
    shows(NULL, "CN=server");
    shows("localhost", "CN=server");
    shows("one.gpu.example", "CN=second");
    shows("two.gpu.example", "CN=second");
    shows("ONE.gpu.example", "CN=second");
    shows("gpu.example", "CN=server");
    shows("a.b.gpu.example", "CN=server");
    shows("strange", "CN=server");
    gb_tls_context_unref(context);
    gb_tls_issue(&files, "third", &third, &files.root, NULL);
    context = read_context("root.pem", "third");
    shows("one.gpu.example", "CN=third");
    gb_tls_context_unref(context);
    gb_tls_join(&files, "server.pem", "second.pem", NULL); /* the name itself goes before one that has a star */
    gb_tls_join(&files, "server.key", "second.key", NULL);
    context = read_context(NULL, "third");
    shows("one.gpu.example", "CN=third");
    shows("two.gpu.example", "CN=second");
    teardown();
}
END_TEST

START_TEST(the_protocol) {
    static const char *const spoken[] = {"http/1.1", "http/1.0"};
    gnutls_datum_t chosen;
    size_t i;

    setup();
    context = read_context(NULL, NULL);
    for (i = 0; i < 2; i++) {
        gb_tls_pair_open(&p, context, &(struct gb_tls_client){.alpn = spoken[i]});
        ck_assert_int_eq(gnutls_alpn_get_selected_protocol(p.client, &chosen), 0);
        ck_assert_uint_eq(chosen.size, 8);
        ck_assert_mem_eq(chosen.data, spoken[i], 8);
        gb_tls_pair_done(&p);
    }
    gb_tls_pair_init(&p, context, &(struct gb_tls_client){.alpn = "h2"});
    refused(GNUTLS_A_NO_APPLICATION_PROTOCOL);
    teardown();
}
END_TEST

/* --- certificates of clients -------------------------------------------------------------------------------------- */

static void client_of(struct gb_tls_client *client, const char *name, char paths[2][GB_TLS_PATH]) {
    char file[64];

    snprintf(file, sizeof(file), "%s.pem", name);
    client->cert = gb_tls_path(&files, file, paths[0]);
    snprintf(file, sizeof(file), "%s.key", name);
    client->key = gb_tls_path(&files, file, paths[1]);
}

static void issue_client(const char *name, int from, int to, const char *purpose, const struct gb_tls_signer *by) {
    struct gb_tls_wish wish = {.dn = "CN=the client,O=all",
                               .dns = "client.example",
                               .uri = "spiffe://all/client",
                               .purpose = purpose,
                               .from_days = from,
                               .to_days = to};

    gb_tls_issue(&files, name, &wish, by, NULL);
}

static void seen(const char *subject) {
    const struct gb_http_certificate *certificate = gb_tls_certificate_ref(p.server);

    ck_assert_ptr_nonnull(certificate);
    ck_assert_str_eq(certificate->subject, subject);
    ck_assert_uint_eq(certificate->names, 2);
    ck_assert_str_eq(certificate->name[0], "dns:client.example");
    ck_assert_str_eq(certificate->name[1], "uri:spiffe://all/client");
    gb_tls_certificate_unref(certificate);
}

START_TEST(clients_with_and_without_certificates) {
    static const struct {
        const char *name;
        int alert;
    } wrong[] = {{"expired", GNUTLS_A_CERTIFICATE_EXPIRED},     {"early", GNUTLS_A_BAD_CERTIFICATE},
                 {"purpose", GNUTLS_A_UNSUPPORTED_CERTIFICATE}, {"unknown", GNUTLS_A_UNKNOWN_CA},
                 {"unknown-expired", GNUTLS_A_UNKNOWN_CA},      {"itself", GNUTLS_A_UNKNOWN_CA}};
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    struct gb_tls_files others;
    char paths[2][GB_TLS_PATH];
    size_t i;

    setup();
    gb_tls_files_init(&others);
    issue_client("good", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    issue_client("expired", -5, -1, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    issue_client("early", 1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    issue_client("purpose", -1, 5, GNUTLS_KP_TLS_WWW_SERVER, &files.root);
    issue_client("unknown", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &others.root);
    issue_client("unknown-expired", -5, -1, GNUTLS_KP_TLS_WWW_CLIENT, &others.root);
    issue_client("itself", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, NULL);
    context = read_context("root.pem", NULL);
    gb_tls_pair_open(&p, context, &client);
    ck_assert_ptr_null(gb_tls_certificate_ref(p.server));
    gb_tls_pair_done(&p);
    client_of(&client, "good", paths);
    gb_tls_pair_open(&p, context, &client);
    ck_assert_int_eq(gnutls_protocol_get_version(p.client), VERSIONS[_i].version);
    seen("CN=the client,O=all");
    gb_tls_pair_done(&p);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        client_of(&client, wrong[i].name, paths);
        gb_tls_pair_init(&p, context, &client);
        refused(wrong[i].alert);
    }
    gb_tls_files_done(&others);
    teardown();
}
END_TEST

static bool is_good(void) {
    const struct gb_http_certificate *certificate = gb_tls_certificate_ref(p.server);
    struct gb_error err = GB_ERROR_INIT;
    bool good = gb_http_certificate_check(certificate, &err) == 0;

    ck_assert_int_eq(err.code, good ? GB_OK : GB_ERR_UNAUTHENTICATED);
    gb_tls_certificate_unref(certificate);
    return good;
}

/* The connection stays, and the authorities in force decide whether its client's certificate does. */
START_TEST(authorities_change) {
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    struct gb_tls_context *same;
    struct gb_tls_context *other;
    struct gb_tls_context *none;
    const struct gb_http_certificate *certificate;
    char paths[2][GB_TLS_PATH];

    setup();
    issue_client("good", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    context = read_context("root.pem", NULL);
    same = read_context("root.pem", NULL);
    other = read_context("server.pem", NULL);
    none = read_context(NULL, NULL);
    gb_tls_pair_open(&p, context, &client);
    ck_assert(gb_tls_is_verified(p.server, other)); /* there is no certificate */
    gb_tls_verify(p.server, other);
    gb_tls_pair_done(&p);
    client_of(&client, "good", paths);
    gb_tls_pair_open(&p, context, &client);
    certificate = gb_tls_certificate_ref(p.server);
    ck_assert_int_eq((certificate->expires_s - time(NULL) + 3600) / 86400, 5);
    gb_tls_certificate_unref(certificate);
    ck_assert(gb_tls_is_verified(p.server, context) && is_good());
    ck_assert(!gb_tls_is_verified(p.server, same));
    gb_tls_verify(p.server, same);
    ck_assert(gb_tls_is_verified(p.server, same) && is_good());
    gb_tls_verify(p.server, other);
    ck_assert(gb_tls_is_verified(p.server, other) && !is_good());
    gb_tls_verify(p.server, context);
    ck_assert(is_good());
    gb_tls_verify(p.server, none);
    ck_assert(!is_good());
    gb_tls_pair_done(&p);
    gb_tls_context_unref(same);
    gb_tls_context_unref(other);
    gb_tls_context_unref(none);
    teardown();
}
END_TEST

/* A listener without an authority of clients does not ask for certificates. */
START_TEST(nobody_asks) {
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    char paths[2][GB_TLS_PATH];

    setup();
    issue_client("good", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    context = read_context(NULL, NULL);
    client_of(&client, "good", paths);
    gb_tls_pair_open(&p, context, &client);
    ck_assert_ptr_null(gb_tls_certificate_ref(p.server));
    ck_assert_ptr_null(gb_tls_certificate_ref(NULL));
    gb_tls_certificate_unref(NULL);
    gb_tls_pair_done(&p);
    teardown();
}
END_TEST

/* --- resumption --------------------------------------------------------------------------------------------------- */

/* A whole handshake. *ret: what resumes the session. */
static void first_session(const struct gb_tls_client *client, gnutls_datum_t *ret) {
    char byte;

    gb_tls_pair_open(&p, context, client);
    ck_assert_int_eq((int)gb_tls_client_reads(&p, &byte, 1), GNUTLS_E_AGAIN); /* takes the tickets of TLS 1.3 */
    ck_assert_int_eq(gnutls_session_is_resumed(p.client), 0);
    ck_assert_int_eq(gnutls_session_get_data2(p.client, ret), 0);
    gb_tls_pair_done(&p);
}

START_TEST(sessions_are_resumed) {
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    char paths[2][GB_TLS_PATH];
    gnutls_datum_t session;
    int with;

    setup();
    issue_client("good", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    context = read_context("root.pem", NULL);
    for (with = 0; with < 2; with++) {
        client.session = NULL;
        if (with)
            client_of(&client, "good", paths);
        first_session(&client, &session);
        client.session = &session;
        gb_tls_pair_open(&p, context, &client);
        ck_assert_int_ne(gnutls_session_is_resumed(p.client), 0);
        if (with)
            seen("CN=the client,O=all");
        else
            ck_assert_ptr_null(gb_tls_certificate_ref(p.server));
        gb_tls_pair_done(&p);
        gnutls_free(session.data);
    }
    teardown();
}
END_TEST

/* The files were read again: with another authority a certificate that was good is not. */
START_TEST(no_session_outlives_its_files) {
    struct gb_tls_client client = {.priority = VERSIONS[_i].priority};
    char paths[2][GB_TLS_PATH];
    gnutls_datum_t session;

    setup();
    issue_client("good", -1, 5, GNUTLS_KP_TLS_WWW_CLIENT, &files.root);
    context = read_context("root.pem", NULL);
    client_of(&client, "good", paths);
    first_session(&client, &session);
    gb_tls_context_unref(context);
    context = read_context("root.pem", NULL);
    client.session = &session;
    gb_tls_pair_open(&p, context, &client);
    ck_assert_int_eq(gnutls_session_is_resumed(p.client), 0);
    gb_tls_pair_done(&p);
    gb_tls_context_unref(context);
    context = read_context("server.pem", NULL);
    gb_tls_pair_init(&p, context, &client);
    refused(GNUTLS_A_UNKNOWN_CA);
    gnutls_free(session.data);
    teardown();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("TLS handshakes");

    gb_test_add(suite, "suites", each_version_and_suite, 60);
    gb_test_add(suite, "weak", old_versions_and_weak_suites, 60);
    gb_test_add(suite, "bytes", byte_by_byte, 60);
    gb_test_add(suite, "garbage", no_handshake, 60);
    gb_test_add_loop(suite, "warnings", warnings_without_end, 60, 2);
    gb_test_add_loop(suite, "parts", messages_in_parts, 60, 2);
    gb_test_add(suite, "names", the_name_that_is_asked_for, 60);
    gb_test_add(suite, "protocol", the_protocol, 60);
    gb_test_add_loop(suite, "clients", clients_with_and_without_certificates, 60, 2);
    gb_test_add_loop(suite, "authorities", authorities_change, 60, 2);
    gb_test_add_loop(suite, "unasked", nobody_asks, 60, 2);
    gb_test_add_loop(suite, "resumption", sessions_are_resumed, 60, 2);
    gb_test_add_loop(suite, "resumption", no_session_outlives_its_files, 60, 2);
    return gb_test_run(suite);
}

/* Addresses that proxies tell of: networks, X-Forwarded-For, Forwarded, and the PROXY protocol. */
#include <string.h>

#include "gb_test.h"
#include "http/message/network.h"

static struct gb_http_network network(const char *text) {
    struct gb_http_network n;

    ck_assert_msg(gb_http_network_read(text, &n), "%s", text);
    return n;
}

static struct gb_http_address address(const char *text) {
    struct gb_http_address a = {.family = 0};

    if (strcmp(text, "unix") != 0)
        ck_assert_msg(gb_http_address_read(text, strlen(text), &a), "%s", text);
    return a;
}

START_TEST(which_addresses_a_network_has) {
    static const struct {
        const char *network;
        const char *address;
        bool has;
    } rows[] = {{"192.0.2.0/24", "192.0.2.255", true},
                {"192.0.2.0/24", "192.0.3.0", false},
                {"192.0.2.0/25", "192.0.2.128", false},
                {"192.0.2.7", "192.0.2.7", true},
                {"192.0.2.7", "192.0.2.8", false},
                {"0.0.0.0/0", "203.0.113.9", true},
                {"0.0.0.0/0", "2001:db8::1", false},
                {"2001:db8::/33", "2001:db8:7fff::1", true},
                {"2001:db8::/33", "2001:db8:8000::1", false},
                {"192.0.2.0/24", "::ffff:192.0.2.1", true},
                {"unix", "unix", true},
                {"unix", "127.0.0.1", false},
                {"0.0.0.0/0", "unix", false}};
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gb_http_network n = network(rows[i].network);
        struct gb_http_address a = address(rows[i].address);

        ck_assert_msg(gb_http_networks_have(&n, 1, &a) == rows[i].has, "%s %s", rows[i].network, rows[i].address);
    }
}
END_TEST

START_TEST(what_is_no_network) {
    static const char *const wrong[] = {"",           "192.0.2.0/33", "192.0.2/24",   "host",         "2001:db8::/129",
                                        "192.0.2.1/", "192.0.2.1/-1", "192.0.2.1/8x", "192.0.2.1 /8", "[::1]"};
    struct gb_http_network n;
    size_t i;

    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(!gb_http_network_read(wrong[i], &n), "%s", wrong[i]);
}
END_TEST

/* --- headers ------------------------------------------------------------------------------------------------------ */

static struct gb_http_request request;

static void add_header(const char *name, const char *value) {
    struct gb_http_pair *pair = &request.header[request.headers++];

    pair->name = (struct gb_http_text){name, strlen(name)};
    pair->value = (struct gb_http_text){value, strlen(value)};
}

static const char *resolve(const char *from, bool forwarded, const char *const *lines) {
    static char text[GB_HTTP_ADDRESS_SIZE];
    struct gb_http_network trusted[3] = {network("10.0.0.0/8"), network("2001:db8:a::/48"), network("unix")};

    memset(&request, 0, sizeof(request));
    request.from = address(from);
    for (; lines[0]; lines += 2)
        add_header(lines[0], lines[1]);
    gb_forwarded_resolve(&request, forwarded, trusted, 3);
    gb_http_address_text(&request.from, text);
    return text;
}

START_TEST(the_rightmost_that_is_not_trusted) {
    static const char X[] = "X-Forwarded-For";
    static const struct {
        const char *from;
        const char *lines[5];
        const char *wanted;
    } rows[] = {
        {"203.0.113.1", {X, "192.0.2.1"}, "203.0.113.1"}, /* not a trusted proxy: it says what it likes */
        {"10.0.0.1", {X, "192.0.2.1"}, "192.0.2.1"},
        {"10.0.0.1", {NULL}, "10.0.0.1"},
        {"unix", {X, "192.0.2.1"}, "192.0.2.1"},
        {"10.0.0.1", {X, "198.51.100.9, 192.0.2.1, 10.0.0.2 ,10.0.0.3"}, "192.0.2.1"},
        {"10.0.0.1", {X, "198.51.100.9", X, "10.0.0.2"}, "198.51.100.9"},
        {"10.0.0.1", {X, "10.0.0.9"}, "10.0.0.9"}, /* all are proxies: the first of them */
        {"10.0.0.1", {X, "192.0.2.1, junk, 10.0.0.2"}, "unknown"},
        {"10.0.0.1", {X, ""}, "unknown"},
        {"10.0.0.1", {X, "192.0.2.1,"}, "unknown"},
        {"unix", {X, "8.8.8.8, unix:"}, "unknown"},
        {"unix", {X, "unknown"}, "unknown"},
        {"unix", {X, "fe80::1%eth0"}, "unknown"},
        {"unix", {NULL}, ""},
        {"203.0.113.1", {X, "junk"}, "203.0.113.1"},
        {"10.0.0.1", {X, "192.0.2.1:4711"}, "192.0.2.1"},
        {"10.0.0.1", {X, "2001:db8::7"}, "2001:db8::7"},
        {"10.0.0.1", {X, "[2001:db8::7]:80"}, "2001:db8::7"},
        {"10.0.0.1", {X, "[2001:db8::7"}, "unknown"},
        {"10.0.0.1", {"Forwarded", "for=192.0.2.1"}, "10.0.0.1"},
        {"10.0.0.1",
         {"Forwarded", "for=192.0.2.1", X, "192.0.2.2"},
         "192.0.2.2"}, /* the client has written the first */
        {"2001:db8:a::1", {X, "::ffff:192.0.2.1"}, "192.0.2.1"},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_msg(strcmp(resolve(rows[i].from, false, rows[i].lines), rows[i].wanted) == 0, "row %zu: %s", i,
                      resolve(rows[i].from, false, rows[i].lines));
}
END_TEST

START_TEST(proxies_that_write_the_other_field) {
    static const char F[] = "forwarded";
    static const struct {
        const char *lines[5];
        const char *wanted;
    } rows[] = {
        {{F, "for=192.0.2.1;proto=https, for=10.0.0.2"}, "192.0.2.1"},
        {{F, "proto=https; For=\"[2001:db8::7]:80\""}, "2001:db8::7"},
        {{F, "for=_hidden"}, "unknown"},
        {{F, "for=unknown, for=10.0.0.2"}, "unknown"},
        {{F, "proto=https"}, "unknown"},
        {{"X-Forwarded-For", "192.0.2.2", F, "for=192.0.2.1"}, "192.0.2.1"},
        {{"X-Forwarded-For", "192.0.2.2"}, "10.0.0.1"},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_msg(strcmp(resolve("10.0.0.1", true, rows[i].lines), rows[i].wanted) == 0, "row %zu: %s", i,
                      resolve("10.0.0.1", true, rows[i].lines));
}
END_TEST

/* --- the PROXY protocol ------------------------------------------------------------------------------------------- */

static const char *name_of(const struct gb_http_address *a) {
    static char text[GB_HTTP_ADDRESS_SIZE];

    gb_http_address_text(a, text);
    return text;
}

START_TEST(version_1) {
    static const struct {
        const char *line;
        int result; /* -2: the length of the line */
        const char *wanted;
    } rows[] = {{"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n", -2, "192.0.2.1"},
                {"PROXY TCP6 2001:db8::1 2001:db8::2 1000 80\r\n", -2, "2001:db8::1"},
                {"PROXY UNKNOWN\r\n", -2, ""},
                {"PROXY UNKNOWN ff 1 2 3\r\n", -2, ""},
                {"PROXY UNKNOWNS\r\n", -1, ""},
                {"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\n", -1, ""},
                {"PROXY TCP4 192.0.2.1 192.0.2.2 1000 65536\r\n", -1, ""},
                {"PROXY TCP4 192.0.2.1 192.0.2.2 1000\r\n", -1, ""},
                {"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80 \r\n", -1, ""},
                {"PROXY TCP4  192.0.2.1 192.0.2.2 1000 80\r\n", -1, ""},
                {"PROXY TCP4 2001:db8::1 192.0.2.2 1000 80\r\n", -1, ""},
                {"PROXY TCP6 192.0.2.1 192.0.2.2 1000 80\r\n", -1, ""},
                {"PROXY TCP5 192.0.2.1 192.0.2.2 1000 80\r\n", -1, ""},
                {"GET / HTTP/1.1\r\n\r\n", -1, ""},
                {"PROXX", -1, ""},
                {"PRO", 0, ""},
                {"PROXY TCP4 192.0.2.1", 0, ""},
                {"", 0, ""}};
    char endless[200];
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gb_http_address a = {.family = 0};
        int n = (int)strlen(rows[i].line);

        ck_assert_msg(gb_proxy_header_read(rows[i].line, (size_t)n, &a) == (rows[i].result == -2 ? n : rows[i].result),
                      "%s", rows[i].line);
        ck_assert_str_eq(name_of(&a), rows[i].wanted);
    }
    memset(endless, 'x', sizeof(endless));
    memcpy(endless, "PROXY ", 6);
    ck_assert_int_eq(gb_proxy_header_read(endless, sizeof(endless), &(struct gb_http_address){.family = 0}), -1);
}
END_TEST

START_TEST(version_2) {
    static const char signature[] = "\r\n\r\n\0\r\nQUIT\n";
    static const struct {
        unsigned char head[4]; /* version and command, family and protocol, length */
        int result;            /* -2: the whole length */
        const char *wanted;
    } rows[] = {{{0x21, 0x11, 0, 12}, -2, "1.2.3.4"}, {{0x21, 0x21, 0, 36}, -2, "102:304:506:708:90a:b0c:d0e:f10"},
                {{0x21, 0x11, 0, 40}, -2, "1.2.3.4"}, /* with what the proxy adds */
                {{0x20, 0x00, 0, 0}, -2, ""},         /* LOCAL */
                {{0x20, 0x11, 0, 12}, -2, ""},        {{0x21, 0x00, 0, 0}, -2, ""},
                {{0x21, 0x31, 0, 216}, -2, ""}, /* a UNIX socket */
                {{0x21, 0x11, 0, 11}, -1, ""},        {{0x21, 0x21, 0, 35}, -1, ""},
                {{0x21, 0x41, 0, 12}, -1, ""},        {{0x21, 0x13, 0, 12}, -1, ""},
                {{0x22, 0x11, 0, 12}, -1, ""},        {{0x11, 0x11, 0, 12}, -1, ""},
                {{0x21, 0x11, 0x10, 0}, -1, ""}}; /* longer than is taken */
    unsigned char bytes[512];
    size_t i;
    size_t n;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int whole = 16 + rows[i].head[3];
        struct gb_http_address a = {.family = 0};

        for (n = 0; n < sizeof(bytes) - 16; n++)
            bytes[16 + n] = (unsigned char)(n + 1);
        memcpy(bytes, signature, 12);
        memcpy(bytes + 12, rows[i].head, 4);
        ck_assert_msg(gb_proxy_header_read(bytes, sizeof(bytes), &a) == (rows[i].result == -2 ? whole : -1), "row %zu",
                      i);
        ck_assert_str_eq(name_of(&a), rows[i].wanted);
        /* No part of a good one is taken for the whole, or for nothing. */
        for (n = 0; rows[i].result == -2 && n < (size_t)whole; n++)
            ck_assert_int_eq(gb_proxy_header_read(bytes, n, &a), 0);
    }
    ck_assert_int_eq(gb_proxy_header_read("\r\n\r\nGET", 7, &(struct gb_http_address){.family = 0}), -1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("networks");

    gb_test_add(suite, "has", which_addresses_a_network_has, 10);
    gb_test_add(suite, "wrong", what_is_no_network, 10);
    gb_test_add(suite, "forwarded", the_rightmost_that_is_not_trusted, 10);
    gb_test_add(suite, "other field", proxies_that_write_the_other_field, 10);
    gb_test_add(suite, "version 1", version_1, 10);
    gb_test_add(suite, "version 2", version_2, 10);
    return gb_test_run(suite);
}

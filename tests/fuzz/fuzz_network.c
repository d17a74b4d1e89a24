/* Networks of trusted proxies, and the address that X-Forwarded-For or Forwarded tells. A network has the addresses
 * that agree with it bit by bit. A second reading finds the same client. What a client has written ahead of its proxy's
 * word changes nothing. The client of a proxy is never taken for the proxy. */
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "http/message/network.h"

#define NETWORKS_MAX 4
#define LINES_MAX 8
#define INPUT_MAX 2000
#define ELEMENTS_MAX (INPUT_MAX + LINES_MAX)
#define OTHER "203.0.113.77"

/* "F" or "X" for the field, the networks; the connection's address; then a value on each line. */
const unsigned gb_fuzz_mutants = 2000;
const char *const gb_fuzz_seeds[] = {
    "X 10.0.0.0/8 192.0.2.0/25\n10.0.0.1\n203.0.113.9, 192.0.2.1,10.2.3.4\n",
    "X 10.0.0.0/8\n10.0.0.1\n203.0.113.9:4711, 10.0.0.2:80\n[2001:db8::7]:80\n",
    "X ::/0 0.0.0.0/0 unix\nunix\n2001:db8::1, \"192.0.2.7\" , ::ffff:10.0.0.1\n",
    "F 2001:db8::/33\n2001:db8:7fff::1\nfor=192.0.2.7;by=x, FOR=\"[2001:db8::7]:80\" ; proto=https\n",
    "F 127.0.0.0/8\n127.0.0.1\nproto=http;for=unknown, for=127.0.0.2\nfor=_hidden\n",
    "X unix\nunix\n8.8.8.8, unix:\nfe80::1%eth0\n",
    "X 10.0.0.0/33\n10.0.0.1\n,, 1.2.3.4,\n",
    NULL,
};

struct scene {
    struct gb_http_network network[NETWORKS_MAX];
    size_t networks;
    struct gb_http_address from;
    bool forwarded;
    struct gb_http_text line[LINES_MAX];
    unsigned lines;
};

/* --- the second reading ------------------------------------------------------------------------------------------- */

static bool same(const struct gb_http_address *a, const struct gb_http_address *b) {
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static bool bit(const uint8_t *bytes, unsigned i) {
    return bytes[i / 8] >> (7 - i % 8) & 1;
}

static bool is_trusted(const struct scene *scene, const struct gb_http_address *address) {
    struct gb_http_address plain = gb_http_address_plain(address);
    size_t i;

    for (i = 0; i < scene->networks; i++) {
        const struct gb_http_network *network = &scene->network[i];
        unsigned k = 0;

        while (k < network->bits && bit(plain.bytes, k) == bit(network->address.bytes, k))
            k++;
        if (network->address.family == plain.family && k == network->bits)
            return true;
    }
    return false;
}

/* Cuts blanks and tabs off both ends. */
static char *trimmed(char *s) {
    char *end = s + strlen(s);

    while (end > s && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    return s + strspn(s, " \t");
}

static bool node(char *s, struct gb_http_address *ret) {
    size_t n = strlen(s);

    if (n >= 2 && s[0] == '"' && s[n - 1] == '"') {
        s[n - 1] = '\0';
        s++;
    }
    if (s[0] == '[') {
        n = strcspn(s, "]");
        return s[n] == ']' && gb_http_address_read(s + 1, n - 1, ret);
    }
    if (strchr(s, ':') && strchr(s, ':') == strrchr(s, ':'))
        *strchr(s, ':') = '\0';
    return gb_http_address_read(s, strlen(s), ret);
}

static bool element(char *s, bool forwarded, struct gb_http_address *ret) {
    char *rest;
    char *pair;

    if (!forwarded)
        return node(trimmed(s), ret);
    for (pair = s; pair; pair = rest) {
        rest = strchr(pair, ';');
        if (rest)
            *rest++ = '\0';
        pair = trimmed(pair);
        if (strncasecmp(pair, "for=", 4) == 0 && pair[4])
            return node(pair + 4, ret);
    }
    return false;
}

static struct gb_http_address second(const struct scene *scene) {
    static char text[INPUT_MAX * 2 + LINES_MAX * 2];
    struct gb_http_address client = scene->from;
    char *piece[ELEMENTS_MAX];
    size_t pieces = 0;
    size_t used = 0;
    unsigned i;
    char *s;

    for (i = 0; i < scene->lines; i++) { /* several lines are one, with commas between */
        memcpy(text + used, scene->line[i].s, scene->line[i].len);
        used += scene->line[i].len;
        text[used++] = ',';
    }
    if (used == 0 || !is_trusted(scene, &client))
        return client;
    text[used - 1] = '\0';
    for (s = text; s && pieces < ELEMENTS_MAX; s = s ? s + 1 : NULL) {
        piece[pieces++] = s;
        s = strchr(s, ',');
        if (s)
            *s = '\0';
    }
    while (pieces > 0 && is_trusted(scene, &client)) {
        struct gb_http_address next;

        if (!element(piece[--pieces], scene->forwarded, &next))
            next = (struct gb_http_address){.family = GB_HTTP_ADDRESS_UNKNOWN};
        client = next;
    }
    return client;
}

/* --- the target --------------------------------------------------------------------------------------------------- */

static struct gb_http_address resolve(const struct scene *scene) {
    const char *name = scene->forwarded ? "Forwarded" : "x-forwarded-for";
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_http_address client;
    unsigned i;

    FUZZ_ASSERT(request);
    request->from = scene->from;
    for (i = 0; i < scene->lines; i++) {
        request->header[i].name = (struct gb_http_text){name, strlen(name)};
        request->header[i].value = scene->line[i];
    }
    request->headers = scene->lines;
    gb_forwarded_resolve(request, scene->forwarded, scene->network, scene->networks);
    client = request->from;
    free(request);
    return client;
}

/* One more line, ahead of the others (what a client wrote) or behind them (what the proxy did). */
static struct gb_http_address resolve_with(const struct scene *scene, const char *value, bool behind) {
    struct scene more = *scene;

    memmove(more.line + !behind, scene->line, scene->lines * sizeof(more.line[0]));
    more.line[behind ? more.lines : 0] = (struct gb_http_text){value, strlen(value)};
    more.lines++;
    return resolve(&more);
}

static void check_client(const struct scene *scene) {
    static const char *const ahead[] = {"198.51.100.1", "for=198.51.100.1", "unknown", "", ",", "\"", "[",
                                        "for=\"[::1"};
    struct gb_http_address client = resolve(scene);
    struct gb_http_address wanted = second(scene);
    struct gb_http_address other;
    size_t i;

    FUZZ_ASSERT(same(&client, &wanted));
    if (scene->lines > 0 && is_trusted(scene, &scene->from))
        FUZZ_ASSERT(client.family != 0);
    if (scene->lines == LINES_MAX)
        return;
    for (i = 0; i < sizeof(ahead) / sizeof(ahead[0]) && !is_trusted(scene, &client); i++) {
        wanted = resolve_with(scene, ahead[i], false);
        FUZZ_ASSERT(same(&client, &wanted));
    }
    FUZZ_ASSERT(gb_http_address_read(OTHER, strlen(OTHER), &other));
    wanted = resolve_with(scene, scene->forwarded ? "for=" OTHER : OTHER ":80", true);
    if (!is_trusted(scene, &other))
        FUZZ_ASSERT(same(&wanted, is_trusted(scene, &scene->from) ? &other : &scene->from));
}

/* Written and read again it is the same network. */
static void check_network(const struct gb_http_network *network) {
    char text[GB_HTTP_ADDRESS_SIZE + 8];
    struct gb_http_network again;

    FUZZ_ASSERT(network->bits <= (network->address.family == 4 ? 32 : network->address.family == 6 ? 128 : 0));
    gb_http_address_text(&network->address, text);
    snprintf(text + strlen(text), 8, network->address.family == 0 ? "unix" : "/%u", network->bits);
    FUZZ_ASSERT(gb_http_network_read(text, &again));
    FUZZ_ASSERT(same(&again.address, &network->address) && again.bits == network->bits);
    FUZZ_ASSERT(gb_http_networks_have(network, 1, &network->address));
}

static void read_networks(struct scene *scene, char *words) {
    char *at;
    char *word = strtok_r(words, " ", &at);

    scene->forwarded = word && word[0] == 'F';
    for (word = word ? strtok_r(NULL, " ", &at) : NULL; word && scene->networks < NETWORKS_MAX;
         word = strtok_r(NULL, " ", &at)) {
        struct gb_http_network network;

        if (gb_http_network_read(word, &network)) {
            check_network(&network);
            scene->network[scene->networks++] = network;
        }
    }
    FUZZ_ASSERT(gb_http_networks_have(scene->network, scene->networks, &scene->from) ==
                is_trusted(scene, &scene->from));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct scene scene = {.networks = 0};
    char *copy;
    char *rest;
    char *line;
    unsigned i;

    if (size > INPUT_MAX || memchr(data, '\0', size))
        return 0;
    copy = strndup((const char *)data, size);
    FUZZ_ASSERT(copy);
    rest = copy;
    line = strsep(&rest, "\n");
    if (rest) {
        char *address = strsep(&rest, "\n");

        if (!gb_http_address_read(address, strlen(address), &scene.from))
            scene.from = (struct gb_http_address){.family = 0};
    }
    read_networks(&scene, line);
    while (scene.lines < LINES_MAX && (line = strsep(&rest, "\n"))) {
        size_t n = strlen(line);
        char *block = malloc(n > 0 ? n : 1); /* with no NUL behind it */

        FUZZ_ASSERT(block);
        memcpy(block, line, n);
        scene.line[scene.lines++] = (struct gb_http_text){block, n};
    }
    check_client(&scene);
    for (i = 0; i < scene.lines; i++)
        free((char *)scene.line[i].s);
    free(copy);
    return 0;
}

/* What the directory and other nodes say: answers, records, tickets. Any bytes are refused, or give values that can be
 * written and read again. The first byte says what the others are. */
#include <stdlib.h>
#include <string.h>

#include "fleet/messages.h"
#include "fleet/records.h"
#include "fleet/ticket.h"
#include "fuzz.h"

#define HEADER "\"header\":{\"cluster_id\":\"14841639068965178418\",\"revision\":\"8\"}"

const unsigned gb_fuzz_mutants = 3000;
const char *const gb_fuzz_seeds[] = {
    "t{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"3\"}}}]}",
    "t{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"aw==\",\"create_revision\":\"3\","
    "\"mod_revision\":\"5\",\"value\":\"e30=\",\"lease\":\"4242\"}],\"more\":true,\"count\":\"2\"}},{}]}",
    "l{\"result\":{" HEADER ",\"ID\":\"4242\",\"TTL\":\"30\"}}\n",
    "l{" HEADER ",\"ID\":\"4242\",\"TTL\":\"-1\",\"grantedTTL\":30,\"keys\":[\"L2c=\"]}",
    "r{\"error\":\"etcdserver: lease already exists\",\"message\":\"m\",\"code\":9}",
    "n{\"uuid\":\"7\",\"urls\":{\"lan\":\"http://10.0.0.5:7070\",\"b\":\"https://[::1]\"},\"labels\":{\"a\":\"b\"},"
    "\"version\":\"1\",\"schema\":[1,1],\"devices\":[{\"uuid\":\"G\",\"name\":\"H\",\"bytes\":8}],\"x\":[{}]}",
    "a{\"uuid\":\"7\",\"incarnation\":9,\"state\":\"ready\",\"free\":[1,2],\"committed\":[3,4]}",
    "s{\"node\":\"a\",\"epoch\":3,\"claim\":\"c\",\"on_partition\":\"stop\",\"labels\":{},\"quota\":null}",
    "m{\"uuid\":\"6ba7b810-9dad-41d1-80b4-00c04fd430c8\",\"schema\":1}",
    "k{\"key\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\"made\":77}",
    "c11.1000000300.dG9rZW4uMQ.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    NULL,
};

static struct gb_error err;

static void try_txn(const char *text, size_t n) {
    struct gb_txn_answer answer;
    size_t i;
    size_t k;

    if (gb_txn_read(text, n, &answer, &err) < 0) {
        FUZZ_ASSERT(!answer.results && answer.count == 0);
        return;
    }
    FUZZ_ASSERT(answer.cluster_id != 0);
    for (i = 0; i < answer.count; i++)
        for (k = 0; k < gb_txn_result(&answer, i)->count; k++) {
            const struct gb_kv *kv = &gb_txn_result(&answer, i)->items[k];

            FUZZ_ASSERT(kv->key && kv->value && kv->value[kv->bytes] == '\0');
        }
    gb_txn_answer_done(&answer);
}

static void try_lease(const char *text, size_t n) {
    struct gb_lease_answer answer;

    if (gb_lease_read(text, n, &answer, &err) < 0) {
        FUZZ_ASSERT(!answer.keys && answer.key_count == 0);
        return;
    }
    FUZZ_ASSERT(answer.ttl_s >= -1 && answer.cluster_id != 0);
    gb_lease_answer_done(&answer);
}

static void try_node(const char *text, size_t n) {
    struct gb_fleet_node node = {.name = {"n"}};
    struct gb_fleet_node again = {.name = {"n"}};
    char *written;
    size_t i;

    if (gb_fleet_node_read(text, n, &node, &err) < 0)
        return;
    FUZZ_ASSERT(node.uuid > 0 && !node.alive);
    for (i = 0; i < node.url_count; i++)
        FUZZ_ASSERT(gb_fleet_url_is_valid(node.urls[i].url) && !strpbrk(node.urls[i].url, "\r\n \"<>"));
    FUZZ_ASSERT(gb_fleet_labels_are_valid(node.labels));
    written = gb_fleet_node_write(&node, NULL, &err);
    if (!written) /* its text has no room for what has to be escaped */
        return;
    FUZZ_ASSERT(gb_fleet_node_read(written, strlen(written), &again, &err) == 0);
    FUZZ_ASSERT(memcmp(&node, &again, sizeof(node)) == 0);
    free(written);
}

static void try_alive(const char *text, size_t n) {
    struct gb_fleet_alive alive;
    struct gb_fleet_alive again;
    char *written;

    if (gb_fleet_alive_read(text, n, &alive, &err) < 0)
        return;
    written = gb_fleet_alive_write(&alive, NULL, &err);
    FUZZ_ASSERT(written && gb_fleet_alive_read(written, strlen(written), &again, &err) == 0);
    FUZZ_ASSERT(again.uuid == alive.uuid && again.incarnation == alive.incarnation && again.count == alive.count &&
                again.draining == alive.draining);
    free(written);
}

static void try_session(const char *text, size_t n) {
    struct gb_fleet_session session = {.name = {"s"}};
    struct gb_fleet_session again = {.name = {"s"}};
    char *written;

    if (gb_fleet_session_read(text, n, &session, &err) < 0)
        return;
    FUZZ_ASSERT(session.epoch > 0 && session.node.s[0]);
    written = gb_fleet_session_write(&session, &err);
    if (!written)
        return;
    FUZZ_ASSERT(gb_fleet_session_read(written, strlen(written), &again, &err) == 0);
    FUZZ_ASSERT(memcmp(&session, &again, sizeof(session)) == 0);
    free(written);
}

static void try_ticket(const char *text, size_t n) {
    struct gb_ticket_keys keys = {.keys = {{.id = 11}}, .count = 1};
    struct gb_ticket_scope scope = {.method = "GET", .path = "/", .node = "n"};
    char *ticket = strndup(text, n);
    char who[GB_NAME_MAX + 1];

    FUZZ_ASSERT(ticket);
    FUZZ_ASSERT(gb_ticket_check(&keys, 1000000000, &scope, ticket, who, sizeof(who), &err) < 0);
    free(ticket);
}

static void try_others(char kind, const char *text, size_t n) {
    char uuid[40];
    char why[32];
    unsigned char key[32];
    int64_t made = 0;

    switch (kind) {
    case 'r':
        FUZZ_ASSERT(gb_refusal_read(text, n, why, sizeof(why)) >= 0 && strlen(why) < sizeof(why));
        break;
    case 'm':
        if (gb_fleet_meta_read(text, n, uuid, &err) == 0)
            FUZZ_ASSERT(uuid[0] && strlen(uuid) < sizeof(uuid));
        break;
    case 'k':
        if (gb_fleet_key_read(text, n, key, &made) == 0)
            FUZZ_ASSERT(made >= 0);
        break;
    default:
        try_ticket(text, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *text = (const char *)data + 1;

    if (n == 0)
        return 0;
    err = GB_ERROR_INIT;
    switch (data[0]) {
    case 't':
        try_txn(text, n - 1);
        break;
    case 'l':
        try_lease(text, n - 1);
        break;
    case 'n':
        try_node(text, n - 1);
        break;
    case 'a':
        try_alive(text, n - 1);
        break;
    case 's':
        try_session(text, n - 1);
        break;
    default:
        try_others((char)data[0], text, n - 1);
    }
    return 0;
}

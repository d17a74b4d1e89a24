/* The records of the directory, between JSON and structures. A record that another node wrote is checked member by
 * member; nothing here waits or keeps state. directory.c, owner.c, member.c and the files of hub call this. */
#include "fleet/records.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"
#include "fleet/messages.h"
#include "model/model.h"

static int malformed(struct gb_error *err, const char *what) {
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory's record of %s is malformed", what);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

bool gb_fleet_url_is_valid(const char *url) {
    const char *at = url;
    size_t host;

    if (strncmp(url, "http://", 7) == 0)
        at += 7;
    else if (strncmp(url, "https://", 8) == 0)
        at += 8;
    else
        return false;
    host = strcspn(at, "/");
    if (host == 0 || memchr(at, '@', host) || strlen(url) >= GB_FLEET_URL_SIZE)
        return false;
    for (; *at; at++)
        if (*at <= ' ' || *at > '~' || strchr("\"<>\\^`{|}?#", *at))
            return false;
    return true;
}

static bool all_texts(const json_t *object) {
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return false;
    json_object_foreach((json_t *)object, key, value) if (!json_is_string(value)) return false;
    return true;
}

bool gb_fleet_label_key_is_valid(const char *key, size_t n) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char digits[] = "0123456789";
    size_t i;

    if (n == 0 || memchr(digits, key[0], 10) || (n >= 2 && memcmp(key, "__", 2) == 0))
        return false;
    for (i = 0; i < n; i++)
        if (!memchr(letters, key[i], sizeof(letters) - 1) && !memchr(digits, key[i], 10))
            return false;
    return !(n == 4 && memcmp(key, "node", n) == 0) && !(n == 7 && memcmp(key, "version", n) == 0);
}

bool gb_fleet_labels_are_valid(const char *labels) {
    json_t *root = strlen(labels) < GB_FLEET_LABELS_SIZE ? json_loads(labels, 0, NULL) : NULL;
    bool ret = root && all_texts(root);

    json_decref(root);
    return ret;
}

bool gb_fleet_labels_match(const char *labels, const char *select) {
    json_t *want;
    json_t *have;
    bool ret;
    const char *key;
    json_t *value;

    if (select[0] == '\0')
        return true;
    want = json_loads(select, 0, NULL);
    have = json_loads(labels[0] ? labels : "{}", 0, NULL);
    ret = json_is_object(want) && json_is_object(have);
    if (ret)
        json_object_foreach(want, key, value) ret = ret && json_equal(json_object_get(have, key), value);
    json_decref(want);
    json_decref(have);
    return ret;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

/* A later version may write longer records. The limit protects memory: a parsed text takes many times its length. */
#define TEXT_MAX (16 * GB_FLEET_NODE_RECORD_MAX)

static json_t *load(const char *text, size_t n) {
    json_t *root = n <= TEXT_MAX ? json_loadb(text, n, 0, NULL) : NULL;

    if (root && !json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* The parsed old record, or an empty one. */
static json_t *begin(const char *old) {
    json_t *root = old ? load(old, strlen(old)) : NULL;

    return root ? root : json_object();
}

static char *end(json_t *root, int failed, size_t most, const char *what, struct gb_error *err) {
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);

    json_decref(root);
    if (!text) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the record of %s", what);
    } else if (strlen(text) > most) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "the record of %s is %zu bytes, %zu are permitted: its labels are too long", what, strlen(text),
                     most);
        free(text);
        text = NULL;
    }
    return text;
}

/* Reads a text that fits and has no control characters. Absent: "". */
static bool read_text(const json_t *object, const char *key, char *ret, size_t size) {
    const json_t *value = json_object_get(object, key);
    const char *text = value ? json_string_value(value) : "";
    size_t i;

    if (!text || strlen(text) >= size)
        return false;
    for (i = 0; text[i]; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    memcpy(ret, text, i + 1);
    return true;
}

static bool read_name(const json_t *value, struct gb_name *ret) {
    struct gb_error ignored = GB_ERROR_INIT;
    const char *text = json_string_value(value);

    return text && gb_name_parse("name", text, strlen(text), ret, &ignored) == 0;
}

static bool read_number(const json_t *value, uint64_t *ret) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

/* Writes a number as text, because many programs round JSON numbers of 64 bits. */
static bool read_uuid(const json_t *object, uint64_t *ret) {
    const char *text = json_string_value(json_object_get(object, "uuid"));

    return text && gb_parse_u64(text, strlen(text), ret) == GB_PARSE_OK && *ret > 0 && *ret <= INT64_MAX;
}

static int set_uuid(json_t *root, uint64_t uuid) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, uuid);
    return json_object_set_new(root, "uuid", json_string(text));
}

static bool read_labels(const json_t *object, char ret[GB_FLEET_LABELS_SIZE]) {
    const json_t *labels = json_object_get(object, "labels");
    size_t n;

    strcpy(ret, "{}");
    if (!labels)
        return true;
    if (!all_texts(labels))
        return false;
    n = json_dumpb(labels, ret, GB_FLEET_LABELS_SIZE - 1, JSON_COMPACT);
    if (n == 0 || n >= GB_FLEET_LABELS_SIZE)
        return false;
    ret[n] = '\0';
    return true;
}

static int set_labels(json_t *root, const char *labels) {
    return json_object_set_new(root, "labels", json_loads(labels[0] ? labels : "{}", 0, NULL));
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static bool read_urls(const json_t *urls, struct gb_fleet_node *ret) {
    const char *network;
    json_t *value;

    if (urls && !json_is_object(urls))
        return false;
    json_object_foreach((json_t *)urls, network, value) {
        struct gb_fleet_url *url = &ret->urls[ret->url_count];
        struct gb_error ignored = GB_ERROR_INIT;
        const char *text = json_string_value(value);

        if (ret->url_count == GB_FLEET_NETWORKS_MAX)
            return false;
        if (gb_name_parse("network", network, strlen(network), &url->network, &ignored) < 0)
            return false;
        if (!text || !gb_fleet_url_is_valid(text))
            return false;
        strcpy(url->url, text);
        ret->url_count++;
    }
    return true;
}

static bool read_devices(const json_t *list, struct gb_fleet_node *ret) {
    size_t i;

    if (list && (!json_is_array(list) || json_array_size(list) > GB_FLEET_DEVICES_MAX))
        return false;
    for (i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        struct gb_fleet_device *device = &ret->devices[i];

        if (!json_is_object(one) || !read_text(one, "uuid", device->uuid, sizeof(device->uuid)) ||
            !read_text(one, "name", device->name, sizeof(device->name)) ||
            !read_number(json_object_get(one, "bytes"), &device->bytes))
            return false;
    }
    ret->device_count = i;
    return true;
}

int gb_fleet_node_read(const char *text, size_t n, struct gb_fleet_node *ret, struct gb_error *err) {
    struct gb_name name = ret->name;
    json_t *root = load(text, n);
    bool valid;

    *ret = (struct gb_fleet_node){.name = name};
    valid = root && read_uuid(root, &ret->uuid) && read_text(root, "version", ret->version, sizeof(ret->version)) &&
            read_labels(root, ret->labels) && read_urls(json_object_get(root, "urls"), ret) &&
            read_devices(json_object_get(root, "devices"), ret);
    json_decref(root);
    if (valid)
        return 0;
    *ret = (struct gb_fleet_node){.name = name};
    return malformed(err, "a node");
}

static json_t *urls_of(const struct gb_fleet_node *node) {
    json_t *urls = json_object();
    size_t i;

    for (i = 0; i < node->url_count; i++)
        if (json_object_set_new(urls, node->urls[i].network.s, json_string(node->urls[i].url)) < 0) {
            json_decref(urls);
            return NULL;
        }
    return urls;
}

static json_t *devices_of(const struct gb_fleet_node *node) {
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < node->device_count; i++) {
        const struct gb_fleet_device *device = &node->devices[i];
        json_int_t bytes = (json_int_t)(device->bytes > INT64_MAX ? INT64_MAX : device->bytes);

        if (json_array_append_new(
                list, json_pack("{s:s,s:s,s:I}", "uuid", device->uuid, "name", device->name, "bytes", bytes)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

char *gb_fleet_node_write(const struct gb_fleet_node *node, const char *old, struct gb_error *err) {
    json_t *root = begin(old);
    int failed = set_uuid(root, node->uuid);

    failed |= json_object_set_new(root, "urls", urls_of(node));
    failed |= set_labels(root, node->labels);
    failed |= json_object_set_new(root, "version", json_string(node->version));
    failed |= json_object_set_new(root, "schema", json_pack("[ii]", 1, 1));
    failed |= json_object_set_new(root, "devices", devices_of(node));
    return end(root, failed, GB_FLEET_NODE_RECORD_MAX, "the node", err);
}

const char *gb_fleet_url_on(const struct gb_fleet_node *node, const struct gb_name *network) {
    size_t i;

    for (i = 0; i < node->url_count; i++)
        if (gb_name_equal(&node->urls[i].network, network))
            return node->urls[i].url;
    return NULL;
}

/* --- that are alive ----------------------------------------------------------------------------------------------- */

static bool read_numbers(const json_t *list, uint64_t *ret, size_t *ret_count) {
    size_t i;

    *ret_count = json_array_size(list);
    if (*ret_count > GB_FLEET_DEVICES_MAX)
        return false;
    for (i = 0; i < *ret_count; i++)
        if (!read_number(json_array_get(list, i), &ret[i]))
            return false;
    return !list || json_is_array(list);
}

int gb_fleet_alive_read(const char *text, size_t n, struct gb_fleet_alive *ret, struct gb_error *err) {
    json_t *root = load(text, n);
    const char *state = json_string_value(json_object_get(root, "state"));
    size_t committed;
    bool valid;

    *ret = (struct gb_fleet_alive){0};
    valid =
        root && read_uuid(root, &ret->uuid) && read_number(json_object_get(root, "incarnation"), &ret->incarnation) &&
        ret->incarnation > 0 && state && read_numbers(json_object_get(root, "free"), ret->free_bytes, &ret->count) &&
        read_numbers(json_object_get(root, "committed"), ret->committed_bytes, &committed) && committed == ret->count;
    /* An unknown state is of a later version: it counts as one that takes no sessions. */
    ret->draining = valid && strcmp(state, "ready") != 0;
    json_decref(root);
    if (valid)
        return 0;
    *ret = (struct gb_fleet_alive){0};
    return malformed(err, "a node that is alive");
}

static json_t *numbers_of(const uint64_t *values, size_t n) {
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < n; i++)
        if (json_array_append_new(list, json_integer((json_int_t)(values[i] > INT64_MAX ? INT64_MAX : values[i]))) <
            0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

char *gb_fleet_alive_write(const struct gb_fleet_alive *alive, const char *old, struct gb_error *err) {
    json_t *root = begin(old);
    int failed = set_uuid(root, alive->uuid);

    failed |= json_object_set_new(root, "incarnation", json_integer((json_int_t)alive->incarnation));
    failed |= json_object_set_new(root, "state", json_string(alive->draining ? "draining" : "ready"));
    failed |= json_object_set_new(root, "free", numbers_of(alive->free_bytes, alive->count));
    failed |= json_object_set_new(root, "committed", numbers_of(alive->committed_bytes, alive->count));
    return end(root, failed, GB_FLEET_NODE_RECORD_MAX, "the node", err);
}

void gb_fleet_node_set_alive(struct gb_fleet_node *node, const struct gb_fleet_alive *alive) {
    size_t i;

    /* alive/N may be of another machine with that name. */
    if (alive->uuid != node->uuid)
        return;
    node->alive = true;
    node->incarnation = alive->incarnation;
    node->draining = alive->draining;
    for (i = 0; i < node->device_count && i < alive->count; i++) {
        node->devices[i].free_bytes = alive->free_bytes[i];
        node->devices[i].committed_bytes = alive->committed_bytes[i];
    }
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

/* A malformed holder is left out. */
static void read_former(const json_t *former, struct gb_fleet_former *ret) {
    if (!former || !read_name(json_object_get(former, "node"), &ret->node) ||
        !read_number(json_object_get(former, "epoch"), &ret->epoch) || ret->epoch == 0 ||
        !read_text(former, "claim", ret->claim, sizeof(ret->claim)))
        *ret = (struct gb_fleet_former){.epoch = 0};
}

static bool read_holders(const json_t *list, struct gb_fleet_session *ret) {
    size_t i;

    if (list && (!json_is_array(list) || json_array_size(list) > GB_FLEET_HOLDERS_MAX))
        return false;
    for (i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        struct gb_fleet_holder *holder = &ret->holders[ret->holder_count++];

        if (!read_name(json_object_get(one, "node"), &holder->node) ||
            !read_number(json_object_get(one, "number"), &holder->number))
            return false;
    }
    return true;
}

static json_t *holders_of(const struct gb_fleet_session *session) {
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < session->holder_count; i++)
        if (json_array_append_new(list, json_pack("{s:s,s:I}", "node", session->holders[i].node.s, "number",
                                                  (json_int_t)session->holders[i].number)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

const struct gb_fleet_holder *gb_fleet_holder_of(const struct gb_fleet_session *session, const struct gb_name *node) {
    size_t i;

    for (i = 0; i < session->holder_count; i++)
        if (gb_name_equal(&session->holders[i].node, node))
            return &session->holders[i];
    return NULL;
}

int gb_fleet_holders_text(const struct gb_fleet_session *session, struct gb_text **ret) {
    char text[GB_FLEET_HOLDERS_MAX * (GB_NAME_MAX + 24) + 1];
    size_t used = 0;
    size_t i;

    for (i = 0; i < session->holder_count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%" PRIu64, i > 0 ? "," : "",
                                 session->holders[i].node.s, session->holders[i].number);
    *ret = used > 0 ? gb_text_new(text, used) : NULL;
    return used > 0 && !*ret ? -1 : 0;
}

bool gb_fleet_holders_read(const char *text, struct gb_fleet_session *ret) {
    const char *at = text;

    for (ret->holder_count = 0; *at != '\0'; ret->holder_count++) {
        size_t n = strcspn(at, ",");
        const char *colon = memchr(at, ':', n);
        struct gb_fleet_holder *holder = &ret->holders[ret->holder_count];

        if (ret->holder_count == GB_FLEET_HOLDERS_MAX || !colon ||
            gb_name_parse("node", at, (size_t)(colon - at), &holder->node, NULL) < 0 ||
            gb_parse_u64(colon + 1, n - (size_t)(colon + 1 - at), &holder->number) != GB_PARSE_OK)
            return false;
        at += n + (at[n] == ',');
    }
    return true;
}

/* Keeps the members that another version has written. */
static void read_later(const json_t *root, char ret[GB_FLEET_LATER_SIZE]) {
    static const char *const known[] = {
        "node",     "epoch",   "claim",  "on_partition", "labels", "quota", "tenant", "failover_after_s",
        "replicas", "holders", "former", "released",     "state"};
    json_t *rest = json_copy((json_t *)root);
    char *text = NULL;
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        json_object_del(rest, known[i]);
    if (json_object_size(rest) > 0)
        text = json_dumps(rest, JSON_COMPACT);
    if (text && strlen(text) < GB_FLEET_LATER_SIZE)
        strcpy(ret, text);
    free(text);
    json_decref(rest);
}

static int set_later(json_t *root, const char *later) {
    json_t *rest = later[0] != '\0' ? load(later, strlen(later)) : NULL;
    int failed = rest ? json_object_update_missing(root, rest) : 0;

    json_decref(rest);
    return failed;
}

int gb_fleet_session_read(const char *text, size_t n, struct gb_fleet_session *ret, struct gb_error *err) {
    struct gb_name name = ret->name;
    json_t *root = load(text, n);
    const json_t *quota = json_object_get(root, "quota");
    const json_t *failover = json_object_get(root, "failover_after_s");
    const json_t *replicas = json_object_get(root, "replicas");
    const json_t *tenant = json_object_get(root, "tenant");
    uint64_t wanted = 0;
    char on[8];
    bool valid;

    *ret = (struct gb_fleet_session){.name = name, .quota_bytes = GB_UNLIMITED};
    valid = root && read_name(json_object_get(root, "node"), &ret->node) &&
            read_number(json_object_get(root, "epoch"), &ret->epoch) && ret->epoch > 0 &&
            read_text(root, "claim", ret->claim, sizeof(ret->claim)) && read_labels(root, ret->labels) &&
            read_text(root, "on_partition", on, sizeof(on)) && (!strcmp(on, "serve") || !strcmp(on, "stop")) &&
            (!quota || json_is_null(quota) || read_number(quota, &ret->quota_bytes)) &&
            (!failover || json_is_null(failover) || read_number(failover, &ret->failover_after_s)) &&
            (!replicas || read_number(replicas, &wanted)) && (!tenant || read_name(tenant, &ret->tenant)) &&
            read_holders(json_object_get(root, "holders"), ret);
    if (valid) {
        const char *state = json_string_value(json_object_get(root, "state"));

        ret->on_partition = strcmp(on, "stop") == 0 ? GB_ON_PARTITION_STOP : GB_ON_PARTITION_SERVE;
        ret->deleted = state && strcmp(state, "deleted") == 0;
        ret->released = json_is_true(json_object_get(root, "released"));
        read_former(json_object_get(root, "former"), &ret->former);
        ret->replicas = wanted < GB_FLEET_HOLDERS_MAX ? (unsigned)wanted : GB_FLEET_HOLDERS_MAX;
        read_later(root, ret->later);
    }
    json_decref(root);
    if (valid)
        return 0;
    *ret = (struct gb_fleet_session){.name = name};
    return malformed(err, "a session");
}

char *gb_fleet_session_write(const struct gb_fleet_session *session, struct gb_error *err) {
    json_t *root = json_object();
    json_t *quota = session->quota_bytes <= INT64_MAX ? json_integer((json_int_t)session->quota_bytes) : json_null();
    const char *on = session->on_partition == GB_ON_PARTITION_STOP ? "stop" : "serve";
    int failed = json_object_set_new(root, "node", json_string(session->node.s));

    failed |= json_object_set_new(root, "epoch", json_integer((json_int_t)session->epoch));
    failed |= json_object_set_new(root, "claim", json_string(session->claim));
    failed |= json_object_set_new(root, "on_partition", json_string(on));
    failed |= set_labels(root, session->labels);
    failed |= json_object_set_new(root, "quota", quota);
    if (session->failover_after_s > 0)
        failed |= json_object_set_new(root, "failover_after_s", json_integer((json_int_t)session->failover_after_s));
    if (session->tenant.s[0] != '\0')
        failed |= json_object_set_new(root, "tenant", json_string(session->tenant.s));
    if (session->replicas > 0)
        failed |= json_object_set_new(root, "replicas", json_integer((json_int_t)session->replicas));
    if (session->holder_count > 0)
        failed |= json_object_set_new(root, "holders", holders_of(session));
    if (session->released)
        failed |= json_object_set_new(root, "released", json_true());
    failed |= json_object_set_new(root, "state", json_string(session->deleted ? "deleted" : "live"));
    if (session->former.node.s[0] != '\0')
        failed |= json_object_set_new(root, "former",
                                      json_pack("{s:s,s:I,s:s}", "node", session->former.node.s, "epoch",
                                                (json_int_t)session->former.epoch, "claim", session->former.claim));
    failed |= set_later(root, session->later);
    return end(root, failed, GB_FLEET_SESSION_RECORD_MAX, "the session", err);
}

/* --- tenants ------------------------------------------------------------------------------------------------------ */

int gb_fleet_tenant_read(const char *text, size_t n, struct gb_fleet_tenant *ret, struct gb_error *err) {
    json_t *root = load(text, n);
    const json_t *limit = json_object_get(root, "limit");
    bool valid = root && (!limit || json_is_null(limit) || read_number(limit, &ret->limit_bytes));

    if (valid && (!limit || json_is_null(limit)))
        ret->limit_bytes = GB_UNLIMITED;
    json_decref(root);
    return valid ? 0 : malformed(err, "a tenant");
}

char *gb_fleet_tenant_write(uint64_t limit_bytes) {
    json_t *root = limit_bytes > INT64_MAX ? json_object() : json_pack("{s:I}", "limit", (json_int_t)limit_bytes);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

char *gb_fleet_order_write(const char *what, const struct gb_name *session) {
    json_t *root = session->s[0] != '\0' ? json_pack("{s:s,s:s}", "op", what, "session", session->s)
                                         : json_pack("{s:s}", "op", what);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

bool gb_fleet_order_read(const char *text, size_t n, char *ret_what, size_t size, struct gb_name *ret_session) {
    json_t *root = load(text, n);
    const json_t *session = json_object_get(root, "session");
    bool valid = root && read_text(root, "op", ret_what, size);

    *ret_session = (struct gb_name){""};
    valid = valid && (!session || read_name(session, ret_session));
    json_decref(root);
    return valid;
}

/* --- others ------------------------------------------------------------------------------------------------------- */

int gb_fleet_meta_read(const char *text, size_t n, char ret_uuid[40], struct gb_error *err) {
    json_t *root = load(text, n);
    uint64_t schema = 0;
    bool valid = root && read_text(root, "uuid", ret_uuid, 40) && ret_uuid[0] &&
                 read_number(json_object_get(root, "schema"), &schema);

    json_decref(root);
    if (!valid)
        return malformed(err, "the fleet");
    if (schema != 1)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the fleet's records are of schema %" PRIu64 ", and this daemon knows 1", schema);
    return 0;
}

int gb_fleet_key_read(const char *text, size_t n, unsigned char ret_key[32], int64_t *ret_made_s) {
    json_t *root = load(text, n);
    const char *key = json_string_value(json_object_get(root, "key"));
    uint64_t made = 0;
    char *bytes = NULL;
    size_t count = 0;
    int r = -1;

    if (key && read_number(json_object_get(root, "made"), &made) &&
        gb_base64_read(key, strlen(key), false, &bytes, &count) && count == 32) {
        memcpy(ret_key, bytes, 32);
        *ret_made_s = (int64_t)made;
        r = 0;
    }
    free(bytes);
    json_decref(root);
    return r;
}

char *gb_fleet_key_write(const unsigned char key[32], int64_t made_s) {
    char *bytes = gb_base64(key, 32, false);
    json_t *root = json_pack("{s:s,s:I}", "key", bytes ? bytes : "", "made", (json_int_t)made_s);
    char *text = bytes && root ? json_dumps(root, JSON_COMPACT) : NULL;

    free(bytes);
    json_decref(root);
    return text;
}

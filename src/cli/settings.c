#include "cli/settings.h"

#include <stdlib.h>
#include <string.h>

json_t *gb_cli_device(const char *device) {
    if (device[strspn(device, "0123456789")] == '\0')
        return json_integer(strtol(device, NULL, 10));
    return json_string(device);
}

static void set_limit(json_t *body, const char *key, bool given, uint64_t value) {
    if (given)
        json_object_set_new(body, key, value == GB_CLI_NONE ? json_null() : json_integer((json_int_t)value));
}

static void set_text(json_t *body, const char *key, const char *text) {
    if (text != NULL)
        json_object_set_new(body, key, json_string(text));
}

/* "K=V,K=V"; a key without = takes the label away. */
int gb_cli_label_settings(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.labels;
    json_t *labels;

    if (at == NULL)
        return 0;
    labels = json_object();
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        const char *sign = memchr(at, '=', n);
        size_t key = sign != NULL ? (size_t)(sign - at) : n;
        json_t *value = key == 0 ? NULL : sign == NULL ? json_null() : json_stringn(sign + 1, n - key - 1);

        if (value == NULL || json_object_setn_new(labels, at, key, value) < 0) {
            json_decref(labels);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--labels is KEY=VALUE,... in UTF-8; a KEY alone removes");
        }
        at += n + (at[n] == ',');
    }
    return json_object_set_new(body, "labels", labels);
}

int gb_cli_session_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;
    json_t *quota = json_object();

    set_limit(quota, "bytes", o->given[GB_CLI_ID_max_bytes], o->max_bytes);
    set_limit(quota, "buffers", o->given[GB_CLI_ID_max_buffers], o->max_buffers);
    set_limit(quota, "pinned_bytes", o->given[GB_CLI_ID_max_pinned], o->max_pinned);
    set_limit(quota, "stored_bytes", o->given[GB_CLI_ID_max_stored], o->max_stored);
    if (json_object_size(quota) > 0)
        json_object_set(body, "quota", quota);
    json_decref(quota);
    if (o->given[GB_CLI_ID_idle_ttl])
        json_object_set_new(body, "idle_ttl_s", json_integer((json_int_t)o->idle_ttl));
    set_text(body, "durability", o->durability);
    set_text(body, "spill", o->spill);
    if (o->given[GB_CLI_ID_priority])
        json_object_set_new(body, "priority", json_integer((json_int_t)o->priority));
    set_text(body, "tenant", o->tenant);
    if (o->given[GB_CLI_ID_replicas])
        json_object_set_new(body, "replicas", json_integer((json_int_t)o->replicas));
    if (o->given[GB_CLI_ID_failover_after])
        json_object_set_new(body, "failover_after_s", json_integer((json_int_t)o->failover_after));
    set_text(body, "pool", o->pool);
    return gb_cli_label_settings(cli, body);
}

/* The policies that are named are on, the others off. */
static int set_reuse(struct gb_cli *cli, json_t *body) {
    static const struct {
        const char *word;
        const char *key;
    } policies[] = {{"event", "follow_event_dependencies"},
                    {"opportunistic", "allow_opportunistic"},
                    {"internal", "allow_internal_dependencies"}};
    const char *text = cli->options.reuse;
    const char *at = text;
    bool on[3] = {false};
    json_t *reuse;
    size_t i;

    if (text == NULL)
        return 0;
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        bool all = n == 3 && strncmp(at, "all", n) == 0;
        bool known = all || (n == 4 && strncmp(at, "none", n) == 0);

        for (i = 0; i < 3; i++) {
            bool named = strlen(policies[i].word) == n && strncmp(at, policies[i].word, n) == 0;

            on[i] |= all || named;
            known |= named;
        }
        if (!known)
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                                "--reuse \"%s\": it is all, none, or of event, opportunistic and internal", text);
        at += n + (at[n] == ',');
    }
    reuse = json_object();
    for (i = 0; i < 3; i++)
        json_object_set_new(reuse, policies[i].key, json_boolean(on[i]));
    return json_object_set_new(body, "reuse", reuse);
}

int gb_cli_pool_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;

    set_limit(body, "max_bytes", o->given[GB_CLI_ID_max_bytes], o->max_bytes);
    set_limit(body, "release_threshold_bytes", o->given[GB_CLI_ID_release_threshold], o->release_threshold);
    if (o->exportable)
        json_object_set_new(body, "exportable", json_true());
    if (o->device != NULL)
        json_object_set_new(body, "device", gb_cli_device(o->device));
    return set_reuse(cli, body);
}

/* "3,4" */
static int set_shape(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.shape;
    json_t *shape;

    if (at == NULL)
        return 0;
    shape = json_array();
    for (;;) {
        char *end;
        long long n = strtoll(at, &end, 10);

        if (end == at || *at < '0' || *at > '9' || (*end != '\0' && *end != ',')) {
            json_decref(shape);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--shape \"%s\" is not N,N...", cli->options.shape);
        }
        json_array_append_new(shape, json_integer(n));
        if (*end == '\0')
            break;
        at = end + 1;
    }
    return json_object_set_new(body, "shape", shape);
}

int gb_cli_only(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.only;
    json_t *names;

    if (at == NULL)
        return 0;
    names = json_array();
    for (;;) {
        size_t n = strcspn(at, ",");
        json_t *name = json_stringn(at, n);

        if (n == 0 || name == NULL) {
            json_decref(name);
            json_decref(names);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--only is names with commas between them, such as a,b");
        }
        json_array_append_new(names, name);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    json_object_set_new(body, "names", names);
    return 0;
}

int gb_cli_restore_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;

    if (o->load != NULL && strcmp(o->load, "lazy") != 0 && strcmp(o->load, "eager") != 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--load is lazy or eager");
    if (gb_cli_only(cli, body) < 0)
        return -1;
    set_text(body, "into", o->into);
    set_text(body, "prefix", o->prefix);
    set_text(body, "load", o->load);
    if (o->replace)
        json_object_set_new(body, "replace", json_true());
    return (o->into == NULL) == (json_object_get(body, "into") == NULL) &&
                   (o->prefix == NULL) == (json_object_get(body, "prefix") == NULL)
               ? 0
               : gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--into and --prefix are UTF-8");
}

static int set_resident(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;

    if (o->resident && o->no_resident)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "--resident and --no-resident exclude each other: give one of them");
    if (o->resident || o->no_resident)
        json_object_set_new(body, "resident", json_boolean(o->resident));
    return 0;
}

int gb_cli_buffer_settings(struct gb_cli *cli, json_t *body) {
    const struct gb_cli_options *o = &cli->options;

    if (o->given[GB_CLI_ID_bytes])
        json_object_set_new(body, "bytes", json_integer((json_int_t)o->bytes));
    set_text(body, "dtype", o->dtype);
    set_text(body, "kind", o->kind);
    set_text(body, "pool", o->pool);
    set_text(body, "stream", o->stream);
    set_text(body, "durability", o->durability);
    set_text(body, "spill", o->spill);
    if (o->device != NULL)
        json_object_set_new(body, "device", gb_cli_device(o->device));
    if (o->mirrored)
        json_object_set_new(body, "mirrored", json_true());
    return set_resident(cli, body) < 0 || set_shape(cli, body) < 0 ? -1 : gb_cli_label_settings(cli, body);
}

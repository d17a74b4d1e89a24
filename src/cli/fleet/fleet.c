/* gpubuf fleet: what the daemon is in its fleet, nodes, sessions, moves, copies, takeovers, tenants. A word of it
 * is a line of the table at the end. What loses bytes of clients is refused without --force before anything is sent.
 * */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/fleet/fleet.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define NODE "/v1/fleet/nodes/{}"

/* --- labels and addresses ----------------------------------------------------------------------------------------- */

json_t *gb_cli_labels(struct gb_cli *cli, const char *option, const char *text) {
    json_t *labels = json_object();

    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        const char *sign = memchr(text, '=', n);
        size_t key = sign ? (size_t)(sign - text) : 0;

        if (key == 0 || json_object_setn_new(labels, text, key, json_stringn(sign + 1, n - key - 1)) < 0) {
            json_decref(labels);
            gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "%s is KEY=VALUE,... in UTF-8", option);
            return NULL;
        }
        text += n + (text[n] == ',');
    }
    return labels;
}

const char *gb_cli_fleet_url(json_t *fleet, json_t *node, const char *own) {
    json_t *urls = json_object_get(node, "urls");
    const char *found = NULL;
    const char *network;
    json_t *url;

    json_object_foreach(json_object_get(fleet, "urls"), network, url) {
        if (json_is_string(url) && strcmp(json_string_value(url), own) == 0)
            found = json_string_value(json_object_get(urls, network));
    }
    if (!found)
        found = json_string_value(json_object_get(urls, "default"));
    if (!found)
        found = json_string_value(json_object_iter_value(json_object_iter(urls)));
    return found ? found : "";
}

/* --- gpubuf fleet ------------------------------------------------------------------------------------------------- */

static const struct gb_cli_column node_columns[] = {
    {"NODE", "name", GB_CLI_FORM_TEXT},       {"STATE", "state", GB_CLI_FORM_TEXT},
    {"FREE", "free", GB_CLI_FORM_BYTES},      {"COMMITTED", "committed", GB_CLI_FORM_BYTES},
    {"MEMORY", "memory", GB_CLI_FORM_BYTES},  {"DEVICES", "count", GB_CLI_FORM_COUNT},
    {"VERSION", "version", GB_CLI_FORM_TEXT}, {"URL", "url", GB_CLI_FORM_TEXT},
    {"LABELS", "text", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column session_columns[] = {
    {"SESSION", "name", GB_CLI_FORM_TEXT},
    {"NODE", "node", GB_CLI_FORM_TEXT},
    {"EPOCH", "epoch", GB_CLI_FORM_COUNT},
    {"QUOTA", "quota.bytes", GB_CLI_FORM_BYTES},
    {"ON PARTITION", "on_partition", GB_CLI_FORM_TEXT},
    {"LABELS", "text", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column where_columns[] = {
    {"SESSION", "name", GB_CLI_FORM_TEXT}, {"NODE", "node", GB_CLI_FORM_TEXT}, {"OWNER", "state", GB_CLI_FORM_TEXT},
    {"EPOCH", "epoch", GB_CLI_FORM_COUNT}, {"URL", "url", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column placed_columns[] = {
    {"SESSION", "name", GB_CLI_FORM_TEXT},
    {"NODE", "node", GB_CLI_FORM_TEXT},
    {"URL", "url", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column missing_columns[] = {
    {"MISSING", "node", GB_CLI_FORM_TEXT},
    {"WHY", "why", GB_CLI_FORM_TEXT},
};

/* --- what is shown ------------------------------------------------------------------------------------------------ */

/* The labels of an object as "k=v,k=v", in its member "text". */
static void put_labels_text(json_t *object) {
    json_t *text = json_string("");
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(object, "labels"), key, value) {
        json_t *longer = json_sprintf("%s%s%s=%s", json_string_value(text), json_string_length(text) > 0 ? "," : "",
                                      key, json_is_string(value) ? json_string_value(value) : "");

        json_decref(text);
        text = longer;
    }
    json_object_set_new(object, "text", text);
}

static json_int_t sum(json_t *devices, const char *key) {
    json_int_t all = 0;
    json_t *device;
    size_t i;

    json_array_foreach(devices, i, device) all += json_integer_value(json_object_get(device, key));
    return all;
}

/* Gives a node the members of its cells. What only live nodes report has no cell in the others. */
static void put_cells(json_t *node, json_t *fleet, const char *own) {
    json_t *devices = json_object_get(node, "devices");
    bool alive = json_is_true(json_object_get(node, "alive"));
    bool draining = json_is_true(json_object_get(node, "draining"));

    json_object_set_new(node, "state", json_string(!alive ? "absent" : draining ? "draining" : "ready"));
    json_object_set_new(node, "memory", json_integer(sum(devices, "bytes")));
    json_object_set_new(node, "count", json_integer((json_int_t)json_array_size(devices)));
    json_object_set_new(node, "free", alive ? json_integer(sum(devices, "free_bytes")) : json_null());
    json_object_set_new(node, "committed", alive ? json_integer(sum(devices, "committed_bytes")) : json_null());
    json_object_set_new(node, "url", json_string(gb_cli_fleet_url(fleet, node, own)));
    put_labels_text(node);
}

/* Takes nodes over. */
static int show_nodes(struct gb_cli *cli, json_t *nodes) {
    json_t *fleet = nodes && !cli->options.json ? gb_cli_request(cli, "GET", "/v1/fleet", NULL) : NULL;
    json_t *node;
    size_t i;

    if (!nodes || (!fleet && !cli->options.json)) {
        json_decref(nodes);
        return gb_cli_failed(cli);
    }
    if (fleet)
        json_array_foreach(nodes, i, node) put_cells(node, fleet, gpubuf_url(cli->client));
    json_decref(fleet);
    return gb_cli_show(cli, nodes, node_columns, COUNT(node_columns));
}

/* Takes value over. */
static int show_one(struct gb_cli *cli, json_t *value, const struct gb_cli_column *columns, size_t count) {
    if (!value || cli->options.json)
        return gb_cli_show(cli, value, NULL, 0);
    return gb_cli_show(cli, json_pack("[o]", value), columns, count);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static int show(struct gb_cli *cli, const char *name) {
    (void)name;
    return gb_cli_show(cli, gb_cli_request(cli, "GET", "/v1/fleet", NULL), NULL, 0);
}

static int init(struct gb_cli *cli, const char *name) {
    (void)name;
    return gb_cli_fleet_init(cli);
}

static int nodes(struct gb_cli *cli, const char *name) {
    (void)name;
    return show_nodes(cli, gb_cli_items(cli, "/v1/fleet/nodes"));
}

static int sessions(struct gb_cli *cli, const char *name) {
    const char *node = cli->options.node;
    char target[GB_CLI_PATH];
    json_t *items;
    json_t *item;
    size_t i;

    (void)name;
    if (gb_cli_target(cli, target, node ? "/v1/fleet/sessions?node={}" : "/v1/fleet/sessions", node) < 0)
        return gb_cli_failed(cli);
    items = gb_cli_list(cli, target);
    if (!cli->options.json)
        json_array_foreach(items, i, item) put_labels_text(item);
    return gb_cli_show(cli, items, session_columns, COUNT(session_columns));
}

static int where(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *found;

    if (gb_cli_target(cli, target, "/v1/fleet/sessions/{}", name) < 0)
        return gb_cli_failed(cli);
    found = gb_cli_request(cli, "GET", target, NULL);
    if (found && cli->options.quiet && !cli->options.json) {
        gb_cli_put(stdout, gb_cli_text(found, "url"));
        putchar('\n');
        json_decref(found);
        return GB_CLI_DONE;
    }
    if (found && !cli->options.json)
        json_object_set_new(found, "state",
                            json_is_true(json_object_get(found, "owner_alive"))
                                ? json_string("alive")
                                : json_sprintf("absent for %.0f s", gb_cli_number(found, "absent_s")));
    return show_one(cli, found, where_columns, COUNT(where_columns));
}

static int place(struct gb_cli *cli, const char *name) {
    const struct gb_cli_options *o = &cli->options;
    json_t *body = json_pack("{s:s}", "name", name);
    json_t *select = o->select ? gb_cli_labels(cli, "--select", o->select) : NULL;

    if (!body)
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the name is not UTF-8");
    if (!body || (o->select && !select) || gb_cli_session_settings(cli, body) < 0) {
        json_decref(body);
        json_decref(select);
        return gb_cli_failed(cli);
    }
    if (select)
        json_object_set_new(body, "select", select);
    return show_one(cli, gb_cli_request(cli, "POST", "/v1/fleet/sessions", body), placed_columns,
                    COUNT(placed_columns));
}

static int take_over(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *taken;
    json_t *body;

    if (!cli->options.force)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "fleet take needs --force, because bytes are lost to clients: session \"%s\" begins "
                              "with the copies that this node has, or empty. What the former owner has it sets aside "
                              "when it is back, to be read "
                              "for an hour (its --fleet-orphan-ttl)",
                              name);
    if (gb_cli_target(cli, target, "/v1/fleet/sessions/{}/take", name) < 0)
        return gb_cli_failed(cli);
    body = json_pack("{s:b}", "force", 1);
    if (cli->options.empty)
        json_object_set_new(body, "empty", json_true());
    taken = gb_cli_request(cli, "POST", target, body);
    if (!taken || cli->options.json)
        return gb_cli_show(cli, taken, NULL, 0);
    if (!cli->options.quiet) {
        fputs("session ", stdout);
        gb_cli_put(stdout, name);
        printf(" is at %s, at epoch %.0f, ", gpubuf_url(cli->client), gb_cli_number(taken, "fleet.epoch"));
        if (gb_cli_number(taken, "buffers") > 0)
            printf("with %.0f buffers\n", gb_cli_number(taken, "buffers"));
        else
            puts("and empty");
    }
    json_decref(taken);
    return GB_CLI_DONE;
}

/* A request without an answer to show. */
static int remove_one(struct gb_cli *cli, const char *format, const char *name) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (gb_cli_target(cli, target, format, name) < 0)
        return gb_cli_failed(cli);
    answer = gb_cli_request(cli, "DELETE", target, NULL);
    if (!answer)
        return gb_cli_failed(cli);
    if (cli->options.json)
        gb_cli_json(stdout, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

static int rm(struct gb_cli *cli, const char *name) {
    if (!cli->options.force)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "fleet rm needs --force, because bytes are lost: when its owner is back it sets session "
                              "\"%s\" aside, to be read for an hour (its --fleet-orphan-ttl), and frees it",
                              name);
    return remove_one(cli, "/v1/fleet/sessions/{}?force=true", name);
}

static int stats(struct gb_cli *cli, const char *name) {
    json_t *answer = gb_cli_request(cli, "GET", "/v1/fleet/stats", NULL);
    json_t *missing = json_object_get(answer, "missing");

    (void)name;
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    gb_cli_details(stdout, json_object_get(answer, "sums"));
    if (json_array_size(missing) > 0) {
        putchar('\n');
        gb_cli_table(stdout, missing_columns, COUNT(missing_columns), missing);
    }
    json_decref(answer);
    return GB_CLI_DONE;
}

/* What a collector of Prometheus is given; the same with --json. */
static int targets(struct gb_cli *cli, const char *name) {
    json_t *answer;

    (void)name;
    answer = gb_cli_request(cli, "GET", "/v1/fleet/targets", NULL);
    if (!answer)
        return gb_cli_failed(cli);
    gb_cli_json(stdout, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static const struct gb_cli_column holder_columns[] = {
    {"NODE", "node", GB_CLI_FORM_TEXT},        {"STATE", "state", GB_CLI_FORM_TEXT},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT}, {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"PROBLEM", "problem", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column kept_columns[] = {
    {"SESSION", "session", GB_CLI_FORM_TEXT}, {"OWNER", "owner", GB_CLI_FORM_TEXT},
    {"STATE", "state", GB_CLI_FORM_TEXT},     {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},    {"PROBLEM", "problem", GB_CLI_FORM_TEXT},
};

/* Of a session: the nodes that have copies. Without one: the copies that the node that is asked has. */
static int copies(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH] = "/v1/fleet/copies";
    json_t *answer;
    json_t *item;
    size_t i;

    if (name && gb_cli_target(cli, target, "/v1/sessions/{}/copies", name) < 0)
        return gb_cli_failed(cli);
    answer = gb_cli_request(cli, "GET", target, NULL);
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    json_array_foreach(json_object_get(answer, "items"), i, item) json_object_set_new(
        item, "state", json_string(json_is_true(json_object_get(item, "current")) ? "current" : "behind"));
    item = json_incref(json_object_get(answer, "items"));
    json_decref(answer);
    return name ? gb_cli_show(cli, item, holder_columns, COUNT(holder_columns))
                : gb_cli_show(cli, item, kept_columns, COUNT(kept_columns));
}

/* --- tenants ------------------------------------------------------------------------------------------------------ */

static const struct gb_cli_column tenant_columns[] = {
    {"TENANT", "name", GB_CLI_FORM_TEXT},
    {"LIMIT", "limit_bytes", GB_CLI_FORM_BYTES},
    {"QUOTAS", "used_bytes", GB_CLI_FORM_BYTES},
    {"SESSIONS", "sessions", GB_CLI_FORM_COUNT},
};

static int tenants(struct gb_cli *cli, const char *name) {
    json_t *answer = gb_cli_request(cli, "GET", "/v1/fleet/tenants", NULL);
    json_t *items;

    (void)name;
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    items = json_incref(json_object_get(answer, "items"));
    json_decref(answer);
    return gb_cli_show(cli, items, tenant_columns, COUNT(tenant_columns));
}

/* With a limit it is made, or changed. */
static int tenant(struct gb_cli *cli, const char *name) {
    const struct gb_cli_options *o = &cli->options;
    bool sets = o->given[GB_CLI_ID_max_bytes];
    char target[GB_CLI_PATH];
    json_t *body = NULL;

    if (gb_cli_target(cli, target, "/v1/fleet/tenants/{}", name) < 0)
        return gb_cli_failed(cli);
    if (sets)
        body = json_pack("{s:o}", "limit_bytes",
                         o->max_bytes > INT64_MAX ? json_null() : json_integer((json_int_t)o->max_bytes));
    return show_one(cli, gb_cli_request(cli, sets ? "PUT" : "GET", target, body), tenant_columns,
                    COUNT(tenant_columns));
}

static int tenant_rm(struct gb_cli *cli, const char *name) {
    return remove_one(cli, "/v1/fleet/tenants/{}", name);
}

/* --- moving ------------------------------------------------------------------------------------------------------- */

/* NULL with cli->error. */
static json_t *move_body(struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;
    json_t *select = o->select ? gb_cli_labels(cli, "--select", o->select) : NULL;
    json_t *body = json_pack("{s:s*}", "to", o->node);

    if ((o->select && !select) || !body) {
        if (!body)
            gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the name of the node is not UTF-8");
        json_decref(select);
        json_decref(body);
        return NULL;
    }
    if (select)
        json_object_set_new(body, "select", select);
    return body;
}

/* The answer of a node that has no address: it gets an order, and acts when that has arrived. */
static bool is_order(const json_t *answer) {
    return json_object_get(answer, "order") != NULL;
}

static void put_order(json_t *order) {
    const char *what = gb_cli_text(order, "order");

    fputs("node ", stdout);
    gb_cli_put(stdout, gb_cli_text(order, "node"));
    fputs(strcmp(what, "move") == 0 ? ", which has no address, is told to bring session "
                                    : ", which has no address, is told to ",
          stdout);
    gb_cli_put(stdout, strcmp(what, "move") == 0 ? gb_cli_text(order, "session") : what);
    puts("");
}

static void put_moved(json_t *moved) {
    char size[24];

    if (is_order(moved)) {
        put_order(moved);
        return;
    }
    fputs("session ", stdout);
    gb_cli_put(stdout, gb_cli_text(moved, "name"));
    if (gb_cli_number(moved, "rounds") == 0) {
        fputs(" is on node ", stdout);
        gb_cli_put(stdout, gb_cli_text(moved, "node"));
        puts(" already");
        return;
    }
    fputs(" is at ", stdout);
    gb_cli_put(stdout, gb_cli_text(moved, "url"));
    printf(", at epoch %.0f: %.0f buffers, %s; its writers waited %.0f ms\n", gb_cli_number(moved, "epoch"),
           gb_cli_number(moved, "buffers"), gb_cli_bytes_text((uint64_t)gb_cli_number(moved, "bytes"), size),
           gb_cli_number(moved, "frozen_ms"));
}

/* Their bytes were lost before. */
static void warn_skipped(json_t *moved) {
    json_t *skipped = json_object_get(moved, "skipped");
    double count = gb_cli_number(moved, "skipped_buffers");
    json_t *one;
    size_t i;

    json_array_foreach(skipped, i, one) {
        fputs("gpubuf: ", stderr);
        gb_cli_put(stderr, gb_cli_text(one, "name"));
        fprintf(stderr, " was left out: %s\n", gb_cli_text(one, "code"));
    }
    if (count > (double)json_array_size(skipped))
        fprintf(stderr, "gpubuf: %.0f more were left out\n", count - (double)json_array_size(skipped));
}

/* The answer; NULL with cli->error. Takes body over. */
static json_t *move_one(struct gb_cli *cli, const char *name, json_t *body) {
    char target[GB_CLI_PATH];
    json_t *moved = NULL;

    if (gb_cli_target(cli, target, "/v1/fleet/sessions/{}/move", name) == 0)
        moved = gb_cli_request(cli, "POST", target, body);
    else
        json_decref(body);
    if (!moved)
        return NULL;
    warn_skipped(moved);
    if (!cli->options.json && !cli->options.quiet)
        put_moved(moved);
    return moved;
}

static int move(struct gb_cli *cli, const char *name) {
    json_t *body = move_body(cli);
    json_t *moved = body ? move_one(cli, name, body) : NULL;

    if (!moved)
        return gb_cli_failed(cli);
    if (cli->options.json)
        return gb_cli_show(cli, moved, NULL, 0);
    json_decref(moved);
    return GB_CLI_DONE;
}

/* The status of the command. */
static int stays(struct gb_cli *cli, const char *name, json_t *answers) {
    const struct gpubuf_error *err = &cli->error;

    if (err->code == GPUBUF_INTERRUPTED)
        return gb_cli_failed(cli);
    json_array_append_new(answers, json_pack("{s:s, s:o}", "name", name, "problem", gb_cli_problem(cli)));
    fputs("gpubuf: session ", stderr);
    gb_cli_put(stderr, name);
    fputs(" stays where it is: ", stderr);
    gb_cli_put(stderr, err->detail[0] != '\0' ? err->detail : err->title);
    fputs("\n", stderr);
    return gb_cli_status_of(err);
}

/* One that is gone, or elsewhere, by now needs no move. The status of the command so far. */
static int move_listed(struct gb_cli *cli, const char *name, json_t *answers, int status) {
    json_t *moved = move_one(cli, name, json_object());

    if (moved) {
        json_array_append_new(answers, moved);
        return status;
    }
    if (cli->error.code == GPUBUF_SESSION_NOT_FOUND)
        return status;
    return stays(cli, name, answers);
}

/* All that are registered there, one after another. */
static int move_all(struct gb_cli *cli, const char *node) {
    json_t *answers = json_array();
    char target[GB_CLI_PATH];
    json_t *items;
    json_t *item;
    size_t i;
    int status = GB_CLI_DONE;

    items = gb_cli_target(cli, target, "/v1/fleet/sessions?node={}", node) == 0 ? gb_cli_items(cli, target) : NULL;
    if (!items)
        status = gb_cli_failed(cli);
    json_array_foreach(items, i, item) status = move_listed(cli, gb_cli_text(item, "name"), answers, status);
    json_decref(items);
    if (cli->options.json)
        gb_cli_json(stdout, answers);
    json_decref(answers);
    return status;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static int set_draining(struct gb_cli *cli, const char *name, bool draining) {
    char target[GB_CLI_PATH];
    json_t *node;

    if (gb_cli_target(cli, target, draining ? NODE "/drain" : NODE "/undrain", name) < 0)
        return gb_cli_failed(cli);
    node = gb_cli_request(cli, "POST", target, json_object());
    if (!node || cli->options.json)
        return gb_cli_show(cli, node, NULL, 0);
    if (is_order(node)) {
        if (!cli->options.quiet)
            put_order(node);
        json_decref(node);
        return GB_CLI_DONE;
    }
    return show_nodes(cli, json_pack("[o]", node));
}

static int drain(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *node;

    if (!cli->options.move)
        return set_draining(cli, name, true);
    if (gb_cli_target(cli, target, NODE "/drain", name) < 0)
        return gb_cli_failed(cli);
    node = gb_cli_request(cli, "POST", target, json_object());
    if (!node)
        return gb_cli_failed(cli);
    json_decref(node);
    return move_all(cli, name);
}

static int undrain(struct gb_cli *cli, const char *name) {
    return set_draining(cli, name, false);
}

static int forget(struct gb_cli *cli, const char *name) {
    return remove_one(cli, NODE, name);
}

/* wants: what its name is of; NULL: it takes none. */
static const struct verb {
    const char *name;
    const char *wants;
    int (*run)(struct gb_cli *cli, const char *name);
} verbs[] = {
    {"show", NULL, show},         {"init", NULL, init},           {"nodes", NULL, nodes},
    {"sessions", NULL, sessions}, {"where", "SESSION", where},    {"place", "SESSION", place},
    {"move", "SESSION", move},    {"take", "SESSION", take_over}, {"copies", "[SESSION]", copies},
    {"rm", "SESSION", rm},        {"stats", NULL, stats},         {"targets", NULL, targets},
    {"drain", "NODE", drain},     {"undrain", "NODE", undrain},   {"forget", "NODE", forget},
    {"tenants", NULL, tenants},   {"tenant", "TENANT", tenant},   {"tenant-rm", "TENANT", tenant_rm},
};

int gb_cli_run_fleet(struct gb_cli *cli, int argc, char **argv) {
    size_t i;

    if (argc == 0)
        return show(cli, NULL);
    for (i = 0; i < COUNT(verbs); i++) {
        const struct verb *verb = &verbs[i];

        if (strcmp(argv[0], verb->name) != 0)
            continue;
        if (argc > 2 || (!verb->wants ? argc == 2 : argc < 2 && verb->wants[0] != '['))
            return gb_cli_refused(cli, GB_CLI_USAGE, "it is gpubuf fleet %s%s%s", verb->name, verb->wants ? " " : "",
                                  verb->wants ? verb->wants : "");
        return verb->run(cli, argc == 2 ? argv[1] : NULL);
    }
    return gb_cli_refused(cli, GB_CLI_USAGE, "fleet: there is no word \"%.64s\"; it is gpubuf fleet %s", argv[0],
                          cli->command->arguments);
}

/* Lists that can grow and shrink (sessions, pools, streams, events), those that are only listed, trim and hold. A
 * list is a struct thing: its target, its columns and what a new one is made with. A word such as add is a line of
 * verbs[]: the request for one name, and what is shown of all answers. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct thing {
    const char *list;  /* a target with {} for the session, which may be unused */
    const char *query; /* of a DELETE with --force */
    const struct gb_cli_column *columns;
    size_t count;
    int (*fill)(struct gb_cli *cli, json_t *body); /* what one is made with or changed to; NULL: it has only a name */
};

static const struct gb_cli_column session_columns[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"USED", "used_bytes", GB_CLI_FORM_BYTES},
    {"PINNED", "used_pinned_bytes", GB_CLI_FORM_BYTES},
    {"QUOTA", "quota.bytes", GB_CLI_FORM_BYTES},
    {"IDLE TTL (S)", "idle_ttl_s", GB_CLI_FORM_COUNT},
    {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
    /* Left out where no session has one of its own; see columns_of. */
    {"DURABILITY", "durability", GB_CLI_FORM_TEXT},
    {"POOL", "pool", GB_CLI_FORM_TEXT},
    {"SPILL", "spill", GB_CLI_FORM_TEXT},
    {"PRIORITY", "priority", GB_CLI_FORM_COUNT},
};
static const struct gb_cli_column pool_columns[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"DEVICE", "device.index", GB_CLI_FORM_COUNT},
    {"USED", "used_bytes", GB_CLI_FORM_BYTES},
    {"PEAK", "used_peak_bytes", GB_CLI_FORM_BYTES},
    {"RESERVED", "reserved_bytes", GB_CLI_FORM_BYTES},
    {"MAX", "max_bytes", GB_CLI_FORM_BYTES},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"EXPORTABLE", "exportable", GB_CLI_FORM_FLAG},
    {"KEPT", "kept_bytes", GB_CLI_FORM_BYTES},
    {"STATE", "state", GB_CLI_FORM_TEXT},
};
static const struct gb_cli_column stream_columns[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"BUSY", "busy", GB_CLI_FORM_FLAG},
    {"DEVICES", "devices", GB_CLI_FORM_COUNT},
    {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
};
static const struct gb_cli_column lease_columns[] = {
    {"LEASE", "lease", GB_CLI_FORM_TEXT},
    {"SESSION", "session", GB_CLI_FORM_TEXT},
    {"BUFFER", "buffer", GB_CLI_FORM_TEXT},
    {"MODE", "mode", GB_CLI_FORM_TEXT},
    {"WAY", "way", GB_CLI_FORM_TEXT},
    {"PID", "pid", GB_CLI_FORM_COUNT},
    {"UID", "uid", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"STATE", "state", GB_CLI_FORM_TEXT},
    {"SINCE (UTC)", "since", GB_CLI_FORM_TIME},
    {"EXPIRES (UTC)", "expires_at", GB_CLI_FORM_TIME},
};
static const struct gb_cli_column operation_columns[] = {
    {"ID", "id", GB_CLI_FORM_TEXT},         {"KIND", "kind", GB_CLI_FORM_TEXT},
    {"STATE", "state", GB_CLI_FORM_TEXT},   {"STATUS", "status", GB_CLI_FORM_COUNT},
    {"TARGET", "target", GB_CLI_FORM_TEXT}, {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
};

static const struct gb_cli_column event_columns[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"RECORDED", "recorded", GB_CLI_FORM_FLAG},
    {"DONE", "done", GB_CLI_FORM_FLAG},
    {"STREAM", "stream", GB_CLI_FORM_TEXT},
    {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
};
static const struct gb_cli_column upload_columns[] = {
    {"ID", "id", GB_CLI_FORM_TEXT},
    {"BUFFER", "buffer", GB_CLI_FORM_TEXT},
    {"TAKES", "takes", GB_CLI_FORM_TEXT},
    {"STATE", "state", GB_CLI_FORM_TEXT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"RECEIVED", "received_bytes", GB_CLI_FORM_BYTES},
    {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
    {"EXPIRES (UTC)", "expires_at", GB_CLI_FORM_TIME},
};

static const struct thing sessions = {"/v1/sessions", "", session_columns, COUNT(session_columns),
                                      gb_cli_session_settings};
static const struct thing pools = {"/v1/sessions/{}/pools", "?force=true", pool_columns, COUNT(pool_columns),
                                   gb_cli_pool_settings};
static const struct thing streams = {"/v1/sessions/{}/streams", "", stream_columns, COUNT(stream_columns), NULL};

/* Of a pool that was made or changed. Settings that are not here have a column if they were given. */
static const struct gb_cli_column pool_settings[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},      {"DEVICE", "device.index", GB_CLI_FORM_COUNT},
    {"MAX", "max_bytes", GB_CLI_FORM_BYTES}, {"THRESHOLD", "release_threshold_bytes", GB_CLI_FORM_TEXT},
    {"REUSE", "reuse", GB_CLI_FORM_TEXT},    {"EXPORTABLE", "exportable", GB_CLI_FORM_FLAG},
};

static const struct thing events = {"/v1/sessions/{}/events", "", event_columns, COUNT(event_columns), NULL};
/* These are not added by name. */
static const struct thing leases = {"/v1/leases", "", lease_columns, COUNT(lease_columns), NULL};
static const struct thing operations = {"/v1/operations", "", operation_columns, COUNT(operation_columns), NULL};
static const struct thing uploads = {"/v1/sessions/{}/uploads", "", upload_columns, COUNT(upload_columns), NULL};

/* --- verbs -------------------------------------------------------------------------------------------------------- */

/* The target of one, with what comes behind its name. */
static int target_of(struct gb_cli *cli, const struct thing *thing, const char *name, const char *behind, char *ret) {
    bool of_session = strchr(thing->list, '{') != NULL;
    char format[128];

    snprintf(format, sizeof(format), "%s/{}%s", thing->list, behind);
    return gb_cli_target(cli, ret, format, of_session ? cli->session : name, name);
}

static json_t *act(struct gb_cli *cli, const struct thing *thing, const char *method, const char *name,
                   const char *behind, json_t *body) {
    char target[GB_CLI_PATH];

    if (target_of(cli, thing, name, behind, target) < 0) {
        json_decref(body);
        return NULL;
    }
    return gb_cli_request(cli, method, target, body);
}

/* With --exist-ok the one that is there, as it is. */
static json_t *or_existing(struct gb_cli *cli, const struct thing *thing, const char *name, json_t *answer) {
    int code = cli->error.code;

    if (answer || !cli->options.exist_ok ||
        (code != GPUBUF_SESSION_EXISTS && code != GPUBUF_POOL_EXISTS && code != GPUBUF_STREAM_EXISTS &&
         code != GPUBUF_EVENT_EXISTS))
        return answer;
    return act(cli, thing, "GET", name, "", NULL);
}

static json_t *add_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    char target[GB_CLI_PATH];
    json_t *body;

    if (thing == &sessions && cli->options.pool) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                     "a new session has no pools yet; once it has one, \"gpubuf sessions set %s --pool %s\" makes it "
                     "the current one",
                     name, cli->options.pool);
        return NULL;
    }
    if (gb_cli_target(cli, target, thing->list, cli->session) < 0)
        return NULL;
    body = json_pack("{s:s}", "name", name);
    if (!body) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the name is not UTF-8");
        return NULL;
    }
    if (thing->fill && thing->fill(cli, body) < 0) {
        json_decref(body);
        return NULL;
    }
    return or_existing(cli, thing, name, gb_cli_request(cli, "POST", target, body));
}

static json_t *set_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    json_t *body = json_object();
    int r = thing->fill(cli, body);

    if (r == 0 && (cli->options.fleet || cli->options.on_partition))
        r = gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                         "a session is registered in a fleet when it is made: \"gpubuf sessions add NAME --fleet\"");
    if (r == 0 && json_object_size(body) == 0)
        r = gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "there is nothing to set; \"gpubuf %s --help\" lists the options",
                         cli->command->name);
    if (r < 0) {
        json_decref(body);
        return NULL;
    }
    return act(cli, thing, "PATCH", name, "", body);
}

static json_t *show_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return act(cli, thing, "GET", name, "", NULL);
}

static json_t *remove_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return act(cli, thing, "DELETE", name, cli->options.force ? thing->query : "", NULL);
}

static json_t *reset_peak(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return act(cli, thing, "POST", name, "/reset-peak", json_object());
}

static json_t *set_access(struct gb_cli *cli, const struct thing *thing, const char *name, const char *access) {
    const char *device = cli->options.device;

    if (!device) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--device says which device is to reach the pool, or no longer");
        return NULL;
    }
    return act(cli, thing, "POST", name, "/access",
               json_pack("{s:o, s:s}", "device", gb_cli_device(device), "access", access));
}

static json_t *grant(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return set_access(cli, thing, name, "read_write");
}

static json_t *take_access(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return set_access(cli, thing, name, "none");
}

static json_t *on_stream(struct gb_cli *cli, const struct thing *thing, const char *name, const char *behind) {
    char target[GB_CLI_PATH];

    if (target_of(cli, thing, name, behind, target) < 0)
        return NULL;
    return gb_cli_post(cli, target, json_object());
}

static json_t *record(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return on_stream(cli, thing, name, "/record");
}

static json_t *wait_for(struct gb_cli *cli, const struct thing *thing, const char *name) {
    return on_stream(cli, thing, name, "/wait");
}

static json_t *sync_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    char target[GB_CLI_PATH];

    return target_of(cli, thing, name, "/sync", target) < 0 ? NULL : gb_cli_sync(cli, target);
}

/* Has the buffers of a session, or those of --prefix, evicted or loaded (action), and waits for that. The answer with
 * the session's name in it; NULL with cli->error set. */
static json_t *sweep(struct gb_cli *cli, const char *session, const char *action) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/{}", session, action) < 0)
        return NULL;
    answer = gb_cli_request_long(cli, target, json_pack("{s:s}", "prefix", ""));
    if (answer)
        json_object_set_new(answer, "session", json_string(session));
    return answer;
}

static json_t *evict(struct gb_cli *cli, const struct thing *thing, const char *name) {
    (void)thing;
    return sweep(cli, name, "evict");
}

static json_t *load(struct gb_cli *cli, const struct thing *thing, const char *name) {
    (void)thing;
    return sweep(cli, name, "load");
}

/* What a verb prints: a table of the things, one of what was chosen for them, all of each, the devices that reach each,
 * what became of the buffers of each, or nothing. */
enum shown { SHOW_TABLE, SHOW_SETTINGS, SHOW_ALL, SHOW_ACCESS, SHOW_SWEPT, SHOW_NOTHING };

static const struct verb {
    const char *name;
    json_t *(*run)(struct gb_cli *cli, const struct thing *thing, const char *name);
    enum shown shown;
} verbs[] = {
    {"add", add_one, SHOW_SETTINGS},        {"set", set_one, SHOW_SETTINGS}, {"show", show_one, SHOW_ALL},
    {"rm", remove_one, SHOW_NOTHING},       {"grant", grant, SHOW_ACCESS},   {"revoke", take_access, SHOW_ACCESS},
    {"access", show_one, SHOW_ACCESS},      {"record", record, SHOW_TABLE},  {"wait", wait_for, SHOW_TABLE},
    {"reset-peak", reset_peak, SHOW_TABLE}, {"evict", evict, SHOW_SWEPT},    {"load", load, SHOW_SWEPT},
    {"sync", sync_one, SHOW_TABLE},
};

/* Whether an item says something else than the usual under the key. */
static bool any_own(json_t *items, const char *key, const char *usual) {
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item) {
        if (json_object_get(item, key) && strcmp(gb_cli_text(item, key), usual) != 0)
            return true;
    }
    return false;
}

static bool any_priority(json_t *items) {
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item) {
        if (gb_cli_number(item, "priority") > 0)
            return true;
    }
    return false;
}

/* How many of its columns a thing has in a table of items. */
static size_t columns_of(const struct thing *thing, json_t *items) {
    if (thing != &sessions || any_own(items, "spill", "never") || any_priority(items))
        return thing->count;
    if (any_own(items, "pool", "default"))
        return thing->count - 2;
    return any_own(items, "durability", "none") ? thing->count - 3 : thing->count - 4;
}

/* A line for each pair of a pool and another device. */
static void put_access(json_t *shown) {
    static const struct gb_cli_column columns[] = {
        {"POOL", "pool", GB_CLI_FORM_TEXT},
        {"DEVICE", "device.index", GB_CLI_FORM_COUNT},
        {"UUID", "device.uuid", GB_CLI_FORM_TEXT},
        {"ACCESS", "access", GB_CLI_FORM_TEXT},
    };
    json_t *rows = json_array();
    json_t *pool;
    json_t *peer;
    size_t i;
    size_t k;

    json_array_foreach(shown, i, pool) {
        json_array_foreach(json_object_get(pool, "access"), k, peer) {
            json_t *row = json_copy(peer);

            json_object_set(row, "pool", json_object_get(pool, "name"));
            json_array_append_new(rows, row);
        }
    }
    gb_cli_table(stdout, columns, COUNT(columns), rows);
    json_decref(rows);
}

/* Nothing failed: what was skipped has no place but memory. */
static bool swept_all(json_t *answers) {
    json_t *answer;
    json_t *skip;
    size_t i;
    size_t k;

    json_array_foreach(answers, i, answer) {
        json_array_foreach(json_object_get(answer, "skipped"), k, skip) {
            if (strcmp(gb_cli_text(skip, "code"), "invalid_argument") != 0)
                return false;
        }
    }
    return true;
}

/* What has no place outside memory is no failure. */
static void say_why(json_t *skips) {
    json_t *skip;
    size_t i;

    json_array_foreach(skips, i, skip) {
        bool stays = strcmp(gb_cli_text(skip, "code"), "invalid_argument") == 0;

        json_object_set_new(skip, "why", json_string(stays ? "stays in memory" : gb_cli_text(skip, "code")));
    }
}

static void put_swept(json_t *answers) {
    static const struct gb_cli_column columns[] = {
        {"SESSION", "session", GB_CLI_FORM_TEXT},
        {"MOVED", "buffers", GB_CLI_FORM_COUNT},
        {"BYTES", "bytes", GB_CLI_FORM_BYTES},
        {"SKIPPED", "skipped_buffers", GB_CLI_FORM_COUNT},
    };
    static const struct gb_cli_column skipped[] = {
        {"SKIPPED", "buffer", GB_CLI_FORM_TEXT},
        {"WHY", "why", GB_CLI_FORM_TEXT},
    };
    json_t *answer;
    size_t i;

    gb_cli_table(stdout, columns, sizeof(columns) / sizeof(columns[0]), answers);
    json_array_foreach(answers, i, answer) {
        json_t *names = json_object_get(answer, "skipped");

        if (json_array_size(names) == 0)
            continue;
        say_why(names);
        putchar('\n');
        gb_cli_table(stdout, skipped, sizeof(skipped) / sizeof(skipped[0]), names);
    }
}

/* The words that --reuse takes. */
static json_t *policies_of(json_t *pool) {
    bool event = json_is_true(gb_cli_at(pool, "reuse.follow_event_dependencies"));
    bool opportunistic = json_is_true(gb_cli_at(pool, "reuse.allow_opportunistic"));
    bool internal = json_is_true(gb_cli_at(pool, "reuse.allow_internal_dependencies"));

    if (event && opportunistic && internal)
        return json_string("all");
    if (!event && !opportunistic && !internal)
        return json_string("none");
    return json_sprintf("%s%s%s%s%s", event ? "event" : "", event && (opportunistic || internal) ? "," : "",
                        opportunistic ? "opportunistic" : "", opportunistic && internal ? "," : "",
                        internal ? "internal" : "");
}

static bool has_column(const struct gb_cli_column *columns, size_t count, const char *key) {
    size_t n = strlen(key);
    size_t i;

    for (i = 0; i < count; i++)
        if (strncmp(columns[i].path, key, n) == 0 && (columns[i].path[n] == '\0' || columns[i].path[n] == '.'))
            return true;
    return false;
}

/* Adds a column for each setting that was given, and that the columns do not have. */
static size_t add_given(const struct gb_cli *cli, struct gb_cli_column *columns, size_t count) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++) {
        const struct gb_cli_option_spec *spec = &gb_cli_options_all[i];

        if (cli->options.given[i] && spec->setting && !has_column(columns, count, spec->setting))
            columns[count++] = (struct gb_cli_column){spec->name, spec->setting, GB_CLI_FORM_TEXT};
    }
    return count;
}

/* Members of the pools become the text of the table's cells. */
static void put_settings(const struct gb_cli *cli, json_t *shown) {
    struct gb_cli_column columns[COUNT(pool_settings) + GB_CLI_IDS];
    char text[24];
    json_t *pool;
    size_t i;

    memcpy(columns, pool_settings, sizeof(pool_settings));
    json_array_foreach(shown, i, pool) {
        json_t *threshold = json_object_get(pool, "release_threshold_bytes");

        if (json_is_integer(threshold))
            gb_cli_bytes_text((uint64_t)json_integer_value(threshold), text);
        json_object_set_new(pool, "release_threshold_bytes",
                            json_string(json_is_integer(threshold) ? text : "unlimited"));
        json_object_set_new(pool, "reuse", policies_of(pool));
    }
    gb_cli_table(stdout, columns, add_given(cli, columns, COUNT(pool_settings)), shown);
}

static void put_all(json_t *things) {
    json_t *thing;
    size_t i;

    json_array_foreach(things, i, thing) {
        if (i > 0)
            putchar('\n');
        gb_cli_details(stdout, thing);
    }
}

static void put(struct gb_cli *cli, const struct thing *thing, enum shown shown, json_t *answers) {
    if (cli->options.json)
        gb_cli_json(stdout, answers);
    else if (shown == SHOW_ALL)
        put_all(answers);
    else if (shown == SHOW_ACCESS)
        put_access(answers);
    else if (shown == SHOW_SWEPT && !cli->options.quiet)
        put_swept(answers);
    else if (shown == SHOW_SETTINGS && thing == &pools && !cli->options.quiet)
        put_settings(cli, answers);
    else if (shown != SHOW_SWEPT && shown != SHOW_NOTHING && !cli->options.quiet)
        gb_cli_table(stdout, thing->columns, columns_of(thing, answers), answers);
}

static int change(struct gb_cli *cli, const struct thing *thing, const struct verb *verb, int argc, char **argv) {
    json_t *answers = json_array();
    int r = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && r == GB_CLI_DONE; i++) {
        json_t *answer = verb->run(cli, thing, argv[i]);

        if (!answer)
            r = gb_cli_failed(cli);
        else
            json_array_append_new(answers, verb->shown != SHOW_NOTHING ? json_incref(answer) : json_string(argv[i]));
        json_decref(answer);
    }
    if (r == GB_CLI_DONE)
        put(cli, thing, verb->shown, answers);
    if (r == GB_CLI_DONE && verb->shown == SHOW_SWEPT && !swept_all(answers))
        r = cli->options.json ? GB_CLI_FAILED : gb_cli_refused(cli, GB_CLI_FAILED, "not all buffers could be moved");
    json_decref(answers);
    return r;
}

/* The verb, if the command has it: its arguments are "[add|rm NAME...]". */
static const struct verb *verb_of(const struct gb_cli_command *command, const char *word) {
    const char *list = command->arguments + 1;
    size_t length = strcspn(list, " ");
    size_t n = strlen(word);
    size_t at = 0;
    size_t i;

    for (i = 0; i < COUNT(verbs); i++)
        if (strcmp(verbs[i].name, word) == 0)
            break;
    for (; i < COUNT(verbs) && at < length; at += strcspn(list + at, "| ") + 1)
        if (strcspn(list + at, "| ") == n && strncmp(list + at, word, n) == 0)
            return &verbs[i];
    return NULL;
}

static int list(struct gb_cli *cli, const struct thing *thing) {
    char target[GB_CLI_PATH];
    json_t *items;

    if (gb_cli_target(cli, target, thing->list, cli->session) < 0)
        return gb_cli_failed(cli);
    items = gb_cli_list(cli, target);
    return gb_cli_show(cli, items, thing->columns, columns_of(thing, items));
}

static int run(struct gb_cli *cli, const struct thing *thing, int argc, char **argv) {
    const struct verb *verb = argc > 1 ? verb_of(cli->command, argv[0]) : NULL;

    if (argc == 0)
        return list(cli, thing);
    if (!verb)
        return gb_cli_refused(cli, GB_CLI_USAGE, "\"gpubuf %s\" lists; else it is gpubuf %s %s%s", cli->command->name,
                              cli->command->name, cli->command->arguments,
                              thing == &operations ? ". \"gpubuf wait OPERATION\" waits for one, and \"gpubuf "
                                                     "operations --json\" has all that is known"
                                                   : "");
    return change(cli, thing, verb, argc - 1, argv + 1);
}

int gb_cli_run_sessions(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &sessions, argc, argv);
}

int gb_cli_run_pools(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &pools, argc, argv);
}

int gb_cli_run_streams(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &streams, argc, argv);
}

int gb_cli_run_leases(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &leases, argc, argv);
}

int gb_cli_run_operations(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &operations, argc, argv);
}

int gb_cli_run_uploads(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &uploads, argc, argv);
}

int gb_cli_run_events(struct gb_cli *cli, int argc, char **argv) {
    return run(cli, &events, argc, argv);
}

int gb_cli_run_trim(struct gb_cli *cli, int argc, char **argv) {
    char target[GB_CLI_PATH];
    char before[24];
    char after[24];
    json_t *answer;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/pools/{}/trim", cli->session, argc > 0 ? argv[0] : "default") < 0)
        return gb_cli_failed(cli);
    answer = gb_cli_post(cli, target, json_object());
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    gb_cli_put(stdout, gb_cli_text(answer, "name"));
    printf(": %s reserved before, %s now",
           gb_cli_bytes_text((uint64_t)gb_cli_number(answer, "reserved_before_bytes"), before),
           gb_cli_bytes_text((uint64_t)gb_cli_number(answer, "reserved_after_bytes"), after));
    fputs(gb_cli_text(answer, "note")[0] != '\0' ? "; " : "", stdout);
    gb_cli_put(stdout, gb_cli_text(answer, "note"));
    putchar('\n');
    json_decref(answer);
    return GB_CLI_DONE;
}

/* --- hold: keeps a stream busy ------------------------------------------------------------------------------------ */

int gb_cli_run_hold(struct gb_cli *cli, int argc, char **argv) {
    char target[GB_CLI_PATH];
    const char *ms = argv[1];
    json_t *answer;

    (void)argc;
    if (ms[0] == '\0' || strspn(ms, "0123456789") != strlen(ms) || strlen(ms) > 9)
        return gb_cli_refused(cli, GB_CLI_USAGE, "\"%s\" is no number of milliseconds: gpubuf hold STREAM MS", ms);
    if (gb_cli_target(cli, target, "/v1/sessions/{}/streams/{}/hold", cli->session, argv[0]) < 0)
        return gb_cli_failed(cli);
    answer = gb_cli_post(cli, target, json_pack("{s:i}", "ms", atoi(ms)));
    if (!answer || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    if (!cli->options.quiet) {
        gb_cli_put(stdout, gb_cli_text(answer, "stream"));
        printf(": held on device %lld until ", (long long)gb_cli_number(answer, "device.index"));
        gb_cli_put(stdout, gb_cli_text(answer, "held_until"));
        putchar('\n');
    }
    json_decref(answer);
    return GB_CLI_DONE;
}

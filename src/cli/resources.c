/* Lists that can grow and shrink: sessions, pools, streams; and those that can only be looked at. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct thing {
    const char *list;  /* a target with {} for the session, which may be unused */
    const char *query; /* of a DELETE with --force */
    const struct gb_cli_column *columns;
    size_t count;
    void (*fill)(const struct gb_cli_options *options, json_t *body); /* what a new one is made with */
};

static const struct gb_cli_column session_columns[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"USED", "used_bytes", GB_CLI_FORM_BYTES},
    {"PINNED", "used_pinned_bytes", GB_CLI_FORM_BYTES},
    {"QUOTA", "quota.bytes", GB_CLI_FORM_BYTES},
    {"IDLE TTL (S)", "idle_ttl_s", GB_CLI_FORM_COUNT},
    {"CREATED (UTC)", "created_at", GB_CLI_FORM_TIME},
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

static void set_integer(json_t *body, const char *key, bool given, uint64_t value) {
    if (given)
        json_object_set_new(body, key, json_integer((json_int_t)value));
}

static void fill_session(const struct gb_cli_options *options, json_t *body) {
    json_t *quota = json_object();

    set_integer(quota, "bytes", options->given[GB_CLI_ID_max_bytes], options->max_bytes);
    set_integer(body, "idle_ttl_s", options->given[GB_CLI_ID_idle_ttl], options->idle_ttl);
    if (json_object_size(quota) > 0)
        json_object_set(body, "quota", quota);
    json_decref(quota);
}

static void fill_pool(const struct gb_cli_options *options, json_t *body) {
    const char *device = options->device;

    set_integer(body, "max_bytes", options->given[GB_CLI_ID_max_bytes], options->max_bytes);
    set_integer(body, "release_threshold_bytes", options->given[GB_CLI_ID_release_threshold],
                options->release_threshold);
    if (options->exportable)
        json_object_set_new(body, "exportable", json_true());
    if (device != NULL && strspn(device, "0123456789") == strlen(device))
        json_object_set_new(body, "device", json_integer(strtol(device, NULL, 10)));
    else if (device != NULL)
        json_object_set_new(body, "device", json_string(device));
}

/* The name is all that there is to say. */
static void fill_name(const struct gb_cli_options *options, json_t *body) {
    (void)options;
    (void)body;
}

static const struct thing sessions = {"/v1/sessions", "", session_columns, COUNT(session_columns), fill_session};
static const struct thing pools = {"/v1/sessions/{}/pools", "?force=true", pool_columns, COUNT(pool_columns),
                                   fill_pool};
static const struct thing streams = {"/v1/sessions/{}/streams", "", stream_columns, COUNT(stream_columns), fill_name};

static const struct thing events = {"/v1/sessions/{}/events", "", event_columns, COUNT(event_columns), fill_name};
/* These are not added by name. */
static const struct thing leases = {"/v1/leases", "", lease_columns, COUNT(lease_columns), NULL};
static const struct thing operations = {"/v1/operations", "", operation_columns, COUNT(operation_columns), NULL};
static const struct thing uploads = {"/v1/sessions/{}/uploads", "", upload_columns, COUNT(upload_columns), NULL};

static json_t *add_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    char target[GB_CLI_PATH];
    json_t *body;

    if (gb_cli_target(cli, target, thing->list, cli->session) < 0)
        return NULL;
    body = json_pack("{s:s}", "name", name);
    if (body == NULL) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the name is not UTF-8");
        return NULL;
    }
    thing->fill(&cli->options, body);
    return gb_cli_request(cli, "POST", target, body);
}

static json_t *remove_one(struct gb_cli *cli, const struct thing *thing, const char *name) {
    char target[GB_CLI_PATH];
    char format[128];
    bool of_session = strchr(thing->list, '{') != NULL;

    snprintf(format, sizeof format, "%s/{}%s", thing->list, cli->options.force ? thing->query : "");
    if (gb_cli_target(cli, target, format, of_session ? cli->session : name, name) < 0)
        return NULL;
    return gb_cli_request(cli, "DELETE", target, NULL);
}

static int change(struct gb_cli *cli, const struct thing *thing, int argc, char **argv) {
    bool add = strcmp(argv[0], "add") == 0;
    json_t *answers = json_array();
    int rc = GB_CLI_DONE;
    int i;

    for (i = 1; i < argc && rc == GB_CLI_DONE; i++) {
        json_t *answer = add ? add_one(cli, thing, argv[i]) : remove_one(cli, thing, argv[i]);

        if (answer == NULL)
            rc = gb_cli_failed(cli);
        else
            json_array_append_new(answers, add ? json_incref(answer) : json_string(argv[i]));
        json_decref(answer);
    }
    if (rc == GB_CLI_DONE && cli->options.json)
        gb_cli_json(stdout, answers);
    else if (rc == GB_CLI_DONE && add && !cli->options.quiet)
        gb_cli_table(stdout, thing->columns, thing->count, answers);
    json_decref(answers);
    return rc;
}

static int list(struct gb_cli *cli, const char *format, const struct gb_cli_column *columns, size_t count) {
    char target[GB_CLI_PATH];

    if (gb_cli_target(cli, target, format, cli->session) < 0)
        return gb_cli_failed(cli);
    return gb_cli_show(cli, gb_cli_list(cli, target), columns, count);
}

static int run(struct gb_cli *cli, const struct thing *thing, int argc, char **argv) {
    if (argc == 0)
        return list(cli, thing->list, thing->columns, thing->count);
    if (thing->fill == NULL && (strcmp(argv[0], "rm") != 0 || argc < 2))
        return gb_cli_refused(cli, GB_CLI_USAGE, "\"gpubuf %s\" lists, \"gpubuf %s rm ID...\" ends some",
                              cli->command->name, cli->command->name);
    if ((strcmp(argv[0], "add") != 0 && strcmp(argv[0], "rm") != 0) || argc < 2)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "\"gpubuf %s\" lists, \"gpubuf %s add NAME...\" and \"... rm NAME...\" change",
                              cli->command->name, cli->command->name);
    return change(cli, thing, argc, argv);
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
    answer = gb_cli_request(cli, "POST", target, json_pack("{s:I}", "keep_bytes", (json_int_t)cli->options.keep));
    if (answer == NULL || cli->options.json)
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

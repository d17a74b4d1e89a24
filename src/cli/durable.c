/* Bytes on disk: store, load, evict, storage; those of a session. */
#include <string.h>

#include "cli/cli.h"

static int end_each(struct gb_cli *cli, json_t *answers, int status) {
    if (cli->options.json && status == GB_CLI_DONE)
        gb_cli_json(stdout, answers);
    json_decref(answers);
    return status;
}

/* arg: the array of the answers, as of load_one. */
static int store_one(struct gb_cli *cli, const char *text, void *arg) {
    char target[GB_CLI_PATH];
    json_t *answer = NULL;
    char size[24];

    if (gb_cli_buffer_target(cli, text, "/store", target) == 0)
        answer = gb_cli_request(cli, "POST", target, json_object());
    if (answer == NULL)
        return gb_cli_failed(cli);
    json_object_set_new(answer, "buffer", json_string(text));
    if (!cli->options.json && !cli->options.quiet) {
        gb_cli_put(stdout, text);
        printf("  %s  generation %.0f on disk  %s\n", gb_cli_bytes_text((uint64_t)gb_cli_number(answer, "bytes"), size),
               gb_cli_number(answer, "stored_generation"),
               json_is_true(json_object_get(answer, "wrote")) ? "written" : "nothing to write");
    }
    json_array_append_new(arg, answer);
    return GB_CLI_DONE;
}

int gb_cli_run_store(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, store_one, answers));
}

/* A request waits no longer than the daemon's --wait-max; the load continues, and the next request waits for it. */
static int load_one(struct gb_cli *cli, const char *text, void *arg) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (gb_cli_buffer_target(cli, text, "/load", target) < 0)
        return gb_cli_failed(cli);
    do
        answer = gb_cli_request(cli, "POST", target, json_object());
    while (answer == NULL && cli->error.code == GPUBUF_TIMED_OUT);
    if (answer == NULL)
        return gb_cli_failed(cli);
    json_array_append(arg, answer);
    if (!cli->options.json)
        return gb_cli_show_buffer(cli, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

int gb_cli_run_load(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, load_one, answers));
}

static void put_evicted(const char *text, json_t *buffer) {
    bool kept = gb_cli_number(buffer, "stored_generation") > 0;
    char size[24];

    gb_cli_put(stdout, text);
    printf("  %s  ", gb_cli_bytes_text((uint64_t)gb_cli_number(buffer, "bytes"), size));
    if (strcmp(gb_cli_text(buffer, "state"), "stored") != 0)
        puts("in memory: it was mapped meanwhile");
    else if (strcmp(gb_cli_text(buffer, "tier"), "host") == 0)
        puts(kept ? "in host memory and on disk" : "in host memory until the daemon ends");
    else
        puts(kept ? "on disk" : "on disk until the daemon ends");
}

static int evict_one(struct gb_cli *cli, const char *text, void *arg) {
    json_t *body = cli->options.to != NULL ? json_pack("{s:s}", "to", cli->options.to) : json_object();
    char target[GB_CLI_PATH];
    json_t *answer = NULL;

    if (gb_cli_buffer_target(cli, text, "/evict", target) == 0)
        answer = gb_cli_request(cli, "POST", target, body);
    else
        json_decref(body);
    if (answer == NULL)
        return gb_cli_failed(cli);
    if (!cli->options.json && !cli->options.quiet)
        put_evicted(text, answer);
    json_array_append_new(arg, answer);
    return GB_CLI_DONE;
}

int gb_cli_run_evict(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, evict_one, answers));
}

/* --- a session ---------------------------------------------------------------------------------------------------- */

json_t *gb_cli_result(struct gb_cli *cli, const char *id) {
    const struct gpubuf_answer *told;
    json_t *operation;
    json_t *result;

    if (gpubuf_operation_wait(cli->client, id, (uint32_t)(cli->options.timeout + 0.999), &cli->error) < 0)
        return NULL;
    told = gpubuf_answer_of(cli->client);
    operation = json_loadb(told->body, told->bytes, 0, NULL);
    result = json_incref(json_object_get(operation, "result"));
    json_decref(operation);
    return result;
}

json_t *gb_cli_request_long(struct gb_cli *cli, const char *target, json_t *body) {
    json_t *answer = gb_cli_request_with(cli, "POST", target, "Prefer: respond-async", body);
    json_t *result;

    if (answer == NULL || gpubuf_answer_of(cli->client)->status != 202)
        return answer;
    result = gb_cli_result(cli, gb_cli_text(answer, "id"));
    json_decref(answer);
    return result;
}

json_t *gb_cli_sweep(struct gb_cli *cli, const char *session, const char *action) {
    const char *prefix = cli->options.prefix;
    char target[GB_CLI_PATH];
    json_t *answer;
    json_t *body;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/{}", session, action) < 0)
        return NULL;
    body = json_pack("{s:s,s:s*}", "prefix", prefix != NULL ? prefix : "", "to", cli->options.to);
    if (body == NULL) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the prefix is not UTF-8");
        return NULL;
    }
    answer = gb_cli_request_long(cli, target, body);
    if (answer != NULL)
        json_object_set_new(answer, "session", json_string(session));
    return answer;
}

bool gb_cli_swept_all(json_t *answers) {
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

void gb_cli_put_swept(json_t *answers) {
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

    gb_cli_table(stdout, columns, sizeof columns / sizeof columns[0], answers);
    json_array_foreach(answers, i, answer) {
        json_t *names = json_object_get(answer, "skipped");

        if (json_array_size(names) == 0)
            continue;
        say_why(names);
        putchar('\n');
        gb_cli_table(stdout, skipped, sizeof skipped / sizeof skipped[0], names);
    }
}

static void put_scrubbed(json_t *answer) {
    static const struct gb_cli_column columns[] = {
        {"SESSION", "session", GB_CLI_FORM_TEXT},
        {"DAMAGED", "buffer", GB_CLI_FORM_TEXT},
        {"WHY", "code", GB_CLI_FORM_TEXT},
        {"HEALED", "healed", GB_CLI_FORM_FLAG},
    };
    json_t *found = json_incref(json_object_get(answer, "found"));

    json_object_del(answer, "found");
    gb_cli_details(stdout, answer);
    if (json_array_size(found) > 0) {
        putchar('\n');
        gb_cli_table(stdout, columns, sizeof columns / sizeof columns[0], found);
    }
    json_decref(found);
}

/* Waits for the end of the pass, which may take hours. */
static int scrub(struct gb_cli *cli) {
    json_t *body = json_object();
    json_t *answer;
    double left;

    if (cli->options.given[GB_CLI_ID_rate])
        json_object_set_new(body, "rate", json_integer((json_int_t)cli->options.rate));
    answer = gb_cli_request_long(cli, "/v1/storage/scrub", body);
    if (answer == NULL)
        return gb_cli_failed(cli);
    left = gb_cli_number(answer, "damaged") - gb_cli_number(answer, "healed");
    if (cli->options.json)
        gb_cli_json(stdout, answer);
    else if (!cli->options.quiet)
        put_scrubbed(answer);
    json_decref(answer);
    if (left == 0)
        return GB_CLI_DONE;
    return cli->options.json
               ? GB_CLI_FAILED
               : gb_cli_refused(cli, GB_CLI_FAILED, "%.0f damaged files could not be written again from memory", left);
}

int gb_cli_run_storage(struct gb_cli *cli, int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "scrub") == 0)
        return scrub(cli);
    if (argc > 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "storage: there is no word \"%.64s\"; permitted: scrub, or none",
                              argv[0]);
    if (gb_cli_options_idle(&cli->options, "rate", "it is of a search for damage: gpubuf storage scrub") < 0)
        return GB_CLI_USAGE;
    return gb_cli_show(cli, gb_cli_request(cli, "GET", "/v1/storage", NULL), NULL, 0);
}
